// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// How a stream is read. A server that is alive says so each heartbeat; after
// two without one it is taken for lost.
const (
	heartbeat = 500 * time.Millisecond
	batchSize = 64

	// forgotten is how long the server keeps a consumer that nobody asks.
	forgotten = 30 * time.Second

	// A call may take this long at first, and longer after each failure, so
	// that a slow server is not asked in vain for ever.
	firstTimeout = time.Second
	lastTimeout  = 4 * time.Second

	// The pause after a failure. It ends at once when the connection is back.
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

var (
	errReconnect = errors.New("the connection changed")
	errGap       = errors.New("messages are missing")
	errOther     = errors.New("the stream may be another one, or have lost messages")
)

// A tail reads the last message of each subject of a stream, and then all that
// come, until its context is done. It starts again by itself when the
// connection, the server, the consumer or the stream is lost: after the last
// message that it has seen, if it is sure that the stream has lost nothing since,
// else from the beginning. It is sure if that message is still there, or if the
// server has not ended since it was read.
//
// It pulls from a consumer of its own that the server may forget at any time.
// What matters is kept here: the sequence of the last message.
type tail struct {
	js      jetstream.JetStream
	stream  string
	what    string   // for errors and logs
	filters []string // subjects; at least one
	handle  func(jetstream.Msg, *jetstream.MsgMetadata)

	created  time.Time // of the stream that last belongs to
	last     uint64    // the sequence of the last message seen; 0 asks for a new start
	lastTime time.Time // of that message

	consumer jetstream.Consumer // that reads, or did before the attempt
	sure     bool               // that the stream had last when consumer was made
}

// run returns nil when ctx is done, and an error when the connection is closed
// for good.
func (t *tail) run(ctx context.Context) error {
	return stay(ctx, t.js.Conn(), t.what, func(r *reader) error {
		err := t.open(ctx, r)
		if errors.Is(err, errOther) {
			t.last = 0
		}
		if err != nil {
			return err
		}
		r.works()
		err = t.read(ctx, r)
		if errors.Is(err, errOther) {
			t.last = 0
		}
		if ctx.Err() != nil {
			t.close(t.consumer)
		}
		return err
	})
}

// open makes a consumer that begins where this tail has to go on.
func (t *tail) open(ctx context.Context, r *reader) error {
	ctx, done := r.call(ctx)
	defer done()
	consumer, err := t.create(ctx)
	if err != nil {
		return because(ctx, err)
	}
	// Only now is it certain which stream the consumer reads at most: a stream
	// that was replaced after this has taken the consumer with it.
	stream, err := t.js.Stream(ctx, t.stream)
	if err != nil {
		return because(ctx, err)
	}
	info := stream.CachedInfo()
	switch {
	case info.Config.Mirror != nil:
		return fmt.Errorf("it is a mirror of stream %s, want that one", info.Config.Mirror.Name)
	case t.last == 0:
		t.created, t.sure, t.consumer = info.Created, true, consumer
		return nil
	case !info.Created.Equal(t.created) || info.State.LastSeq < t.last:
		return errOther
	}
	if t.sure {
		// The one server that has the stream keeps its consumers in memory.
		_, err = t.consumer.Info(ctx)
		if errors.Is(err, context.DeadlineExceeded) && r.timeout < lastTimeout {
			return because(ctx, err) // ask again, with more patience
		}
		t.sure = err == nil && info.Config.Replicas == 1
	}
	t.consumer = consumer
	if !t.sure && consumer.CachedInfo().NumPending == 0 {
		return errOther // the last one is gone
	}
	return nil
}

// create makes a consumer that begins where this tail has to go on.
func (t *tail) create(ctx context.Context) (jetstream.Consumer, error) {
	config := jetstream.ConsumerConfig{
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
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
	consumer, err := t.js.CreateConsumer(ctx, t.stream, config)
	if api := (*jetstream.APIError)(nil); len(t.filters) > 1 && errors.As(err, &api) && api.ErrorCode == noFilter {
		return nil, fmt.Errorf("the server knows one filter at most, want version 2.10 or later: %w", err)
	}
	return consumer, err
}

// noFilter is the error of a server that saw none of several filters.
const noFilter jetstream.ErrorCode = 10094

func (t *tail) close(consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), firstTimeout)
	defer cancel()
	if t.js.Conn().IsConnected() {
		t.js.DeleteConsumer(ctx, t.stream, consumer.CachedInfo().Name) // else the server forgets it
	}
}

// read handles messages until something is wrong or ctx is done.
func (t *tail) read(ctx context.Context, r *reader) error {
	var delivered uint64
	return r.fetch(ctx, t.consumer, batchSize, func(msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		delivered++
		if meta.Sequence.Consumer != delivered {
			return errGap
		}
		seen := meta.Sequence.Stream == t.last && meta.Timestamp.Equal(t.lastTime)
		if meta.Sequence.Stream == t.last && !seen || !seen && !t.sure {
			return errOther // the server may have lost what we saw, and used its number again
		}
		t.sure = true
		if seen {
			return nil
		}
		t.handle(msg, meta)
		t.last, t.lastTime = meta.Sequence.Stream, meta.Timestamp
		return nil
	})
}

