// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package lanes is a queue per key: each region, tenant or service has a queue and a
// Reconciler of its own. A key whose runs hang, or one with a hundred thousand events,
// does not delay the others.
//
//	regions := &lanes.Lanes[string, string]{
//		Lane: func(vm string) string { return regionOf(vm) },
//		Reconciler: func(region string) *reconcile.Reconciler[string] {
//			return &reconcile.Reconciler[string]{Name: region, Workers: 4, Timeout: time.Minute, Reconcile: vms.Reconcile, Admit: cloud.Admit}
//		},
//	}
//	group.Add("vms", regions)
//	group.Add("desired", &reconcile.Poller[string]{Queue: regions, …})
//
// No lane can occupy the workers of another lane. If all Reconcilers have the same gate
// in Admit, the gate limits the runs of all lanes together, and the lanes take turns.
package lanes

import (
	"container/list"
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
	"github.com/reconkernel/reconcile/internal/guard"
	"github.com/reconkernel/reconcile/internal/held"
)

// Lanes routes each item to the queue of its lane, and runs a Reconciler for each lane.
// It is a [reconcile.Enqueuer] with the other verbs of a [reconcile.Queue], and a
// [reconcile.Runner].
//
// A lane is created when it gets an item. It ends when it has had no item for one to two
// minutes. The guarantees of a queue hold within each lane; between lanes there is no
// order.
//
// A lane fails alone. If its Reconciler cannot be created, or the Reconciler's Run fails
// or panics, Lanes restarts that lane after a back-off of one second to five minutes. The
// lane's items stay in its queue meanwhile. Lanes logs the 1st, 2nd, 4th, 8th … failure
// in a row.
//
// Lane and Reconciler are required. The fields must not change after the first item.
// Lanes must not be copied.
//
// All methods may be called from any goroutine. Only Run blocks, with one exception:
// while Reconciler or Ended is called for a lane, the verbs of that lane wait.
type Lanes[T, L comparable] struct {
	// Lane returns the lane of an item. It must always return the same lane for an item;
	// otherwise the item may be in flight twice. Each verb calls it.
	//
	// With one worker, a lane costs about 24 KB of memory and four goroutines while it has
	// an item, and half of that while it waits for MaxRunning. The number of lanes has no
	// maximum, because a lane that is not created would lose its items. If others choose
	// the names, bound their number here: return one lane for all names that are unknown,
	// or a hash of the name modulo a number.
	Lane func(T) L

	// Reconciler returns the Reconciler of a lane. The verb that creates the lane calls
	// it first. Run calls it again each time that it restarts the lane: in another call
	// of Run, or after a failure. Reconciler must return soon and must not enqueue or
	// remove an item of its lane, because the verbs of the lane wait for it.
	//
	// Lanes uses a copy of the Reconciler and sets the Queue of the copy to the lane's
	// own queue. If the Queue that you set is a *reconcile.Queue, the lane's queue gets
	// its exported fields, such as Background, when the lane is created. If the first
	// call fails, the lane's queue has no Background.
	Reconciler func(L) *reconcile.Reconciler[T]

	// Ended is called after a lane has ended, for example to remove its metrics. Nil
	// means no call. Lanes creates the lane anew only after Ended has returned, so Ended
	// must not enqueue or remove an item of the lane. Ended is not called for lanes that
	// exist when Run returns.
	Ended func(L)

	// MaxRunning is the maximum number of lanes that run at once; 0 means no limit. The
	// other lanes wait with their items in their queues, and the lane that has waited
	// longest runs next. While a lane waits, each running lane that has no item ready or
	// in flight stops within about a second; it waits for its turn again once it has a
	// ready item.
	MaxRunning int

	// Logger is the logger of Lanes and of each Reconciler without a Logger. Log lines
	// have the attribute "lane". Nil means the [reconcile.Logger] of the context of Run.
	Logger *slog.Logger

	serving sync.Mutex // held by Run
	mu      sync.Mutex // guards the fields below
	lanes   map[L]*lane[T]
	start   func(L, *lane[T]) // starts a lane; nil while Run does not go on
	past    reconcile.Stats   // the counters of lanes that have ended
	running map[*lane[T]]bool // with a MaxRunning: the lanes that run
	waiting list.List         // with a MaxRunning: the lanes that wait to run, each as *lane[T]
	parked  map[*lane[T]]bool // with a MaxRunning: the lanes that stopped running, and have no ready item
}

