// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/reconkernel/reconcile"
)

// A Queue is a queue of this module for a controller that stays on controller-runtime:
//
//	var queue controllerruntime.Queue[ctrl.Request]
//	err := ctrl.NewControllerManagedBy(m).For(&batchv1.Job{}).
//		WithOptions(controller.Options{NewQueue: queue.NewQueue}).
//		Complete(queue.Reconciler(r))
//
// It differs from the queues of controller-runtime in these points:
//
//   - Items of a negative priority, such as those of the first list, do not starve: see
//     Background.
//   - A namespace with many items does not delay the others: see Fair.
//   - After a failure an event runs the item after one second at the earliest, or after
//     the delay of the RateLimiter if that is shorter. So a reconciler that writes its
//     failures into the status of its object does not become a hot loop.
//   - It knows which items are out of sync, for how long, and why. It is a Source for a
//     statuspage.Loop, and a queue for AddQueue and AddPending of adapters/prometheus.
//
// Priorities above zero count as zero, and GetWithPriority returns zero. The workqueue
// metrics of controller-runtime have no series of this queue; adapters/prometheus has them.
//
// The zero Queue is ready. It serves one controller, and must not be copied. The fields must
// not change after the first call of a method. All methods may be called from any goroutine; none blocks,
// except for those of the queue that NewQueue returns.
type Queue[T comparable] struct {
	// Background: of so many items that are taken, at least one is an item of a negative
	// priority, a retry or a scheduled run, if there is one. The others are items with
	// events, as long as there are any. 0 means 8.
	Background int

	// Fair returns the key of an item, such as its namespace: for equal items the same, at any
	// time. It may be called from any goroutine. The keys take turns. While a key waits for
	// its turn, its next item counts as in flight. A key has a goroutine while it has items.
	// Nil means one line for all items.
	Fair func(item T) string

	// RecheckFrom tells apart the two meanings of RequeueAfter. An item with a shorter one
	// is still out of sync, such as one that waits for a machine. An item with this one or a
	// longer one is in sync, and is only checked again. 0 means five minutes.
	RecheckFrom time.Duration

	// OnResult is called after each run, by its worker, before the item is given back. So
	// the results of an item arrive in the order of its runs. They have everything but
	// Waited. A panic is logged. It is for a statuspage.Loop, and may be nil.
	OnResult func(reconcile.Result[T])

	mu      sync.Mutex // guards the fields below; taken before the lock of a lane's queue
	lanes   map[string]*lane[T]
	handed  map[T]*handed[T]
	past    reconcile.Stats // the counters of lanes that have ended
	ctx     context.Context // done at ShutDown
	end     context.CancelFunc
	next    chan turn[T] // from each lane the item whose turn it is; with Fair
	limiter workqueue.TypedRateLimiter[T]
}

// A lane is the line of a key.
type lane[T comparable] struct {
	key   string
	queue *reconcile.Queue[T]
	end   context.CancelFunc
}

// A turn is an item that its lane has taken.
type turn[T comparable] struct {
	item T
	lane *lane[T]
}

// A handed item was taken by controller-runtime, whose calls decide its next run.
type handed[T comparable] struct {
	lane   *lane[T]
	since  time.Time
	known  bool  // err is: by Queue.Reconciler
	err    error // of its run
	failed bool  // AddRateLimited was called, with this delay
	delay  time.Duration
	forgot bool          // Forget was called: the run has succeeded
	after  time.Duration // of AddAfter, after Forget; 0 if that was not called
}

var (
	errFailed   = errors.New("controllerruntime: the run failed; only Queue.Reconciler knows why")
	errPanicked = errors.New("controllerruntime: the reconciler panicked")
	errRequeue  = errors.New("controllerruntime: the reconciler asked for another run")
)

