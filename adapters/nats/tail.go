// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/names"
)

// How a stream is read. A server that is alive says so each heartbeat; when
// nothing came for longer than one, it is asked.
const (
	heartbeat = 500 * time.Millisecond
	quiet     = heartbeat * 3 / 2
	batchSize = 64 // of a consumer that is pulled from

	// patience is how long a subject that the server has may take to come, while no
	// other new one does.
	patience = 10 * time.Second

	// forgotten is how long the server keeps a consumer that nobody listens to.
	forgotten = 30 * time.Second

	// The server may take this long for a call at first, and longer after each
	// failure, so that a slow server is not asked in vain for ever. The time that
	// the way there and back takes does not count.
	firstTimeout = time.Second
	lastTimeout  = 4 * time.Second

	// silence is how long a server may take for the answer to a ping.
	silence = 30 * time.Second

	// The pause after a failure. It ends at once when the connection is back.
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

var (
	errReconnect    = errors.New("the connection changed")
	errGap          = errors.New("messages are missing")
	errNoSubscriber = errors.New("no subscriber receives the messages of the consumer; if this lasts, the import of an account or a leaf node does not pass on the inbox subjects, _INBOX.> by default")
	errOther        = errors.New("the stream may be another one, or have lost messages")
	errSlow         = fmt.Errorf("the server did not answer in time: %w", context.DeadlineExceeded)
	errSilent       = fmt.Errorf("the server did not answer a ping for %v: %w", silence, context.DeadlineExceeded)
)

// A tail reads the last message of each subject of a stream, and then all that
// come, until its context is done. It starts again by itself when the
// connection, the server, the consumer or the stream is lost: after the last
// message that it has seen, if it is sure that the stream has lost nothing since,
// else from the beginning. It is sure if that message is still there, or if the
// server has not ended since it was read.
//
// It has a consumer of its own that the server may forget at any time. What
// matters is kept here: the sequence of the last message. The ordered consumer of
// nats.go begins again by itself as well, but it does not look whether the stream
// is the same, and takes 19 seconds to notice that the server was restarted.
type tail struct {
	js      jetstream.JetStream
	stream  string
	what    string   // for errors and logs
	root    string   // what all subjects of the stream begin with
	filters []string // subjects; at least one
	headers bool     // messages come without their data
	lenient bool     // a list of several subjects may lack one that is written just as it begins
	handle  func(*nats.Msg, *nats.MsgMetadata)
	knows   func(all bool) // if not nil, called when all there is was handled, and when it begins anew

	// seen has the sequence of the first message that was handled of each subject, until
	// all that there was is; then it is nil, as it is if nobody asks.
	seen  map[string]uint64
	had   int       // how many there were as some were missing last
	since time.Time // since when it is as many

	created  time.Time // of the stream that last belongs to
	last     uint64    // the sequence of the last message seen; 0 asks for a new start
	lastTime time.Time // of that message

	consumer jetstream.PushConsumer // that delivers, or did before the attempt; it shows whether the server lives
	sure     bool                   // that the stream had last when consumer was made
}

// run returns nil when ctx is done, and an error when the connection is closed
// for good.
func (t *tail) run(ctx context.Context) error {
	return stay(ctx, t.js.Conn(), t.what, func(ctx context.Context, r *reader) error {
		if t.last == 0 {
			t.seen, t.since = nil, time.Time{}
			if t.knows != nil {
				t.knows(false)
			}
			if t.knows != nil || isPrimed(ctx) {
				t.seen = make(map[string]uint64)
			}
		}
		d, err := t.deliver(ctx, r)
		if err != nil {
			return err
		}
		defer d.stop()
		stream, err := t.open(ctx, r, d)
		if err == nil {
			err = t.read(ctx, r, d, stream)
		}
		if errors.Is(err, errOther) {
			t.last = 0
		}
		switch {
		case context.Cause(ctx) != errReconnect && ctx.Err() != nil:
			t.close(d.consumer)
		case t.consumer != d.consumer:
			t.drop(d.consumer)
		}
		return err
	})
}

// A delivery is what a consumer of the server sends.
type delivery struct {
	nc       *nats.Conn
	consumer jetstream.PushConsumer
	sub      *nats.Subscription
	msgs     chan *nats.Msg
	stopped  chan struct{}
}

// deliver makes a consumer that begins where this tail has to go on. Its messages
// follow the answer; the server stops after some megabytes of them until
// they are handled.
func (t *tail) deliver(ctx context.Context, r *reader) (*delivery, error) {
	d := &delivery{nc: t.js.Conn(), msgs: make(chan *nats.Msg, 256), stopped: make(chan struct{})}
	config := jetstream.ConsumerConfig{
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		DeliverSubject:    d.nc.NewInbox(),
		FlowControl:       true,
		HeadersOnly:       t.headers,
		IdleHeartbeat:     heartbeat,
		InactiveThreshold: forgotten,
		MemoryStorage:     true,
		Replicas:          1,
	}
	if len(t.filters) == 1 {
		config.FilterSubject = t.filters[0] // old servers know no more than one
	} else {
		config.FilterSubjects = t.filters
	}
	if t.last > 0 {
		// With the last one seen, to know it again.
		config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		config.OptStartSeq = t.last
	}
	var err error
	d.sub, err = d.nc.Subscribe(config.DeliverSubject, func(msg *nats.Msg) {
		select {
		case d.msgs <- msg:
		case <-d.stopped:
		}
	})
	if err != nil {
		return nil, err
	}
	d.sub.SetPendingLimits(-1, -1) // the server keeps one
	err = r.ask(ctx, func(ctx context.Context) (err error) {
		d.consumer, err = t.js.CreatePushConsumer(ctx, t.stream, config)
		return err
	})
	if err != nil {
		d.stop()
		switch api := (*jetstream.APIError)(nil); {
		case len(t.filters) < 2 || !errors.As(err, &api):
		case api.ErrorCode == noFilter:
			err = fmt.Errorf("%w: %w", errOneFilter, err)
		case api.ErrorCode == overlap:
			err = permanent{reconcile.Terminal(fmt.Errorf("of the filters %s one covers another, want each key covered once: %w", t.shownFilters(), err))}
		}
		return nil, err
	}
	return d, nil
}

var errOneFilter = errors.New("the server knows one filter at most, want version 2.10 or later")

const (
	// noFilter is the error of a server that saw none of several filters.
	noFilter jetstream.ErrorCode = 10094

	// overlap is the error for filters that no server takes.
	overlap jetstream.ErrorCode = 10138
)

// shownFilters returns the filters as the caller wrote them.
func (t *tail) shownFilters() string {
	var all []string
	for _, f := range t.filters {
		all = append(all, strconv.Quote(strings.TrimPrefix(f, t.root)))
	}
	return strings.Join(all, ", ")
}

func (d *delivery) stop() {
	close(d.stopped)
	d.sub.Unsubscribe() // an error says that the connection is closed
}

// total returns how many messages there were to deliver when the consumer was made.
func (d *delivery) total() uint64 {
	info := d.consumer.CachedInfo()
	return info.NumPending + info.Delivered.Consumer
}

// open finds out whether the delivery goes on where this tail has to.
func (t *tail) open(ctx context.Context, r *reader, d *delivery) (jetstream.Stream, error) {
	// Only now is it certain which stream the consumer reads at most: a stream
	// that was replaced after this has taken the consumer with it.
	var stream jetstream.Stream
	err := r.ask(ctx, func(ctx context.Context) (err error) {
		stream, err = t.js.Stream(ctx, t.stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	if err := checkSubjects(info.Config, t.root); err != nil {
		return nil, permanent{err}
	}
	switch {
	case t.last == 0:
		t.created, t.sure = info.Created, true
		t.replace(d.consumer)
		return stream, nil
	case !info.Created.Equal(t.created) || info.State.LastSeq < t.last:
		return nil, errOther
	}
	if t.sure {
		// The one server that has the stream keeps its consumers in memory.
		err = r.ask(ctx, func(ctx context.Context) error {
			_, err := t.consumer.Info(ctx)
			return err
		})
		if errors.Is(err, errReconnect) || errors.Is(err, errSlow) && r.timeout < lastTimeout {
			return nil, err // ask again, with more patience
		}
		t.sure = err == nil && info.Config.Replicas == 1
	}
	t.replace(d.consumer)
	if !t.sure && d.total() == 0 {
		return nil, errOther // the last one is gone
	}
	return stream, nil
}

// checkSubjects returns an error if a stream has messages whose subjects do not begin
// with root: a list of those that do would lack them, and say nothing.
func checkSubjects(c jetstream.StreamConfig, root string) error {
	if c.Mirror != nil {
		return fmt.Errorf("it is a mirror of stream %s, and has the subjects of that one; want a bucket that is no mirror", c.Mirror.Name)
	}
	for _, s := range c.Sources {
		moved := slices.ContainsFunc(s.SubjectTransforms, func(t jetstream.SubjectTransformConfig) bool {
			return strings.HasPrefix(t.Destination, root)
		})
		if !moved && s.Name != c.Name {
			return fmt.Errorf("it copies stream %s, whose subjects stay as they are; want a SubjectTransform to %s>", s.Name, root)
		}
	}
	return nil
}

func (t *tail) close(consumer jetstream.PushConsumer) {
	ctx, cancel := context.WithTimeout(context.Background(), firstTimeout)
	defer cancel()
	if t.js.Conn().IsConnected() {
		t.js.DeleteConsumer(ctx, t.stream, consumer.CachedInfo().Name) // else the server forgets it
	}
}

// replace has another consumer deliver from now on.
func (t *tail) replace(consumer jetstream.PushConsumer) {
	if t.consumer != nil {
		t.drop(t.consumer)
	}
	t.consumer = consumer
}

// drop deletes a consumer some time, and does not wait for it. Without a connection it
// is deleted when that is back, or the server forgets it.
func (t *tail) drop(consumer jetstream.PushConsumer) {
	t.js.Conn().Publish(names.API(t.js)+"CONSUMER.DELETE."+t.stream+"."+consumer.CachedInfo().Name, nil)
}

// read handles messages until something is wrong or ctx is done.
func (t *tail) read(ctx context.Context, r *reader, d *delivery, stream jetstream.Stream) error {
	return d.each(ctx, r, func(msg *nats.Msg, meta *nats.MsgMetadata) error {
		seen := meta.Sequence.Stream == t.last && meta.Timestamp.Equal(t.lastTime)
		if meta.Sequence.Stream == t.last && !seen || !seen && !t.sure {
			return errOther // the server may have lost what we saw, and used its number again
		}
		t.sure = true
		if seen {
			return nil
		}
		t.handle(msg, meta)
		t.see(msg, meta)
		t.last, t.lastTime = meta.Sequence.Stream, meta.Timestamp
		return nil
	}, func(unchanged bool) (bool, error) {
		if t.seen != nil {
			if all, err := t.complete(ctx, r, d, stream, unchanged); !all {
				return false, err
			}
			t.seen = nil
		}
		fed(ctx)
		if t.knows != nil {
			t.knows(true)
		}
		return true, nil
	})
}

func (t *tail) see(msg *nats.Msg, meta *nats.MsgMetadata) {
	if _, again := t.seen[msg.Subject]; t.seen != nil && !again {
		t.seen[msg.Subject] = meta.Sequence.Stream
	}
}

// complete reports whether a message of each subject that the stream has was handled,
// though those that are written meanwhile have moved to the end. What the server says of
// a consumer is no proof of that: while messages are replaced, it counts too few for a
// moment, and for as long as the consumer lasts if they were as it was made. So the stream
// is asked for its subjects, unless as many were handled as it had, all of them from before
// it said so; or, if a part of it is read, unless unchanged is true, and nothing was written
// since a while before the consumer was made.
func (t *tail) complete(ctx context.Context, r *reader, d *delivery, stream jetstream.Stream, unchanged bool) (bool, error) {
	state := stream.CachedInfo().State
	if len(t.filters) == 1 && t.filters[0] == t.root+">" {
		n := uint64(0)
		for _, seq := range t.seen {
			if seq <= state.LastSeq {
				n++
			}
		}
		unchanged = n == state.NumSubjects
	} else if !t.lenient && state.LastTime.After(d.consumer.CachedInfo().Created.Add(-time.Second)) {
		unchanged = false
	}
	if unchanged {
		return true, nil
	}
	for _, filter := range t.filters {
		var info *jetstream.StreamInfo
		err := r.ask(ctx, func(ctx context.Context) (err error) {
			info, err = stream.Info(ctx, jetstream.WithSubjectFilter(filter))
			return err
		})
		if err != nil {
			return false, err
		}
		for subject := range info.State.Subjects {
			if _, ok := t.seen[subject]; ok {
				continue
			}
			if n := len(t.seen); n != t.had || t.since.IsZero() {
				t.had, t.since = n, time.Now()
			}
			if time.Since(t.since) >= patience {
				return false, fmt.Errorf("%w: the server has %s and does not deliver it, as one before 2.11.5 may do", errOther, subject)
			}
			return false, nil // it is to come
		}
	}
	return true, nil
}

// errEnd ends a list.
var errEnd = errors.New("all is listed")

// list calls handle for the last message of each subject, and returns nil if it
// has seen them all. A subject that is written meanwhile moves to the end, so
// the list ends where nothing follows, and not after as many as there were: see each.
func (t *tail) list(ctx context.Context) error {
	nc := t.js.Conn()
	status := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	watched, done := whileConnected(ctx, status)
	defer done()
	r := &reader{nc: nc, timeout: lastTimeout, works: func() {}}
	asking, stop := context.WithCancel(watched)
	defer stop()
	t.seen = make(map[string]uint64)
	var stream jetstream.Stream
	fits := make(chan error, 1) // asked beside, so that a list takes no round trip more
	go func() {
		err := r.ask(asking, func(ctx context.Context) (err error) {
			stream, err = t.js.Stream(ctx, t.stream)
			return err
		})
		if err == nil {
			err = checkSubjects(stream.CachedInfo().Config, t.root)
		}
		fits <- err
		close(fits)
	}()
	d, err := t.deliver(watched, r)
	if err == nil {
		err = d.each(watched, r, func(msg *nats.Msg, meta *nats.MsgMetadata) error {
			t.handle(msg, meta)
			t.see(msg, meta)
			return nil
		}, func(unchanged bool) (bool, error) {
			if err := <-fits; err != nil {
				return false, err
			}
			all, err := t.complete(watched, r, d, stream, unchanged)
			if all {
				err = errEnd
			}
			return all, err
		})
		d.stop()
		t.close(d.consumer)
	}
	if err != errEnd {
		stop()
	}
	if unfit := <-fits; err == errEnd && unfit != nil {
		err = unfit
	}
	switch {
	case err == errEnd:
		return nil
	case watched.Err() != nil:
		err = context.Cause(watched)
	}
	if never := (permanent{}); errors.As(err, &never) {
		err = never.error
	}
	return fmt.Errorf("natsadapter: %s: %w", t.what, err)
}

// each hands the messages of a delivery to handle, one by one, and calls caughtUp
// when it may have handled all that there is, until that is so, as it returns. It returns
// the error of either, what is wrong, or nil when ctx is done.
//
// A message says how many are to come after it, and the server may say 0 too soon: it
// takes one that is replaced off that number at once, and counts the one in its place a
// moment later. Unchanged is true if as many messages came as there were at first, none of them
// written since. Else the server is asked for the consumer first.
//
// Silence is no proof of loss: a message may be on its way for longer than any
// time-out. So when nothing comes the server is asked whether the consumer is
// there. Its answer follows all that was sent before it.
func (d *delivery) each(ctx context.Context, r *reader, handle func(*nats.Msg, *nats.MsgMetadata) error, caughtUp func(unchanged bool) (all bool, err error)) error {
	asking, cancel := context.WithCancel(ctx)
	var asks sync.WaitGroup
	defer asks.Wait()
	defer cancel()
	type answer struct {
		info *jetstream.ConsumerInfo
		err  error
	}
	var answers chan answer // nil while the server is not asked
	again := false          // to be asked once it has answered
	ask := func() {
		if again = answers != nil; again {
			return
		}
		answers = make(chan answer, 1)
		asks.Go(func() {
			var a answer
			a.err = r.ask(asking, func(ctx context.Context) (err error) {
				a.info, err = d.consumer.Info(ctx)
				return err
			})
			answers <- a
		})
	}

	var delivered, owed uint64 // messages
	var old uint64             // those that were there before the consumer
	behind := true             // there may be more than was delivered
	caught := false            // once it was not
	catchUp := func(unchanged bool) (err error) {
		if !caught {
			caught, err = caughtUp(unchanged)
		}
		behind = !caught
		return err
	}
	if d.total() == 0 {
		ask()
	}
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	heard := true // since the last tick
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			switch {
			case heard:
				heard = false
			case owed > delivered:
				return errGap
			default:
				ask()
			}
		case a := <-answers:
			answers = nil
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(a.err, errSilent) && heard:
				// It is only slow.
			case a.err != nil:
				return a.err
			case !a.info.PushBound:
				return errNoSubscriber // nothing would come
			default:
				owed = a.info.Delivered.Consumer
				switch {
				case behind && a.info.NumPending == 0 && owed <= delivered:
					if err := catchUp(false); err != nil {
						return err
					}
				case again:
					ask()
				}
			}
		case msg := <-d.msgs:
			heard = true
			if !strings.HasPrefix(msg.Reply, "$JS.ACK.") {
				if err := d.control(msg); err != nil {
					return err
				}
				r.works()
				if behind && msg.Reply == "" {
					ask() // what was still to come may be gone
				}
				continue
			}
			if ctx.Err() != nil {
				return nil
			}
			meta, err := msg.Metadata()
			if err != nil {
				return err
			}
			delivered++
			if meta.Sequence.Consumer != delivered {
				return errGap
			}
			r.works()
			if err := handle(msg, meta); err != nil {
				return err
			}
			if !meta.Timestamp.After(d.consumer.CachedInfo().Created) {
				old++
			}
			switch behind = true; {
			case meta.NumPending > 0:
			case caught, old == d.total():
				if err := catchUp(true); err != nil {
					return err
				}
			default:
				ask()
			}
		}
	}
}

// control answers what the server says besides messages: that it is alive, or
// whether all before this is handled.
func (d *delivery) control(msg *nats.Msg) error {
	if status := msg.Header.Get("Status"); status != "100" {
		return fmt.Errorf("the server says %s %s", status, msg.Header.Get("Description"))
	}
	if msg.Reply != "" {
		return msg.Respond(nil)
	}
	if stalled := msg.Header.Get("Nats-Consumer-Stalled"); stalled != "" { // it has not heard our answer
		if err := d.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), "$JS.FC.") {
			return err
		}
		return d.nc.Publish(stalled, nil)
	}
	return nil
}