type lane[T comparable] struct {
	changed chan struct{}       // closed once the lane has its queue, and renewed until it is removed
	queue   *reconcile.Queue[T] // nil while the lane is being created or ended
	idle    bool                // it had no item when it was checked last
	served  bool                // it has a goroutine, which completes its end
	ended   chan struct{}       // closed when the lane ends

	// Of the first call of Lanes.Reconciler, until it is used.
	reconciler *reconcile.Reconciler[T]
	failure    error

	// With a MaxRunning.
	next chan struct{}      // has room for one token: the lane may run, or is no longer parked
	stop context.CancelFunc // stops it while it runs
}

// Enqueue is [reconcile.Queue.Enqueue] in the lane of the item.
func (l *Lanes[T, L]) Enqueue(item T) {
	l.with(item, func(q *reconcile.Queue[T]) { q.Enqueue(item) })
}

// EnqueueAfter is [reconcile.Queue.EnqueueAfter] in the lane of the item.
func (l *Lanes[T, L]) EnqueueAfter(item T, d time.Duration) {
	l.with(item, func(q *reconcile.Queue[T]) { q.EnqueueAfter(item, d) })
}

// EnqueueWithin is [reconcile.Queue.EnqueueWithin] in the lane of the item.
func (l *Lanes[T, L]) EnqueueWithin(item T, d time.Duration) {
	l.with(item, func(q *reconcile.Queue[T]) { q.EnqueueWithin(item, d) })
}

// EnqueueNow is [reconcile.Queue.EnqueueNow] in the lane of the item.
func (l *Lanes[T, L]) EnqueueNow(item T) {
	l.with(item, func(q *reconcile.Queue[T]) { q.EnqueueNow(item) })
}

// Offer is [reconcile.Queue.Offer] in the lane of the item.
func (l *Lanes[T, L]) Offer(item T) {
	l.with(item, func(q *reconcile.Queue[T]) { q.Offer(item) })
}

// Remove is [reconcile.Queue.Remove] in the lane of the item. It creates no lane.
func (l *Lanes[T, L]) Remove(item T) bool {
	name := l.laneOf(item)
	found := l.lockLane(name)
	defer l.mu.Unlock()
	return found != nil && found.queue.Remove(item)
}

func (l *Lanes[T, L]) laneOf(item T) L {
	if l.Lane == nil {
		panic("lanes: Lanes.Lane is required, and nil")
	}
	name := l.Lane(item)
	if name != name { // true for a NaN
		panic(fmt.Sprintf("lanes: Lane returned %v, which is not equal to itself", name))
	}
	return name
}

// lockLane locks l and returns a lane that can take items, or nil if there is none. It
// waits for a lane that is being created or ended.
func (l *Lanes[T, L]) lockLane(name L) *lane[T] {
	for {
		l.mu.Lock()
		found := l.lanes[name]
		if found == nil || found.queue != nil {
			return found
		}
		l.mu.Unlock()
		<-found.changed
	}
}

// with calls add with the queue of an item, which cannot end meanwhile.
func (l *Lanes[T, L]) with(item T, add func(*reconcile.Queue[T])) {
	name := l.laneOf(item)
	found := l.lockLane(name)
	if found != nil {
		defer l.mu.Unlock()
		found.idle = false
		add(found.queue)
		l.unparkLocked(found)
		return
	}
	if l.lanes == nil {
		l.lanes = make(map[L]*lane[T])
	}
	found = &lane[T]{changed: make(chan struct{}), ended: make(chan struct{}), next: make(chan struct{}, 1)}
	l.lanes[name] = found
	l.mu.Unlock()
	var queue *reconcile.Queue[T]
	added := false
	defer func() { // also if NewQueue or add panics
		l.mu.Lock()
		defer l.mu.Unlock()
		close(found.changed)
		if !added {
			delete(l.lanes, name)
			return
		}
		found.queue = queue
		if l.start != nil {
			l.start(name, found)
		}
	}()
	queue = reconcile.NewQueue[T]()
	if l.Reconciler != nil { // Without one, Run returns an error.
		found.failure = guard.Call(func() (err error) {
			found.reconciler, err = l.create(name)
			return err
		})
	}
	if found.reconciler != nil {
		if from, _ := found.reconciler.Queue.(*reconcile.Queue[T]); from != nil {
			queue.Background = from.Background
		}
	}
	add(queue)
	added = true
}

func (l *Lanes[T, L]) create(name L) (*reconcile.Reconciler[T], error) {
	r := l.Reconciler(name)
	if r == nil {
		return nil, errors.New("lanes: Lanes.Reconciler returned nil")
	}
	return r, nil
}

// EndLast does nothing. A supervise.Group ends a Runner that has it after the feeders.
func (l *Lanes[T, L]) EndLast() {}

