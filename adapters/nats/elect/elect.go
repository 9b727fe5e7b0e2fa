// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/names"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/supervise"
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
// is seen to be another's. What is left of the TTL is for r to return: Elect does not
// end the process if that takes longer, and another one leads then. A leader
// that is stopped in order gives the lease back when r has returned, and another
// one has it at once. It renews until then. If it cannot, the lease is lost as well.
//
// Elect ends only the context of r. A Reconciler that has a Grace lets its runs go on
// for that long after the lease is lost. One in a Group is ended after its feeders, up to
// a second later, and takes items meanwhile. Set its Queue to [Held] of the queue: then
// its runs end with the lease, and it takes nothing after that. Without it, keep both
// times together below a third of the TTL.
//
// After a lease is lost and r has returned, the process is a candidate again,
// and r runs again when it wins. So r has to be a Runner that can run more than
// once, such as a [reconcile.Reconciler] or a RunFunc that makes a
// [supervise.Group] and runs it. Feeders and queue belong into r as well: a
// process that does not lead has no use for them. If r returns by itself, or
// panics, while the lease is held, the lease is given back and the Runner returns
// what r did. An error of r after the lease is lost is logged.
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
// The Runner logs when it leads, loses the lease or cannot reach the server, to the
// [reconcile.Logger] of its context: that of the Group. It returns a
// [reconcile.Terminal] error if an argument is wrong, and an error if the bucket has no
// fitting TTL.
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

func (e *elected) check() error {
	switch {
	case e.kv == nil:
		return errors.New("natsadapter: Elect needs a KeyValue bucket, got nil")
	case !names.Key(e.name):
		return fmt.Errorf("natsadapter: Elect: the lease is named %q, want letters, digits and -/_=, with dots between", e.name)
	case e.runner == nil:
		return fmt.Errorf("natsadapter: Elect: lease %s needs a Runner, got nil", e.name)
	}
	if err := names.Length("$KV." + e.kv.Bucket() + "." + e.name); err != nil {
		return fmt.Errorf("natsadapter: Elect: the name of the lease is too long: %w", err)
	}
	return nil
}

func (e *elected) Run(ctx context.Context) error {
	if err := e.check(); err != nil {
		return reconcile.Terminal(err)
	}
	host, _ := os.Hostname()
	c := &candidate{kv: e.kv, name: e.name, id: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()), logger: reconcile.Logger(ctx)}
	defer c.watch.stopping.Wait()
	defer c.watch.stop()
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

const (
	// shortestTTL is a limit because a leader has to be able to renew in time.
	shortestTTL = time.Second

	// longestPause is the time after which a candidate asks at the latest,
	// however long the TTL is: its watch may be stale.
	longestPause = time.Minute

	// retryPause is the time after which a candidate that could not ask tries again.
	retryPause = 500 * time.Millisecond

	// The server may take longTimeout for a call, and shortTimeout for one that can
	// be done without.
	shortTimeout = time.Second
	longTimeout  = 4 * time.Second
)

// A candidate is a process, in one call of Run.
type candidate struct {
	kv   jetstream.KeyValue
	name string
	id   string // its own: the value of the key while it leads

	logger *slog.Logger

	// revision is that of our entry, if there is one. Unsure says that a call
	// was not answered, so that there may be an entry of ours.
	revision uint64
	unsure   bool
	epoch    uint64    // of the bucket
	anew     time.Time // when it was seen to be another one; zero if it was not

	watch watch
}

// A term is the time in which a process leads.
type term struct {
	ttl    time.Duration
	number uint64
	*held.Term
}

