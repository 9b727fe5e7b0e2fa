// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/reconkernel/reconcile"
)

// Elect returns a Runner that runs r on one of many processes: the one that
// holds the lease kept under name in a KeyValue bucket. All processes have to
// name the same bucket and key, and each lease a key of its own.
//
// The TTL of the bucket is how long the others wait for a leader that is gone
// without a word; it has to be 1 second or more, and not to be changed while it
// is used. The leader renews four times within it. If it cannot renew, because
// the server or the connection is gone, the context of r ends with
// [reconcile.ErrLeaseLost] as its cause when two thirds of the TTL are over
// since it last began to renew, by its own clock; it ends at once if the lease
// is seen to be another's. What is left of the TTL is for r to return. A leader
// that is stopped in order gives the lease back when r has returned, and another
// one has it at once.
//
// After a lease is lost and r has returned, the process is a candidate again,
// and r runs again when it wins. So r has to be a Runner that can run more than
// once, such as a [reconcile.Reconciler] or a RunFunc that makes a
// [reconcile.Group] and runs it. Feeders and queue belong into r as well: a
// process that does not lead has no use for them. If r returns by itself, or
// panics, the lease is given back and the Runner returns what r did.
//
// In a Group, r has its place: a Reconciler is ended after what feeds it. It is
// not known as one within a RunFunc.
//
// The context of r says that it is over as soon as the time is up, also if this
// process was stopped meanwhile and its timers are late: Err looks at the clock.
// A context made from it does not. So a process that was frozen in the middle of
// a step may end that step when it goes on; [Fence] is a number, higher in each
// term, for writes to what can refuse such a late one.
//
// The Runner logs to [slog.Default] when it leads, loses the lease or cannot
// reach the server. It returns an error if an argument is wrong or the bucket
// has no fitting TTL.
func Elect(kv jetstream.KeyValue, name string, r reconcile.Runner) reconcile.Runner {
	return &elected{kv: kv, name: name, runner: r}
}

// An elected runs a Runner under a lease.
type elected struct {
	kv     jetstream.KeyValue
	name   string
	runner reconcile.Runner
}

// Unwrap lets a Group know what runs in here.
func (e *elected) Unwrap() reconcile.Runner { return e.runner }

func (e *elected) Run(ctx context.Context) error {
	switch {
	case e.kv == nil:
		return errors.New("natsadapter: Elect needs a KeyValue bucket, got nil")
	case !leaseName.MatchString(e.name) || !validTokens(e.name):
		return fmt.Errorf("natsadapter: Elect: the lease is named %q, want letters, digits and -/_=, with dots between", e.name)
	case e.runner == nil:
		return fmt.Errorf("natsadapter: Elect: lease %s needs a Runner, got nil", e.name)
	}
	host, _ := os.Hostname()
	c := &candidate{kv: e.kv, name: e.name, id: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text())}
	defer c.watches.Wait()
	defer c.release()
	for {
		t, err := c.win(ctx)
		if err != nil || t == nil {
			return err
		}
		again, err := c.lead(ctx, t, e.runner)
		if !again {
			return err
		}
	}
}

var leaseName = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

const (
	// shortestTTL is a limit because a leader has to be able to renew in time.
	shortestTTL = time.Second

	// longestPause is the time after which a candidate asks at the latest,
	// however long the TTL is: its watch may be stale.
	longestPause = time.Minute
)

// A candidate is a process, in one call of Run.
type candidate struct {
	kv   jetstream.KeyValue
	name string
	id   string // its own: the value of the key while it leads

	// revision is that of our entry, if there is one. Unsure says that a call
	// was not answered, so that there may be an entry of ours.
	revision uint64
	unsure   bool
	epoch    uint64 // of the bucket

	watches sync.WaitGroup // that are being stopped
}

// A term is the time in which a process leads.
type term struct {
	ttl    time.Duration
	number uint64
	*lease
}

// win waits until the lease is ours. It returns nil if ctx is done first, and an
// error if the bucket is not fit for leases.
func (c *candidate) win(ctx context.Context) (*term, error) {
	watch := watch{stopping: &c.watches}
	defer watch.stop()
	var trouble error
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		ttl, err := c.ttl(ctx)
		if p := (permanent{}); errors.As(err, &p) {
			return nil, p.error
		}
		pause := lastPause
		if err == nil {
			pause = min(ttl/4, longestPause)
			watch.start(ctx, c.kv, c.name)
			begin := time.Now()
			err = c.hold(ctx, ttl)
			if err == nil {
				number := c.epoch + c.revision
				return &term{ttl: ttl, number: number, lease: newLease(ctx, begin.Add(ttl*2/3), number)}, nil
			}
		}
		switch {
		case errors.Is(err, reconcile.ErrLeaseLost): // another one leads
			trouble = nil
		case ctx.Err() == nil:
			if trouble == nil {
				slog.Warn("natsadapter: cannot ask for a lease", "lease", c.name, "err", err)
			}
			trouble = err
			pause = min(pause, lastPause)
		}
		timer.Reset(pause)
		watch.wait(ctx, timer.C)
	}
	return nil, nil
}