// All returns the current lanes and their queues, in any order. Use the queues only to
// read: the queue of a lane that has ended accepts no items. To add or remove items, use
// the methods of Lanes.
func (l *Lanes[T, L]) All() iter.Seq2[L, *reconcile.Queue[T]] {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues := make(map[L]*reconcile.Queue[T], len(l.lanes))
	for name, lane := range l.lanes {
		if lane.queue != nil {
			queues[name] = lane.queue
		}
	}
	return maps.All(queues)
}

// Stats returns the sums over all lanes. The counters include lanes that have ended.
func (l *Lanes[T, L]) Stats() reconcile.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.past
	for _, lane := range l.lanes {
		if lane.queue != nil {
			add(&sum, lane.queue.Stats())
		}
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

// Run serves the lanes until ctx is done, and then returns nil. It ends each Reconciler
// as [reconcile.Reconciler.Run] does. In a term of an adapter's Elect, runs end with the lease,
// whatever their Grace. Items that remain stay in their lanes, and Run may be called again.
//
// Run returns a [reconcile.Terminal] error at once if a required field is missing or
// MaxRunning is negative, and an error if Run is already running.
func (l *Lanes[T, L]) Run(ctx context.Context) error {
	switch {
	case l.Lane == nil:
		return reconcile.Terminal(errors.New("lanes: Lanes.Lane is required, and nil"))
	case l.Reconciler == nil:
		return reconcile.Terminal(errors.New("lanes: Lanes.Reconciler is required, and nil"))
	case l.MaxRunning < 0:
		return reconcile.Terminal(fmt.Errorf("lanes: Lanes.MaxRunning is %d, want 0 (which means no limit) or more", l.MaxRunning))
	}
	if !l.serving.TryLock() {
		return errors.New("lanes: Lanes.Run is running already")
	}
	defer l.serving.Unlock()
	var running sync.WaitGroup
	l.mu.Lock()
	l.running, l.parked = make(map[*lane[T]]bool), make(map[*lane[T]]bool)
	l.start = func(name L, lane *lane[T]) {
		lane.served = true
		running.Go(func() { l.serve(ctx, name, lane) })
	}
	for name, lane := range l.lanes {
		if lane.queue != nil {
			l.start(name, lane)
		}
	}
	l.mu.Unlock()
	l.check(ctx)
	running.Wait()
	return nil
}

// idleTime is how often lanes are checked for items. A lane that has none twice ends.
const idleTime = time.Minute

// check ends idle lanes, and lets lanes take turns, until ctx is done.
func (l *Lanes[T, L]) check(ctx context.Context) {
	idle := time.NewTicker(idleTime)
	defer idle.Stop()
	var turns <-chan time.Time
	if l.MaxRunning > 0 {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		turns = t.C
	}
	for {
		select {
		case <-ctx.Done():
			l.mu.Lock()
			l.start = nil // No further goroutine is added to those that Run waits for.
			l.mu.Unlock()
			return
		case <-idle.C:
			l.endIdle()
		case <-turns:
			l.takeTurns()
		}
	}
}

// endIdle ends the lanes that have had no item for long. The goroutine of each does the
// rest.
func (l *Lanes[T, L]) endIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, lane := range l.lanes {
		if lane.queue == nil || !lane.served { // The next Run serves it.
			continue
		}
		was := lane.idle
		lane.idle = isIdle(lane.queue.Stats())
		if was && lane.idle {
			close(lane.ended)
			lane.queue.Close()
			add(&l.past, lane.queue.Stats())
			lane.queue, lane.changed = nil, make(chan struct{})
		}
	}
}

func isIdle(s reconcile.Stats) bool { return s.Ready+s.Waiting+s.InFlight == 0 }

// serve runs the Reconciler of a lane, again and again if it fails, until the lane or
// ctx ends.
func (l *Lanes[T, L]) serve(ctx context.Context, name L, lane *lane[T]) {
	logger := l.Logger
	if logger == nil {
		logger = reconcile.Logger(ctx)
	}
	_ = guard.Call(func() error { logger = logger.With("lane", name); return nil }) // The handler is code of the user.
	l.mu.Lock()
	queue := lane.queue
	l.mu.Unlock()
	if queue != nil {
		l.runLane(ctx, name, lane, queue, logger)
	}
	l.mu.Lock()
	lane.served = lane.queue == nil
	l.mu.Unlock()
	if !lane.served {
		return // The lane is there for the next Run.
	}
	if l.Ended != nil {
		if err := guard.Call(func() error { l.Ended(name); return nil }); err != nil {
			guard.Log(logger, slog.LevelError, "Ended failed", "err", err)
		}
	}
	l.mu.Lock()
	delete(l.lanes, name)
	l.mu.Unlock()
	close(lane.changed)
}