// win waits until the lease is ours. It returns nil if ctx is done first, and an
// error if the bucket is not fit for leases.
func (c *candidate) win(ctx context.Context) (*term, error) {
	var trouble error
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		ttl, err := c.ttl(ctx)
		if err == nil && ttl < shortestTTL {
			return nil, fmt.Errorf("natsadapter: Elect: bucket %s has a TTL of %v, want %v or more: it is how long others wait for a leader that died", c.kv.Bucket(), ttl, shortestTTL)
		}
		pause := retryPause
		if err == nil {
			pause = min(ttl/4, longestPause)
			c.watch.start(c.kv, c.name, ttl)
			begin, epoch := time.Now(), c.epoch
			if left := ttl - begin.Sub(c.anew); left > 0 { // the leader of the last bucket may not know
				timer.Reset(left)
				c.watch.wait(ctx, timer.C)
				continue
			}
			err = c.hold(ctx, ttl)
			if err == nil {
				_, err = c.ttl(ctx) // which reads the epoch
			}
			if err == nil && c.epoch != epoch {
				err = errNewBucket
			}
			if err == nil {
				return &term{ttl: ttl, number: c.epoch + c.revision, Term: held.NewTerm(begin.Add(ttl * 2 / 3))}, nil
			}
		}
		switch {
		case errors.Is(err, reconcile.ErrLeaseLost): // another one leads
			trouble = nil
		case ctx.Err() == nil:
			if trouble == nil {
				c.logger.Warn("natsadapter: cannot ask for a lease", "lease", c.name, "err", err)
			}
			trouble = err
			pause = min(pause, retryPause)
		}
		timer.Reset(pause)
		c.watch.wait(ctx, timer.C)
	}
	return nil, nil
}

// errNewBucket says that it is not known which bucket the revision of our entry is of.
var errNewBucket = errors.New("the bucket was made anew meanwhile")

// ttl returns the TTL of the bucket as it is now: it may be another bucket.
func (c *candidate) ttl(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, longTimeout)
	defer cancel()
	status, err := c.kv.Status(ctx)
	if err != nil {
		return 0, err
	}
	if s, ok := status.(interface{ StreamInfo() *jetstream.StreamInfo }); ok {
		// No stream stores a message each nanosecond, so the sequences of a later stream, with this
		// added, are higher than all fences of those before.
		epoch := uint64(s.StreamInfo().Created.UnixNano())
		if c.epoch != 0 && c.epoch != epoch {
			c.anew = time.Now()
			c.logger.Warn("natsadapter: the bucket of a lease was made anew: none stands for election until the lease of the last bucket is over", "lease", c.name, "for", status.TTL())
		}
		c.epoch = epoch
	}
	return status.TTL(), nil
}

// hold makes the lease ours if it is no one's, and last longer if it is ours. It
// returns ErrLeaseLost if it is another's.
func (c *candidate) hold(ctx context.Context, ttl time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(ttl/4, longTimeout))
	defer cancel()
	return c.write(ctx, func(last uint64) (uint64, error) {
		if last == 0 {
			return c.kv.Create(ctx, c.name, []byte(c.id))
		}
		return c.kv.Update(ctx, c.name, []byte(c.id), last)
	})
}

// write writes our entry anew, over the one with the revision last, 0 for none. If there is
// another one, and it is not ours either, it returns ErrLeaseLost.
func (c *candidate) write(ctx context.Context, write func(last uint64) (uint64, error)) error {
	now, err := write(c.revision)
	if isConflict(err) { // perhaps with an attempt of ours that was not answered
		if c.revision, err = c.own(ctx); err == nil {
			now, err = write(c.revision)
		}
	}
	if err == nil {
		c.revision = now
	}
	c.unsure = err != nil && !errors.Is(err, reconcile.ErrLeaseLost)
	return err
}