// errEnd ends a list.
var errEnd = errors.New("all is listed")

// list calls handle for the last message of each subject, and returns nil if it
// has seen them all. A subject that is written meanwhile moves to the end, so
// the list ends where nothing follows, and not after as many as there were.
func (t *tail) list(ctx context.Context) error {
	nc := t.js.Conn()
	status := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	consumer, err := t.create(ctx)
	if err != nil {
		return fmt.Errorf("natsadapter: %s: %w", t.what, err)
	}
	defer t.close(consumer)
	if consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	r := &reader{status: status}
	var delivered uint64
	for {
		patience, cancel := context.WithTimeout(ctx, lastTimeout)
		err := r.fetchOnce(patience, consumer, batchSize, func(msg jetstream.Msg) error {
			meta, err := msg.Metadata()
			if err != nil {
				return err
			}
			delivered++
			if meta.Sequence.Consumer != delivered {
				return errGap
			}
			t.handle(msg, meta)
			if meta.NumPending == 0 {
				return errEnd
			}
			return nil
		})
		if err == nil && patience.Err() != nil && ctx.Err() == nil {
			// What followed when the last message was sent may be gone.
			var info *jetstream.ConsumerInfo
			if info, err = consumer.Info(ctx); err == nil && info.NumPending == 0 && info.Delivered.Consumer == delivered {
				err = errEnd
			}
		}
		cancel()
		switch {
		case err == errEnd:
			return nil
		case err == nil:
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("natsadapter: %s: %w", t.what, err)
		}
	}
}

// A reader is one attempt of stay.
type reader struct {
	status  <-chan nats.Status
	timeout time.Duration // for a call that opens something
	works   func()        // to be told that the attempt is a good one
}

// call returns a context for a call to the server. It ends when the connection
// changes, as the answer may be lost then.
func (r *reader) call(ctx context.Context) (_ context.Context, done func()) {
	ctx, unwatch := r.watch(ctx)
	ctx, stop := context.WithTimeout(ctx, r.timeout)
	return ctx, func() {
		stop()
		unwatch()
	}
}

// watch returns a context that ends when the connection changes.
func (r *reader) watch(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-r.status:
			cancel(errReconnect)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		watch.Wait()
	}
}

// because returns errReconnect if that is why a call failed.
func because(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errReconnect) {
		return errReconnect
	}
	return err
}

// A permanent error ends what would otherwise be tried again.
type permanent struct{ error }

// stay calls attempt again and again until ctx is done, at once after the
// connection changed and else after a pause. It returns an error only if that is
// permanent, or the connection is closed for good.
func stay(ctx context.Context, nc *nats.Conn, what string, attempt func(*reader) error) error {
	status := nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	pause, timeout := firstPause, firstTimeout
	var since, logged time.Time // of the trouble; zero if there is none
	works := func() {
		if !since.IsZero() {
			slog.Info("natsadapter: reads again", "from", what, "after", time.Since(since))
		}
		pause, timeout, since = firstPause, firstTimeout, time.Time{}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		err := attempt(&reader{status, timeout, works})
		never := permanent{}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &never):
			return fmt.Errorf("natsadapter: %s: %w", what, never.error)
		case nc.IsClosed():
			return fmt.Errorf("natsadapter: %s: %w", what, nats.ErrConnectionClosed)
		}
		switch now := time.Now(); {
		case since.IsZero():
			since, logged = now, now
			slog.Warn("natsadapter: cannot read", "from", what, "err", err)
		case now.Sub(since) > max(time.Minute, 2*logged.Sub(since)):
			logged = now
			slog.Warn("natsadapter: still cannot read", "from", what, "err", err, "for", now.Sub(since))
		}
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
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
				waiting = false
			case <-status:
				waiting = false
			}
		}
	}
	return nil
}

// fetch hands the messages of a consumer to handle, one by one, until handle
// returns an error, something is wrong, or ctx is done; it then returns nil. It is
// for a consumer that wants no acknowledgements: what was fetched and not handled
// is dropped.
func (r *reader) fetch(ctx context.Context, consumer jetstream.Consumer, size int, handle func(jetstream.Msg) error) error {
	for ctx.Err() == nil {
		if err := r.fetchOnce(ctx, consumer, size, handle); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) fetchOnce(ctx context.Context, consumer jetstream.Consumer, size int, handle func(jetstream.Msg) error) error {
	// Without the deadline of ctx, which the fetch would take for its own.
	fetching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	batch, err := consumer.Fetch(size, jetstream.FetchContext(fetching), jetstream.FetchHeartbeat(heartbeat))
	if err != nil {
		return err
	}
	messages := batch.Messages()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.status:
			return errReconnect
		case msg, more := <-messages:
			switch {
			case ctx.Err() != nil:
				return nil
			case !more:
				return batch.Error()
			}
			if err := handle(msg); err != nil {
				return err
			}
		}
	}
}