// NewQueue is for Options.NewQueue of a controller, which calls it once, when it starts. It
// panics if it is called again, because each controller needs a Queue of its own. A nil
// limiter means that of a queue of controller-runtime: from 5 milliseconds to 1,000 seconds.
func (q *Queue[T]) NewQueue(_ string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limiter != nil {
		panic("controllerruntime: NewQueue of a Queue was called twice; each controller needs a Queue of its own")
	}
	if limiter == nil {
		limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[T](5*time.Millisecond, 1000*time.Second)
	}
	q.limiter = limiter
	if q.initLocked(); q.Fair == nil {
		q.laneLocked("")
	}
	return priorityQueue[T]{q}
}

// Reconciler returns a Reconciler that calls r and reports the error of each run to q.
// Without it q knows that a run has failed, and not why, and it takes a
// Result{Requeue: true} for a failure.
func (q *Queue[T]) Reconciler(r ctrlreconcile.TypedReconciler[T]) ctrlreconcile.TypedReconciler[T] {
	return ctrlreconcile.TypedFunc[T](func(ctx context.Context, item T) (result ctrlreconcile.Result, err error) {
		err = errPanicked // unless it returns
		defer func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if h := q.handed[item]; h != nil {
				h.known, h.err = true, err
			}
		}()
		return r.Reconcile(ctx, item)
	})
}

// All returns a snapshot of all items.
func (q *Queue[T]) All() iter.Seq2[T, reconcile.State] {
	return func(yield func(T, reconcile.State) bool) {
		for _, l := range q.snapshot() {
			for item, state := range l.queue.All() {
				if !yield(item, state) {
					return
				}
			}
		}
	}
}

// State returns the state of an item, the zero State if it is unknown.
func (q *Queue[T]) State(item T) (state reconcile.State) {
	key := q.keyOf(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[key]; l != nil {
		state = l.queue.State(item)
	}
	return state
}

// Stats returns the counts.
func (q *Queue[T]) Stats() reconcile.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	sum := q.past
	for _, l := range q.lanes {
		s := l.queue.Stats()
		sum.Ready, sum.Waiting, sum.InFlight = sum.Ready+s.Ready, sum.Waiting+s.Waiting, sum.InFlight+s.InFlight
		sum.Rechecks, sum.Again = sum.Rechecks+s.Rechecks, sum.Again+s.Again
		sum = withCounters(sum, s)
	}
	return sum
}

// withCounters returns sum with the counters of s added.
func withCounters(sum, s reconcile.Stats) reconcile.Stats {
	sum.Enqueued, sum.Coalesced = sum.Enqueued+s.Enqueued, sum.Coalesced+s.Coalesced
	sum.Taken, sum.Requeued = sum.Taken+s.Taken, sum.Requeued+s.Requeued
	return sum
}

// EnqueueNow runs an item at once, also if it waits after a failure.
func (q *Queue[T]) EnqueueNow(item T) {
	q.with(item, func(queue *reconcile.Queue[T]) { queue.EnqueueNow(item) })
}

// Remove cancels the next run of an item, and reports whether there was one.
func (q *Queue[T]) Remove(item T) (had bool) {
	q.with(item, func(queue *reconcile.Queue[T]) { had = queue.Remove(item) })
	return had
}

func (q *Queue[T]) keyOf(item T) string {
	if q.Fair == nil {
		return ""
	}
	return q.Fair(item)
}

func (q *Queue[T]) snapshot() []*lane[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	lanes := make([]*lane[T], 0, len(q.lanes))
	for _, l := range q.lanes {
		lanes = append(lanes, l)
	}
	return lanes
}

func (q *Queue[T]) initLocked() {
	if q.ctx == nil {
		q.ctx, q.end = context.WithCancel(context.Background())
		q.lanes, q.handed, q.next = map[string]*lane[T]{}, map[T]*handed[T]{}, make(chan turn[T])
	}
}