// A reader is one attempt of stay.
type reader struct {
	nc      *nats.Conn
	timeout time.Duration // what a server may take for a call
	works   func()        // to be called after a message or a heartbeat
	waits   func(error)   // to be called when none can come, with the reason
}

// ask makes a call to the server. It returns errSlow if the server takes longer
// for it than the time-out. How long the way there and back is does not count:
// pings find that out, and wait in the same line as the call and its answer. A
// permission that is missing is an error at once.
func (r *reader) ask(ctx context.Context, call func(ctx context.Context) error) error {
	ctx, stop := context.WithTimeoutCause(ctx, silence, errSilent)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	before := r.nc.LastError()
	var clock sync.WaitGroup
	defer clock.Wait()
	defer cancel(nil)
	clock.Go(func() {
		// The server has the call when it answers the first ping, perhaps a moment
		// later, and has answered before it answers the last one, if it was in time.
		if r.nc.FlushWithContext(ctx) != nil {
			return
		}
		for pause, waited := 10*time.Millisecond, time.Duration(0); ; pause *= 2 {
			if err := r.nc.LastError(); err != before && errors.Is(err, nats.ErrPermissionViolation) {
				cancel(err) // the server says no more than that
				return
			}
			if waited >= r.timeout {
				cancel(errSlow)
				return
			}
			pause = min(pause, r.timeout-waited)
			waited += pause
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if r.nc.FlushWithContext(ctx) != nil {
				return
			}
		}
	})
	err := call(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: %w", jetstream.ErrJetStreamNotEnabled, err)
	}
	return err
}