// ttl returns the TTL of the bucket as it is now: it may be another bucket.
func (c *candidate) ttl(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, lastTimeout)
	defer cancel()
	status, err := c.kv.Status(ctx)
	if err != nil {
		return 0, err
	}
	if ttl := status.TTL(); ttl < shortestTTL {
		return 0, permanent{fmt.Errorf("natsadapter: Elect: bucket %s has a TTL of %v, want %v or more: it is how long others wait for a leader that is gone", status.Bucket(), ttl, shortestTTL)}
	}
	if s, ok := status.(interface{ StreamInfo() *jetstream.StreamInfo }); ok {
		c.epoch = epoch(s.StreamInfo().Created)
	}
	return status.TTL(), nil
}

// hold makes the lease ours if it is no one's, and last longer if it is ours. It
// returns ErrLeaseLost if it is another's.
func (c *candidate) hold(ctx context.Context, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(ttl/4, lastTimeout))
	defer cancel()
	return c.write(ctx, func(last uint64) (uint64, error) {
		if last == 0 {
			return c.kv.Create(ctx, c.name, []byte(c.id))
		}
		return c.kv.Update(ctx, c.name, []byte(c.id), last)
	})
}

func (c *candidate) write(ctx context.Context, write func(last uint64) (uint64, error)) (err error) {
	c.revision, err = rewrite(c.revision, write, func() (uint64, error) { return c.own(ctx) })
	c.unsure = err != nil && !errors.Is(err, reconcile.ErrLeaseLost)
	return err
}

// own returns the revision of the entry if it is ours, else 0.
func (c *candidate) own(ctx context.Context) (uint64, error) {
	e, err := c.kv.Get(ctx, c.name)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound): // or deleted
		return 0, nil
	case err != nil:
		return 0, err
	case string(e.Value()) != c.id:
		return 0, nil
	}
	return e.Revision(), nil
}

// lead runs r for a term. It reports whether to stand for election again, or
// what r returned.
func (c *candidate) lead(ctx context.Context, t *term, r reconcile.Runner) (again bool, err error) {
	if t.over() { // by the time that it took to get here
		c.release()
		return ctx.Err() == nil, nil
	}
	slog.Info("natsadapter: leads", "lease", c.name, "term", t.number)
	ended := make(chan error, 1)
	guarded := reconcile.Restart(reconcile.NoRetry, r) // against panics
	go func() { ended <- guarded.Run(t.lease) }()
	err = c.keep(t, ended)
	lost := errors.Is(context.Cause(t.lease), reconcile.ErrLeaseLost)
	t.end(errTermOver)
	c.release()
	switch {
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return false, nil
	case !lost:
		return false, err
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, reconcile.ErrLeaseLost):
		return ctx.Err() == nil, nil
	}
	return false, err
}

var errTermOver = errors.New("natsadapter: the term is over")

// keep renews the lease until r has ended, also while r only takes its time to
// end. It returns what r did.
func (c *candidate) keep(t *term, ended <-chan error) error {
	patience := t.ttl
	timer := time.NewTimer(t.ttl / 4)
	defer timer.Stop()
	lost := false
	since := time.Now()
	for {
		select {
		case err := <-ended:
			return err
		case <-timer.C:
		}
		if lost {
			slog.Error("natsadapter: the lease is lost and what ran under it has not ended", "lease", c.name, "for", time.Since(since))
			timer.Reset(patience)
			patience *= 2
			continue
		}
		begin := time.Now()
		err := c.hold(context.Background(), t.ttl)
		switch {
		case err == nil && t.extend(begin.Add(t.ttl*2/3)):
			timer.Reset(time.Until(begin.Add(t.ttl / 4)))
		case errors.Is(err, reconcile.ErrLeaseLost) || t.over():
			t.end(reconcile.ErrLeaseLost)
			lost, since = true, time.Now()
			timer.Reset(t.ttl / 3)
			slog.Warn("natsadapter: lost the lease", "lease", c.name, "term", t.number, "err", err)
		default:
			timer.Reset(min(t.ttl/20, lastPause))
		}
	}
}

// release gives the lease back, if it may be ours. Should that fail, it ends by
// itself, or is claimed by us again.
func (c *candidate) release() {
	if c.revision == 0 && !c.unsure {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstTimeout)
	defer cancel()
	c.write(ctx, func(last uint64) (uint64, error) {
		if last == 0 {
			return 0, errConflict // find out
		}
		return 0, c.kv.Delete(ctx, c.name, jetstream.LastRevision(last))
	})
	c.revision = 0
}

// A lease is the context of what runs under it. It ends when the time is up,
// unless it is extended before.
type lease struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu       sync.Mutex // guards deadline
	deadline time.Time
}