func isConflict(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

// own returns the revision of our entry, and ErrLeaseLost if there is none.
func (c *candidate) own(ctx context.Context) (uint64, error) {
	e, err := c.kv.Get(ctx, c.name)
	switch {
	case err != nil && !errors.Is(err, jetstream.ErrKeyNotFound): // which it is if it was deleted
		return c.revision, err
	case err != nil || string(e.Value()) != c.id:
		return 0, reconcile.ErrLeaseLost
	}
	return e.Revision(), nil
}

// lead runs r for a term. It reports whether to stand for election again, or
// what r returned.
func (c *candidate) lead(ctx context.Context, t *term, r reconcile.Runner) (again bool, err error) {
	if t.Over() { // by the time that it took to get here
		c.release()
		return ctx.Err() == nil, nil
	}
	c.logger.Info("natsadapter: leads", "lease", c.name, "term", t.number)
	ended := make(chan error, 1)
	guarded := supervise.Restart(reconcile.NoRetry, r) // against panics; and nil for the error of the lease
	run, end := held.Context(context.WithValue(ctx, fenceKey{}, t.number), t)
	go func() { ended <- guarded.Run(held.With(run, t)) }()
	err = c.keep(t, ended)
	lost := t.Lost().Err() != nil
	end()
	t.End()
	c.release()
	if lost && err != nil { // such as that of a call that was cut short
		c.logger.Error("natsadapter: the Runner returned an error after the lease was lost", "lease", c.name, "err", err)
		err = nil
	}
	return lost && ctx.Err() == nil, err
}

// keep renews the lease until r has ended, also while r only takes its time to
// end. It returns what r did.
func (c *candidate) keep(t *term, ended <-chan error) error {
	patience := t.ttl
	timer := time.NewTimer(t.ttl / 4)
	defer timer.Stop()
	lost := false
	since := time.Now()
	for {
		taken := false
		c.watch.quiet++
		select {
		case err := <-ended:
			return err
		case e, ok := <-c.watch.updates():
			c.watch.heard(ok)
			if taken = c.isTaken(e); !taken {
				continue
			}
		case <-timer.C:
		}
		if lost {
			c.logger.Error("natsadapter: the lease is lost and what ran under it has not ended", "lease", c.name, "for", time.Since(since))
			timer.Reset(patience)
			patience *= 2
			continue
		}
		begin, err := time.Now(), reconcile.ErrLeaseLost
		if !taken {
			c.watch.start(c.kv, c.name, t.ttl)
			err = c.hold(context.Background(), t.ttl)
		}
		switch {
		case err == nil && t.Extend(begin.Add(t.ttl*2/3)):
			timer.Reset(time.Until(begin.Add(t.ttl / 4)))
		case errors.Is(err, reconcile.ErrLeaseLost) || t.Over():
			t.End()
			c.watch.stop()
			lost, since = true, time.Now()
			timer.Reset(t.ttl / 3)
			c.logger.Warn("natsadapter: lost the lease", "lease", c.name, "term", t.number, "err", err)
		default:
			timer.Reset(min(t.ttl/20, retryPause))
		}
	}
}

// isTaken reports whether an update says that the lease is not ours.
func (c *candidate) isTaken(e jetstream.KeyValueEntry) bool {
	return e != nil && e.Revision() > c.revision && (e.Operation() != jetstream.KeyValuePut || string(e.Value()) != c.id)
}

// release gives the lease back, if it may be ours. Should that fail, it ends by
// itself, or is claimed by us again.
func (c *candidate) release() {
	if c.revision == 0 && !c.unsure {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shortTimeout)
	defer cancel()
	c.write(ctx, func(last uint64) (uint64, error) {
		if last == 0 {
			return 0, jetstream.ErrKeyExists // find out
		}
		return 0, c.kv.Delete(ctx, c.name, jetstream.LastRevision(last))
	})
	c.revision = 0
}

type fenceKey struct{}

// Fence returns a number that is higher in each term of [Elect], or 0 if ctx is not
// of one. It is the revision of the lease's entry, plus the time at which its bucket
// was created, in nanoseconds since 1970: so it grows on when a bucket was deleted
// and is made anew, as long as the clock of the servers is not put back. A server that
// loses its last messages in a power failure may give a number again. It fits an int64,
// and not the number of a JSON reader that takes 53 bits. Hand it on with writes to what
// can refuse those with a smaller number than it has seen: a process that was stopped for
// longer than its lease does not know, at the moment it goes on, that another leads.
func Fence(ctx context.Context) uint64 {
	n, _ := ctx.Value(fenceKey{}).(uint64)
	return n
}
