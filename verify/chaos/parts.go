// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
)

// reconcile is a run of an item: well-behaved in peace, anything else before.
func (r *round) reconcile(ctx context.Context, item int) error {
	r.world.begin(item)
	defer r.world.end(item)
	if r.calm.Load() {
		return nil
	}
	r.step()
	random := r.random()
	some := func(units float64) time.Duration {
		return time.Duration(1 + random.Float64()*units*float64(r.Unit))
	}
	switch n := random.IntN(1000); {
	case n < 60:
		return errBoom
	case n < 70: // takes its time
		r.pause(context.Background(), random, 3)
		return nil
	case n < 90: // so does this one, but it heeds its context
		r.pause(ctx, random, 8)
		return ctx.Err()
	case n < 93: // and this one does not
		r.pause(context.Background(), random, 60)
		return ctx.Err()
	case n < 100:
		panic("no error")
	case n < 105:
		panic(errBoom)
	case n < 115:
		runtime.Goexit()
	case n < 195:
		return fmt.Errorf("busy: %w", reconcile.RequeueAfter(some(30)))
	case n < 245:
		return fmt.Errorf("slow: %w", reconcile.RequeueWithin(some(30)))
	case n < 265:
		return reconcile.RecheckWithin(some(30))
	case n < 350: // in order, for so long that only an event or a poll brings it back
		return reconcile.RecheckWithin(some(1e6))
	case n < 355: // two steps
		return errors.Join(errBoom, reconcile.RequeueAfter(some(30)))
	case n < 360:
		return errors.Join(reconcile.Terminal(errBoom), reconcile.RequeueWithin(some(30)))
	case n < 365:
		return errors.Join(reconcile.RecheckWithin(some(30)), reconcile.RecheckWithin(some(30)))
	case n < 380:
		return reconcile.Terminal(errBoom)
	case n < 400:
		if !polled(item) && r.take() { // it sees a change that it caused itself
			r.world.change(item)
			r.queue.Enqueue(item)
		}
		return nil
	case n < 500:
		runtime.Gosched()
	}
	return nil
}

// take allows one more change, if there have not been enough.
func (r *round) take() bool {
	if r.budget.Add(-1) < 0 {
		r.enough.Store(true)
		return false
	}
	return true
}

// feeder makes one of several kinds.
func (r *round) feeder(random *rand.Rand) reconcile.Runner {
	var q reconcile.Enqueuer[int] = r.queue
	switch random.IntN(3) {
	case 0: // by way of a predicate
		q = reconcile.Filter(q, func(int) bool { r.step(); return true })
	case 1: // by way of what owns it
		return reconcile.Feed(reconcile.Map(q, dependants), func(ctx context.Context, q reconcile.Enqueuer[owner]) error {
			return r.feed(ctx, func(random *rand.Rand) {
				o := owner(random.IntN(len(r.world.assets) / 10))
				for item := range dependants(o) {
					r.world.change(item)
				}
				q.Enqueue(o)
			})
		})
	}
	return reconcile.Feed(q, func(ctx context.Context, q reconcile.Enqueuer[int]) error {
		return r.feed(ctx, func(random *rand.Rand) { r.tell(random, q) })
	})
}

// An owner has three dependants.
type owner int

func dependants(o owner) iter.Seq[int] {
	return slices.Values([]int{10 * int(o), 10*int(o) + 1, 10*int(o) + 2})
}

// feed calls tell for one change after the other, and ends in every way there is.
func (r *round) feed(ctx context.Context, tell func(*rand.Rand)) error {
	random := r.random()
	for ctx.Err() == nil && !r.enough.Load() {
		n := 1 + random.IntN(100)
		if random.IntN(20) == 0 {
			n = 2000 // a flood
		}
		for range n {
			if !r.take() {
				return nil
			}
			tell(random)
			r.step()
		}
		switch random.IntN(200) {
		case 0, 1, 2:
			return errBoom
		case 3:
			panic(errBoom)
		case 4:
			runtime.Goexit()
		case 5:
			return nil // no more will come
		case 6:
			<-ctx.Done() // it hangs
		}
		r.pause(ctx, random, 2)
	}
	return nil
}

// tell makes a change and tells the queue, in one of many ways.
func (r *round) tell(random *rand.Rand, q reconcile.Enqueuer[int]) {
	item := random.IntN(len(r.world.assets))
	delay := time.Duration(random.Int64N(int64(10 * r.Unit)))
	r.world.change(item)
	switch n := random.IntN(100); {
	case polled(item): // nobody tells the queue
	case overridden(item) && n < 20:
		r.queue.EnqueueNow(item)
	case overridden(item) && n < 30:
		r.queue.Remove(item) // an event of somebody else too
		r.queue.Enqueue(item)
	case n < 45:
		q.EnqueueAfter(item, delay)
	case n < 60:
		r.queue.EnqueueWithin(item, delay)
	case n < 65:
		r.world.offered(r.queue, item)
		q.Enqueue(item)
	default:
		q.Enqueue(item)
	}
}

// apply makes changes and waits until they were dealt with. If nobody goes on, it
// gives up.
func (r *round) apply(ctx context.Context) error {
	return r.feed(ctx, func(random *rand.Rand) {
		if random.IntN(50) > 0 {
			r.tell(random, r.queue)
			return
		}
		items := make([]int, 1+random.IntN(5))
		versions := make([]uint64, len(items))
		for i := range items {
			items[i] = random.IntN(len(r.world.assets)/10) * 10 // none of those that are overridden
			versions[i] = r.world.change(items[i])
		}
		ctx, cancel := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(20*r.Unit))))
		defer cancel()
		if err := r.queue.EnqueueAndWait(ctx, items...); err == nil || !errors.Is(err, context.Cause(ctx)) {
			r.world.applied(items, versions)
		}
	})
}

// send makes changes and sends them through the channel.
func (r *round) send(ctx context.Context) error {
	return r.feed(ctx, func(random *rand.Rand) {
		item := random.IntN(len(r.world.assets)/10) * 10
		r.world.change(item)
		select {
		case r.channel <- item:
		case <-ctx.Done():
			r.queue.Enqueue(item)
		}
	})
}

// poller lists what has drifted, now and then wrongly, or not at all.
func (r *round) poller() reconcile.Runner {
	var p *reconcile.Poller[int]
	p = &reconcile.Poller[int]{
		Queue: polls{r}, Period: 5 * r.Unit, Jitter: 0.2, Vanished: true, Logger: r.logger,
		GetItems: func(ctx context.Context) ([]int, error) {
			r.world.polls.Add(1)
			items := r.drifted()
			if r.calm.Load() {
				return items, nil
			}
			switch rand.IntN(20) {
			case 0:
				return items[:len(items)/2], errBoom
			case 1:
				panic(errBoom)
			case 2:
				runtime.Goexit()
			case 3:
				<-ctx.Done()
				return nil, ctx.Err()
			case 4:
				p.Trigger()
			}
			return items, nil
		},
	}
	return p
}

// polls is the queue as the poller knows it.
type polls struct{ *round }

func (p polls) Enqueue(item int)                       { p.queue.Enqueue(item) }
func (p polls) EnqueueAfter(item int, d time.Duration) { p.queue.EnqueueAfter(item, d) }
func (p polls) Offer(item int)                         { p.world.offered(p.queue, item) }

// drifted are the polled items that changed since they were looked at.
func (r *round) drifted() (items []int) {
	for i := range r.world.assets {
		if a := &r.world.assets[i]; polled(i) && a.want.Load() != a.seen.Load() {
			items = append(items, i)
		}
	}
	return items
}
