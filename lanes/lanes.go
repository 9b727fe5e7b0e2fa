// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package lanes gives each region, tenant or service a queue and a loop of its own,
// so that one that hangs, or one with a hundred thousand events, does not hold up the
// others.
//
//	regions := &lanes.Lanes[string, string]{
//		Lane: func(vm string) string { return regionOf(vm) },
//		Reconciler: func(region string) *reconcile.Reconciler[string] {
//			return &reconcile.Reconciler[string]{Name: region, Workers: 4, Timeout: time.Minute, Reconcile: vms.Reconcile, Admit: cloud.Admit}
//		},
//	}
//	group.Add("vms", regions)
//	group.Add("wished", &reconcile.Poller[string]{Queue: regions, …})
//
// The workers of a lane are its own: what a lane may do at once is not for the
// others to take. A gate that all of them share bounds the sum, and lets them take
// turns.
package lanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// Lanes routes each item to the queue of its lane. It is an [reconcile.Enqueuer] for
// what feeds, and a [reconcile.Runner] that runs a Reconciler for each lane: one is
// made when the lane has an item, and ends when it had none for a minute or two. What
// holds of one queue holds of each lane; between lanes there is no order.
//
// Lane and Reconciler are required; the fields may not change after the first item.
// All methods may be called from any goroutine, and none but Run blocks. Lanes must
// not be copied.
type Lanes[T, L comparable] struct {
	// Lane returns the lane of an item. It must return the same each time, or one
	// item may be in flight twice. It is called by each Enqueue, EnqueueAfter and
	// Offer.
	Lane func(T) L

	// Reconciler returns what serves a lane; its Queue is set by Lanes. It is
	// called each time that a lane begins to be served, by a goroutine of Run.
	Reconciler func(L) *reconcile.Reconciler[T]

	Logger *slog.Logger // of the Reconcilers without one; nil means slog.Default(). Lines have the lane

	mu    sync.Mutex // guards the fields below
	lanes map[L]*lane[T]
	group *reconcile.Group // that runs the lanes; nil while Run does not go on
	past  reconcile.Stats  // the counters of lanes that have ended
}

type lane[T comparable] struct {
	queue *reconcile.Queue[T]
	stop  func() // ends its Reconciler and waits; nil if none was started
	idle  bool   // it had no item when it was looked at last
}

// Enqueue enqueues an item in its lane.
func (l *Lanes[T, L]) Enqueue(item T) {
	l.with(item, func(q *reconcile.Queue[T]) { q.Enqueue(item) })
}

// EnqueueAfter enqueues an item in its lane, not before d is over.
func (l *Lanes[T, L]) EnqueueAfter(item T, d time.Duration) {
	l.with(item, func(q *reconcile.Queue[T]) { q.EnqueueAfter(item, d) })
}

// Offer offers an item to its lane.
func (l *Lanes[T, L]) Offer(item T) {
	l.with(item, func(q *reconcile.Queue[T]) { q.Offer(item) })
}

// with calls add with the queue of an item, which cannot end meanwhile.
func (l *Lanes[T, L]) with(item T, add func(*reconcile.Queue[T])) {
	if l.Lane == nil {
		panic("lanes: Lanes.Lane is required, and nil")
	}
	name := l.Lane(item)
	if name != name { // true for a NaN
		panic(fmt.Sprintf("lanes: Lane returned %v, which is not equal to itself", name))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.lanes[name]
	if found == nil {
		found = &lane[T]{queue: reconcile.NewQueue[T]()}
		add(found.queue) // before it is kept, since it may panic
		if l.lanes == nil {
			l.lanes = make(map[L]*lane[T])
		}
		l.lanes[name] = found
		l.startLocked(name, found)
		return
	}
	found.idle = false
	add(found.queue)
}

// Unwrap returns a Reconciler, by which a [reconcile.Group] knows that it has to end
// Lanes as one: after the members that feed.
func (l *Lanes[T, L]) Unwrap() reconcile.Runner { return new(reconcile.Reconciler[T]) }

// All returns the lanes that there are now, each with its queue, in any order. The
// queue of a lane that has ended takes nothing more: do not keep it.
func (l *Lanes[T, L]) All() iter.Seq2[L, *reconcile.Queue[T]] {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues := make(map[L]*reconcile.Queue[T], len(l.lanes))
	for name, lane := range l.lanes {
		queues[name] = lane.queue
	}
	return maps.All(queues)
}

// Stats returns the sums over all lanes, those that have ended included.
func (l *Lanes[T, L]) Stats() reconcile.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.past
	for _, lane := range l.lanes {
		add(&sum, lane.queue.Stats())
	}
	return sum
}

// add adds each count of s to sum.
func add(sum *reconcile.Stats, s reconcile.Stats) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(s)
	for i := range from.NumField() {
		if f := to.Field(i); f.CanInt() {
			f.SetInt(f.Int() + from.Field(i).Int())
		} else {
			f.SetUint(f.Uint() + from.Field(i).Uint())
		}
	}
}

// Run serves the lanes until ctx is done, as each Reconciler does, and returns nil. It
// returns an error at once if a field is missing or it is running already, and the
// error of a Reconciler that cannot run, with its lane, after ending the others. What
// is in the lanes then stays there, and Run may be called again.
func (l *Lanes[T, L]) Run(ctx context.Context) error {
	switch {
	case l.Lane == nil:
		return errors.New("lanes: Lanes.Lane is required, and nil")
	case l.Reconciler == nil:
		return errors.New("lanes: Lanes.Reconciler is required, and nil")
	}
	group := &reconcile.Group{Logger: l.Logger}
	group.Add("", reconcile.RunFunc(l.endIdle)) // which outlives all lanes
	l.mu.Lock()
	if l.group != nil {
		l.mu.Unlock()
		return errors.New("lanes: Lanes.Run is running already")
	}
	l.group = group
	for name, lane := range l.lanes {
		l.startLocked(name, lane)
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.group = nil
	}()
	return group.Run(ctx)
}

// startLocked starts the Reconciler of a lane, if Run goes on.
func (l *Lanes[T, L]) startLocked(name L, lane *lane[T]) {
	if l.group == nil {
		return
	}
	lane.stop = l.group.Add(fmt.Sprintf("lane %v", name), reconcile.RunFunc(func(ctx context.Context) error {
		r := l.Reconciler(name)
		if r == nil {
			return errors.New("lanes: Lanes.Reconciler returned nil")
		}
		own := *r
		own.Queue = lane.queue
		if own.Logger == nil {
			own.Logger = cmp.Or(l.Logger, slog.Default()).With("lane", name)
		}
		return own.Run(ctx)
	}))
}

// idleTime is how often lanes are looked at. One that has no item twice is ended.
const idleTime = time.Minute

// endIdle ends the lanes that are idle.
func (l *Lanes[T, L]) endIdle(ctx context.Context) error {
	tick := time.NewTicker(idleTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for _, lane := range l.takeIdle() {
			lane.stop()
		}
	}
}

// takeIdle takes out the lanes that have had no item for long.
func (l *Lanes[T, L]) takeIdle() (ended []*lane[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, lane := range l.lanes {
		s := lane.queue.Stats()
		was := lane.idle
		lane.idle = s.Ready+s.Waiting+s.InFlight == 0
		if was && lane.idle {
			delete(l.lanes, name)
			lane.queue.Close()
			add(&l.past, s)
			ended = append(ended, lane)
		}
	}
	return ended
}