func (l *Lanes[T, L]) runLane(ctx context.Context, name L, lane *lane[T], queue *reconcile.Queue[T], logger *slog.Logger) {
	backoff := reconcile.Backoff(time.Second, 5*time.Minute)
	for failures := 0; ; {
		begin := time.Now()
		err := guard.Call(func() error {
			r, err := lane.reconciler, lane.failure
			lane.reconciler, lane.failure = nil, nil
			if r == nil && err == nil && ctx.Err() == nil {
				r, err = l.create(name)
			}
			if r == nil {
				return err
			}
			own := *r
			own.Queue = held.Within[T](ctx, queue)
			if own.Logger == nil {
				own.Logger = logger
			}
			return l.runInTurn(ctx, lane, queue, &own)
		})
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(begin) >= time.Minute {
			failures = 0
		}
		failures++
		pause, _ := backoff(nil, failures)
		if failures&(failures-1) == 0 {
			args := []any{"failures", failures, "next", pause, "err", err}
			_ = guard.Call(func() error { // The methods of err are code of the user.
				if p := (*reconcile.PanicError)(nil); errors.As(err, &p) {
					args = append(args, "stack", string(p.Stack))
				}
				return nil
			})
			guard.Log(logger, slog.LevelError, "lane failed, to be restarted", args...)
		}
		select {
		case <-time.After(pause):
		case <-lane.ended:
			return
		case <-ctx.Done():
		}
	}
}

// runInTurn runs a Reconciler. With a MaxRunning it waits for the turn of the lane, and
// again each time that the lane was stopped because it had no ready item.
func (l *Lanes[T, L]) runInTurn(ctx context.Context, lane *lane[T], queue *reconcile.Queue[T], r *reconcile.Reconciler[T]) error {
	if l.MaxRunning == 0 {
		return r.Run(ctx)
	}
	for l.awaitTurn(ctx, lane) {
		turn, stop := context.WithCancel(ctx)
		l.mu.Lock()
		lane.stop = stop
		l.mu.Unlock()
		err := guard.Call(func() error { return r.Run(turn) })
		stop()
		l.mu.Lock()
		lane.stop = nil
		l.endTurnLocked(lane)
		if err != nil {
			l.mu.Unlock()
			return err
		}
		if queue.Stats().Ready == 0 {
			l.parked[lane] = true
			l.mu.Unlock()
			select {
			case <-lane.next:
			case <-lane.ended:
			case <-ctx.Done():
			}
			l.mu.Lock()
			delete(l.parked, lane)
		}
		l.mu.Unlock()
	}
	return nil
}

// awaitTurn blocks until the lane may run. It returns false if the lane or ctx ended
// first.
func (l *Lanes[T, L]) awaitTurn(ctx context.Context, lane *lane[T]) bool {
	select {
	case <-lane.ended:
		return false
	case <-ctx.Done():
		return false
	default:
	}
	l.mu.Lock()
	select { // It may have been notified since it was parked, also between two Runs.
	case <-lane.next:
	default:
	}
	if len(l.running) < l.MaxRunning {
		l.running[lane] = true
		l.mu.Unlock()
		return true
	}
	place := l.waiting.PushBack(lane)
	l.mu.Unlock()
	select {
	case <-lane.next:
		return true
	case <-lane.ended:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Remove(place)
	select {
	case <-lane.next: // The turn came at the same moment.
		l.endTurnLocked(lane)
	default:
	}
	return false
}

// endTurnLocked lets the next lane run.
func (l *Lanes[T, L]) endTurnLocked(ended *lane[T]) {
	delete(l.running, ended)
	if front := l.waiting.Front(); front != nil {
		next := l.waiting.Remove(front).(*lane[T])
		l.running[next] = true
		next.next <- struct{}{} // It does not block, because the lane waits and has no token.
	}
}

// takeTurns lets parked lanes with a ready item wait for their turn, and stops lanes
// that have nothing to run while others wait. An item that becomes ready at the same
// moment as its lane is stopped may be in a run; that run is aborted, and its item
// ready again.
func (l *Lanes[T, L]) takeTurns() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lane := range l.parked {
		l.unparkLocked(lane)
	}
	if l.waiting.Len() == 0 {
		return
	}
	for lane := range l.running {
		if lane.queue == nil || lane.stop == nil {
			continue
		}
		if s := lane.queue.Stats(); s.Ready+s.InFlight == 0 {
			lane.stop()
		}
	}
}

// unparkLocked lets a lane that is parked wait for its turn if it has a ready item.
func (l *Lanes[T, L]) unparkLocked(lane *lane[T]) {
	if l.parked[lane] && lane.queue != nil && lane.queue.Stats().Ready > 0 {
		delete(l.parked, lane)
		lane.next <- struct{}{} // It does not block, because a parked lane has no token.
	}
}