// with calls a verb with the queue of an item, unless that is shut down.
func (q *Queue[T]) with(item T, verb func(*reconcile.Queue[T])) {
	key := q.keyOf(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.initLocked(); q.ctx.Err() == nil {
		l := q.laneLocked(key)
		verb(l.queue)
		q.endIdleLocked(l)
	}
}

// laneLocked returns the lane of a key, which it creates if there is none.
func (q *Queue[T]) laneLocked(key string) *lane[T] {
	l := q.lanes[key]
	if l == nil {
		l = &lane[T]{key: key, queue: reconcile.NewQueue[T]()}
		l.queue.Background = cmp.Or(q.Background, 8)
		q.lanes[key] = l
		if q.Fair != nil {
			var ctx context.Context
			ctx, l.end = context.WithCancel(q.ctx)
			go q.serve(ctx, l)
		}
	}
	return l
}

// endIdleLocked ends a lane that has no item, unless it is the only line.
func (q *Queue[T]) endIdleLocked(l *lane[T]) {
	if s := l.queue.Stats(); q.Fair != nil && q.lanes[l.key] == l && s.Ready+s.Waiting+s.InFlight == 0 {
		l.end()
		delete(q.lanes, l.key)
		q.past = withCounters(q.past, s)
	}
}

// serve takes the items of a lane, one at a time. A channel serves those that wait to send
// in the order in which they came, so the lanes take turns.
func (q *Queue[T]) serve(ctx context.Context, l *lane[T]) {
	for {
		item, err := l.queue.Dequeue(ctx)
		if err != nil {
			return
		}
		select {
		case q.next <- turn[T]{item, l}:
		case <-ctx.Done():
			return // with the queue
		}
	}
}

// A priorityQueue is a Queue as controller-runtime calls it.
type priorityQueue[T comparable] struct{ *Queue[T] }

var _ priorityqueue.PriorityQueue[ctrlreconcile.Request] = priorityQueue[ctrlreconcile.Request]{}

// AddWithOpts implements [priorityqueue.PriorityQueue].
func (p priorityQueue[T]) AddWithOpts(o priorityqueue.AddOpts, items ...T) {
	for _, item := range items {
		after := o.After
		if o.RateLimited {
			if d := p.limiter.When(item); after == 0 || d < after {
				after = d
			}
		}
		p.with(item, func(queue *reconcile.Queue[T]) {
			h, low, state := p.handed[item], o.Priority != nil && *o.Priority < 0, queue.State(item)
			switch {
			case h != nil && o.RateLimited:
				h.failed, h.delay = true, after
			case h != nil && h.forgot && after > 0: // the result of its run
				if h.after == 0 || after < h.after {
					h.after = after
				}
			case after > 0:
				queue.EnqueueWithin(item, after)
			case low && (state.Phase == reconcile.PhaseIdle || state.Phase == reconcile.PhaseReady || state.Recheck):
				queue.Offer(item)
			default: // a low priority too: the run in flight may have begun too early
				queue.Enqueue(item)
			}
		})
	}
}

// Add implements [workqueue.TypedInterface].
func (p priorityQueue[T]) Add(item T) { p.AddWithOpts(priorityqueue.AddOpts{}, item) }

// AddAfter implements [workqueue.TypedDelayingInterface].
func (p priorityQueue[T]) AddAfter(item T, d time.Duration) {
	p.AddWithOpts(priorityqueue.AddOpts{After: d}, item)
}

// AddRateLimited implements [workqueue.TypedRateLimitingInterface].
func (p priorityQueue[T]) AddRateLimited(item T) {
	p.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, item)
}

// Forget implements [workqueue.TypedRateLimitingInterface].
func (p priorityQueue[T]) Forget(item T) {
	p.limiter.Forget(item)
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.handed[item]; h != nil {
		h.forgot = true
	}
}

// NumRequeues implements [workqueue.TypedRateLimitingInterface].
func (p priorityQueue[T]) NumRequeues(item T) int { return p.limiter.NumRequeues(item) }

// Len implements [workqueue.TypedInterface]: it counts the items that are ready, and those
// that are ready as soon as they are given back.
func (p priorityQueue[T]) Len() int { s := p.Stats(); return s.Ready + s.Again }

// Get implements [workqueue.TypedInterface].
func (p priorityQueue[T]) Get() (item T, shutdown bool) {
	item, _, shutdown = p.GetWithPriority()
	return item, shutdown
}