// whileConnected returns a context that ends with errReconnect when the
// connection changes, as answers and messages may be lost then.
func whileConnected(ctx context.Context, status <-chan nats.Status) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-status:
			cancel(errReconnect)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		watch.Wait()
	}
}

// A permanent error ends what would otherwise be tried again.
type permanent struct{ error }

// stay calls attempt again and again until ctx is done, at once after the
// connection changed and else after a pause. The context of an attempt ends with
// errReconnect when the connection changes. It returns an error only if that is
// permanent, or the connection is closed for good.
func stay(ctx context.Context, nc *nats.Conn, what string, attempt func(context.Context, *reader) error) error {
	status := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	pause, timeout := firstPause, firstTimeout
	var since, logged time.Time // of the trouble; zero if there is none
	works := func() {
		if !since.IsZero() {
			reconcile.Logger(ctx).Info("natsadapter: reads again", "from", what, "after", time.Since(since))
		}
		pause, timeout, since = firstPause, firstTimeout, time.Time{}
	}
	waits := func(err error) {
		switch now := time.Now(); {
		case since.IsZero():
			since, logged = now, now
			reconcile.Logger(ctx).Warn("natsadapter: cannot read", "from", what, "err", err)
		case now.Sub(since) > max(time.Minute, 2*logged.Sub(since)):
			logged = now
			reconcile.Logger(ctx).Warn("natsadapter: still cannot read", "from", what, "err", err, "for", now.Sub(since))
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		watched, done := whileConnected(ctx, status)
		err := attempt(watched, &reader{nc, timeout, works, waits})
		if errors.Is(context.Cause(watched), errReconnect) && !errors.As(err, new(permanent)) {
			err = errReconnect
		}
		done()
		never := permanent{}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &never):
			return fmt.Errorf("natsadapter: %s: %w", what, never.error)
		case nc.IsClosed():
			return fmt.Errorf("natsadapter: %s: %w", what, names.Closed(nc))
		}
		trouble(ctx, what, err)
		waits(err)
		for waiting := !nc.IsConnected(); waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-status: // it says what was; this is what is
				waiting = !nc.IsConnected() && !nc.IsClosed()
			}
		}
		if errors.Is(err, errOther) || errors.Is(err, errReconnect) {
			continue
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
			timeout = min(2*timeout, lastTimeout)
		}
		timer.Reset(pause)
		pause = min(2*pause, lastPause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-status:
		}
	}
	return nil
}