func newLease(ctx context.Context, deadline time.Time, number uint64) *lease {
	l := &lease{deadline: deadline}
	l.Context, l.cancel = context.WithCancelCause(withFence(ctx, number))
	l.mu.Lock() // the timer may fire at once
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(time.Until(deadline), func() { l.over() })
	return l
}

// Err returns an error as soon as the time is up. It does not wait for a timer,
// which is late in a process that was stopped.
func (l *lease) Err() error {
	l.over()
	return l.Context.Err()
}

// over ends the lease if its time is up, and reports whether it has ended. The
// time is up by either clock, as one of them stands still while a machine sleeps.
func (l *lease) over() bool {
	now := time.Now()
	l.mu.Lock()
	up := !now.Before(l.deadline) || !now.Round(0).Before(l.deadline.Round(0))
	l.mu.Unlock()
	if up {
		l.end(reconcile.ErrLeaseLost)
	}
	return l.Context.Err() != nil && errors.Is(context.Cause(l.Context), reconcile.ErrLeaseLost)
}

// extend reports whether the lease had not ended before.
func (l *lease) extend(deadline time.Time) bool {
	if l.over() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = deadline
	l.timer.Reset(time.Until(deadline))
	return true
}

func (l *lease) end(cause error) {
	l.cancel(cause)
	l.timer.Stop()
}

// rewrite writes the entry of a lease anew, over the one of ours with the number
// last, 0 for none, and returns its number. If there is another than last, own is
// asked whether it is ours as well, by an attempt that was not answered. If not,
// the error is ErrLeaseLost.
func rewrite(last uint64, write func(last uint64) (uint64, error), own func() (uint64, error)) (uint64, error) {
	for again := false; ; again = true {
		now, err := write(last)
		switch {
		case err == nil:
			return now, nil
		case again, !errors.Is(err, errConflict) && !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch):
			return last, err
		}
		if now, err = own(); err != nil {
			return last, err
		}
		if last = now; last == 0 {
			return 0, reconcile.ErrLeaseLost
		}
	}
}

// A watch tells a candidate that the key was deleted. It may be stale or fail:
// whoever waits for it has a timer as well.
type watch struct {
	watcher jetstream.KeyWatcher
	cancel  context.CancelFunc
	quiet   int // waits in a row without a word, though a leader renews

	stopping *sync.WaitGroup
}

func (w *watch) start(ctx context.Context, kv jetstream.KeyValue, name string) {
	if w.watcher != nil && w.quiet < 3 {
		return
	}
	w.stop()
	ctx, w.cancel = context.WithCancel(ctx) // for the watch as long as it lasts
	slow := time.AfterFunc(firstTimeout, w.cancel)
	watcher, err := kv.Watch(ctx, name, jetstream.UpdatesOnly())
	if slow.Stop(); err != nil {
		w.cancel()
		return
	}
	w.watcher, w.quiet = watcher, 0
}

// stop does not wait for the server, as Stop does: who has won a lease has it for
// a short time only.
func (w *watch) stop() {
	if w.watcher == nil {
		return
	}
	watcher, cancel := w.watcher, w.cancel
	w.watcher = nil
	w.stopping.Go(func() {
		defer cancel()
		defer time.AfterFunc(firstTimeout, cancel).Stop()
		watcher.Stop()
	})
}

// wait returns when the key was deleted, the timer fires or ctx is done.
func (w *watch) wait(ctx context.Context, timer <-chan time.Time) {
	w.quiet++
	var updates <-chan jetstream.KeyValueEntry
	if w.watcher != nil {
		updates = w.watcher.Updates()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer:
			return
		case e, ok := <-updates:
			if !ok {
				updates = nil
				w.stop()
				continue
			}
			w.quiet = 0
			if e != nil && e.Operation() != jetstream.KeyValuePut {
				return
			}
		}
	}
}

type fenceKey struct{}

// Fence returns a number that grows with every run of an item, on whatever
// machine, or with every term of [Elect]; or 0 if ctx is of neither. It is the
// sequence of a message, plus the time at which its stream was created, in
// nanoseconds since 1970: so it grows on when a stream was deleted and is made
// anew, as long as the clock of the servers is not put back. It fits an int64, and
// not the number of a JSON reader that takes 53 bits. Hand it on with writes to
// what can refuse those with a smaller number than it has seen: a process that
// was stopped for longer than its lease does not know, at the moment it goes on,
// that another runs its item.
func Fence(ctx context.Context) uint64 {
	n, _ := ctx.Value(fenceKey{}).(uint64)
	return n
}

// epoch returns what to add to the sequences of a stream. No stream stores a
// message each nanosecond, so that of a later one is higher than all fences of
// those before.
func epoch(created time.Time) uint64 { return uint64(created.UnixNano()) }

func withFence(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, fenceKey{}, n)
}