// ShuttingDown implements [workqueue.TypedInterface].
func (p priorityQueue[T]) ShuttingDown() bool { return p.ctx.Err() != nil }

// ShutDown implements [workqueue.TypedInterface]. Items that are ready stay in the queue.
func (p priorityQueue[T]) ShutDown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	for _, l := range p.lanes {
		l.queue.Close()
	}
}

// ShutDownWithDrain implements [workqueue.TypedInterface]. It does not drain, as the queue
// of controller-runtime does not.
func (p priorityQueue[T]) ShutDownWithDrain() { p.ShutDown() }

// GetWithPriority implements [priorityqueue.PriorityQueue].
func (p priorityQueue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	if p.Fair == nil {
		p.mu.Lock()
		l := p.lanes[""]
		p.mu.Unlock()
		taken, err := l.queue.Dequeue(p.ctx)
		if err != nil {
			return item, 0, true
		}
		return p.hand(turn[T]{taken, l}), 0, false
	}
	select {
	case <-p.ctx.Done():
		return item, 0, true
	default:
	}
	select {
	case <-p.ctx.Done():
		return item, 0, true
	case next := <-p.next:
		return p.hand(next), 0, false
	}
}

// hand notes that controller-runtime has an item, and returns the item.
func (p priorityQueue[T]) hand(next turn[T]) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Fair != nil {
		next.lane.queue.Remove(next.item) // what came while it waited for its turn is seen by the run that begins
	}
	p.handed[next.item] = &handed[T]{lane: next.lane, since: time.Now()}
	return next.item
}

// Done implements [workqueue.TypedInterface]: it gives back an item.
func (p priorityQueue[T]) Done(item T) {
	p.mu.Lock()
	h := p.handed[item]
	delete(p.handed, item)
	p.mu.Unlock()
	if h == nil {
		return
	}
	queue, err := h.lane.queue, h.result(cmp.Or(p.RecheckFrom, 5*time.Minute))
	failures := queue.State(item).Failures + 1
	outcome, options := reconcile.Classify(err, failures, func(error, int) (time.Duration, bool) { return h.delay, true })
	if outcome == reconcile.OutcomeTerminal && p.ShuttingDown() { // after which nothing is added
		outcome, options = reconcile.OutcomeAborted, reconcile.RequeueOptions{Aborted: true}
	}
	result := reconcile.Result[T]{Item: item, Outcome: outcome, Err: err, Duration: time.Since(h.since)}
	switch {
	case outcome == reconcile.OutcomeAborted:
		result.Failures = failures - 1
	case options.Err != nil:
		result.Failures = failures
	}
	if !options.Done {
		result.Next = options.Delay
	}
	p.notify(result)
	queue.Requeue(item, options)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endIdleLocked(h.lane)
}

// notify calls OnResult, and logs its panic.
func (q *Queue[T]) notify(result reconcile.Result[T]) {
	defer func() {
		if v := recover(); v != nil {
			defer func() { _ = recover() }() // of printing v, or of the log
			log.Log.Error(fmt.Errorf("%v", v), "controllerruntime: OnResult panicked", "item", result.Item, "stack", string(debug.Stack()))
		}
	}()
	if q.OnResult != nil {
		q.OnResult(result)
	}
}

// result returns the result of a run as a reconcile function of this module returns it.
func (h *handed[T]) result(recheckFrom time.Duration) error {
	err := h.err
	switch {
	case h.forgot: // then the failure is an event that called AddRateLimited
		err = nil
	case !h.known:
		err = errFailed
	}
	switch {
	case h.failed && err != nil:
		return err
	case h.failed:
		return fmt.Errorf("%w: %w", errRequeue, reconcile.RequeueWithin(h.delay))
	case h.after >= recheckFrom:
		return reconcile.RecheckWithin(h.after)
	case h.after > 0:
		return reconcile.RequeueWithin(h.after)
	case h.forgot:
		return nil
	}
	return reconcile.Terminal(cmp.Or(err, errFailed))
}
