// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/supervise"
)

// Elect returns a Candidate, a Runner that runs r in one process of many: the one that leads.
// All candidates for a lease have the same Config.Name. To lead is to have the one item of a
// [Queue] in flight, so the lease, its deadline and [Fence] are those of a run, and [Guard]
// works in a term.
//
// A leader that dies is followed after Config.Lease and a quarter of it at most. If a leader
// cannot renew its lease, the context of r ends with [reconcile.ErrLeaseLost] as its cause, a
// quarter of Config.Lease before another process may lead. When r has returned, the process is
// a candidate again; Elect logs the error of r. R has this quarter to return. If it takes
// longer, Elect logs that again and again, and does not end the process; another process leads
// then. If ctx is done, the lease is renewed until r has returned, and then another process
// leads at once.
//
// R runs once in each term, so it has to be a Runner that can run more than once: see
// [EachTerm] for a Group. If r returns by itself, or panics, while the lease is held, the lease
// is given back, and Run returns the error of r.
//
// Elect ends only the context of r. In it, a Reconciler that has a Grace lets its runs
// continue, and one in a Group takes items for up to a second. Its Queue has to be [Held]. A
// keep.Set and Lanes that make their queues need no Held.
func Elect(cfg Config, r reconcile.Runner) *Candidate { return &Candidate{cfg: cfg, runner: r} }

// A Candidate is a [reconcile.Runner] that [Elect] returns.
type Candidate struct {
	cfg    Config
	runner reconcile.Runner
	term   atomic.Pointer[holding[string]] // nil while another process leads
}

// IsLeader reports whether r runs, and the lease is ours. It may be called from any goroutine.
func (c *Candidate) IsLeader() bool {
	t := c.term.Load()
	return t != nil && !t.Over()
}

// Unwrap returns r, so that a Group knows whether it is a Reconciler.
func (c *Candidate) Unwrap() reconcile.Runner { return c.runner }

// Run is a candidate until ctx is done, and runs r in each term. While the database cannot be
// reached, or has no tables yet, it logs that and waits. It returns a [reconcile.Terminal] error if
// the Config or the Runner is wrong.
func (c *Candidate) Run(ctx context.Context) error {
	switch c.runner.(type) {
	case nil:
		return reconcile.Terminal(errors.New("postgres: Elect needs a Runner, got nil"))
	case *supervise.Group:
		return reconcile.Terminal(errors.New("postgres: Elect: a Group runs once, and not again in the next term; EachTerm makes one for each"))
	}
	cfg, err := c.cfg.check()
	if err != nil {
		return err
	}
	cfg.Name, cfg.Ahead = "elect:"+cfg.Name, 0 // No queue of a user has such a name.
	q, err := openLease(ctx, cfg)
	if err != nil || q == nil {
		return err
	}
	q.maxHold = 0 // A leader that dies has a successor at once, however often.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Lease/2)
		defer cancel()
		if err := q.Close(ctx); err != nil {
			q.cfg.Logger.Warn("postgres: the lease of the leader could not be given back and ends by itself", "err", err)
		}
	}()
	for ctx.Err() == nil {
		q.Offer(leader)
		waiting, cancel := context.WithTimeout(ctx, 10*cfg.Poll) // in case the row is deleted
		_, err := q.Dequeue(waiting)
		cancel()
		if err != nil {
			continue
		}
		if again, err := c.lead(ctx, q); !again {
			return err
		}
	}
	return nil
}

// openLease waits until the queue of a lease can be used. It returns nil if ctx is done first.
func openLease(ctx context.Context, cfg Config) (*Queue[string], error) {
	encode, decode := codecOf[string]()
	for failures := 1; ; failures++ {
		try, cancel := context.WithTimeout(ctx, dialTime)
		q, err := newQueue(try, cfg, encode, decode)
		cancel()
		if err == nil || errors.Is(err, reconcile.ErrTerminal) {
			return q, err
		}
		pause, _ := retryListen(err, failures)
		if ctx.Err() == nil && failures&(failures-1) == 0 {
			cmp.Or(cfg.Logger, reconcile.Logger(ctx)).Warn("postgres: cannot be a candidate yet", "failures", failures, "next", pause, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(pause):
		}
	}
}

// leader is the item of the queue.
const leader = "leader"

// lead runs the Runner for a term. It reports whether to stand again, or what the Runner
// returned.
func (c *Candidate) lead(ctx context.Context, q *Queue[string]) (again bool, err error) {
	q.mu.Lock()
	term := q.held[leader]
	q.mu.Unlock()
	q.cfg.Logger.Info("postgres: leads", "term", term.fence)
	c.term.Store(term)
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { warnLate(q, term, ended) })
	// Restart is for panics, and returns nil for the error of the context.
	err = supervise.Restart(reconcile.NoRetry, c.runner).Run(held.With(q.Lease(ctx, leader), term))
	close(ended)
	watch.Wait()
	c.term.Store(nil)
	lost := term.Over()
	q.Requeue(leader, reconcile.RequeueOptions{})
	if lost && err != nil { // such as that of a call that was cut short
		q.cfg.Logger.Error("postgres: the Runner returned an error after its lease was lost", "err", err)
		err = nil
	}
	return lost && ctx.Err() == nil, err
}

// warnLate logs, more and more rarely, that a Runner has not returned after its lease.
func warnLate(q *Queue[string], term held.Lease, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-term.Lost().Done():
	}
	lost := time.Now()
	for pause := q.cfg.Lease / 4; ; pause *= 2 {
		select {
		case <-ended:
			return
		case <-time.After(pause):
			q.cfg.Logger.Error("postgres: the lease is lost, and the Runner has not returned; another process may lead", "for", time.Since(lost))
		}
	}
}

// EachTerm returns a Runner for [Elect] that runs a new Group in each term, with the members
// that fill adds.
func EachTerm(fill func(term *supervise.Group)) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		if fill == nil {
			return reconcile.Terminal(errors.New("postgres: EachTerm needs a function, got nil"))
		}
		var term supervise.Group
		fill(&term)
		return term.Run(ctx)
	})
}

// Held returns q as a queue whose runs end at once when the lease of the leader is lost, also
// those of a Reconciler that has a Grace, and from which nothing is taken after that. An
// error of such a run is not a failure. It is for the Queue of a Reconciler inside [Elect];
// elsewhere it changes nothing. Held panics if q is nil.
func Held[T comparable](q reconcile.Dequeuer[T]) reconcile.Dequeuer[T] {
	if q == nil {
		panic("postgres: Held needs a queue, got nil")
	}
	return held.Queue(q)
}
