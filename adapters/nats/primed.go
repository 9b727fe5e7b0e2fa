// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
)

// A Primed tells when feeders have enqueued all that was there, for
// [supervise.After]: what starts then finds whole caches. The zero Primed knows
// no feeders; [Prime] adds them.
//
//	var primed natsadapter.Primed
//	group.Add("sites", reconcile.Feed(q, natsadapter.Prime(&primed, natsadapter.KeyValue(js, "sites", natsadapter.EntryKey))))
//	group.Add("runs", supervise.After(primed.Wait, reconciler))
//
// Its methods may be called from any goroutine.
type Primed struct {
	mu      sync.Mutex // guards the fields below, and those of the feeders
	feeders []*priming
	changed chan struct{} // closed when a feeder changes; nil while no one waits
}

// A priming is one feeder of a Primed.
type priming struct {
	primed  *Primed
	running bool
	fed     bool
	err     error     // the last one
	never   bool      // err will stay
	none    time.Time // since when no server with JetStream answers; zero if one does
}

// Prime adds a feeder to those that p waits for, and returns the feeder to run in
// its place, once at a time. It may be that of [KeyValue], [Objects] or
// [Secondaries].Feed, or one that wraps it and hands on the context. Those of
// [Consumer] and [Subject] then return an error, as there is no such moment.
func Prime[T comparable](p *Primed, f reconcile.Feeder[T]) reconcile.Feeder[T] {
	one := &priming{primed: p}
	p.mu.Lock()
	p.feeders = append(p.feeders, one)
	p.mu.Unlock()
	return func(ctx context.Context, q reconcile.Enqueuer[T]) error {
		one.set(func() { one.running, one.fed, one.err, one.never, one.none = true, false, nil, false, time.Time{} })
		err := f(context.WithValue(ctx, primingKey{}, one), q)
		one.set(func() { one.running, one.fed, one.err, one.never = false, false, err, err != nil })
		return err
	}
}

// Wait blocks until each of the feeders runs and has passed all that was there
// when it began on to its queue. It returns an error at once when one of them
// ended with that error, when its account has no JetStream, or when it lacks a
// permission; and after ten seconds in which no server with JetStream answered, as
// one that restarts does not either. The feeder itself tries again. When ctx is done first, the error
// wraps its cause and says what is missing.
func (p *Primed) Wait(ctx context.Context) error {
	for {
		changed, why, err := p.state()
		switch {
		case err != nil:
			return err
		case why == nil:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("natsadapter: not all items were enqueued, because %w: %w", why, context.Cause(ctx))
		}
	}
}

// state returns why it is not primed, and whether it never will be.
func (p *Primed) state() (changed <-chan struct{}, why, never error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.feeders {
		switch {
		case f.never:
			return nil, nil, f.err
		case f.fed:
		case !f.running:
			why = errors.New("a feeder does not run")
		case f.err != nil:
			why = f.err
		default:
			why = errors.New("a feeder is at it")
		}
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed, why, nil
}

func (f *priming) set(change func()) {
	f.primed.mu.Lock()
	defer f.primed.mu.Unlock()
	change()
	if f.primed.changed != nil {
		close(f.primed.changed)
		f.primed.changed = nil
	}
}

// restarts is how long a restart of the servers with JetStream may take: meanwhile a
// server without says that there is none.
const restarts = 10 * time.Second

type primingKey struct{}

// isPrimed reports whether somebody waits for the feeder of ctx.
func isPrimed(ctx context.Context) bool { return ctx.Value(primingKey{}) != nil }

// fed notes that the feeder of ctx has passed on all that was there.
func fed(ctx context.Context) {
	if f, ok := ctx.Value(primingKey{}).(*priming); ok {
		f.set(func() { f.fed, f.err, f.never, f.none = true, nil, false, time.Time{} })
	}
}

// trouble notes why the feeder of ctx cannot read for now.
func trouble(ctx context.Context, what string, err error) {
	if f, ok := ctx.Value(primingKey{}).(*priming); ok {
		none := errors.Is(err, jetstream.ErrJetStreamNotEnabled)
		never := errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) ||
			errors.Is(err, nats.ErrPermissionViolation)
		f.set(func() {
			switch {
			case !none:
				f.none = time.Time{}
			case f.none.IsZero():
				f.none = time.Now()
			default:
				never = time.Since(f.none) >= restarts
			}
			f.err, f.never = fmt.Errorf("natsadapter: %s: %w", what, err), never && !f.fed
		})
	}
}

// checkNoPrime returns an error for a feeder that cannot be primed.
func checkNoPrime(ctx context.Context, what string) error {
	if ctx.Value(primingKey{}) != nil {
		return reconcile.Terminal(fmt.Errorf("natsadapter: %s cannot tell when all existing items were enqueued: do not Prime it", what))
	}
	return nil
}
