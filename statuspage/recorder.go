// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
)

// A recorder takes the results of runs from workers, and never makes one wait.
//
// It has a few shards, and an item belongs to one of them. A worker puts its
// result into the channel of the shard, if there is room. Then it tries to get
// the lock of the shard, and if nobody has it, moves what is in the channel into
// the book. If somebody has it, the worker is done: the result is moved by the
// next one who comes, or by the next reader. Only readers wait for a lock, and
// they give it up again and again, so that the channel does not fill. When it is
// full all the same, results are dropped, and counted.
type recorder[T comparable] struct {
	base    time.Time
	seed    maphash.Seed
	shards  [shardCount]shard[T]
	totals  [outcomes]atomic.Uint64 // runs since the beginning
	dropped atomic.Uint64           // of these

	stats      func() (s reconcile.Stats, ok bool) // to sample the depth by
	nextSample atomic.Int64
}

// A worker that loses the processor while it has the lock of a shard keeps the
// others from one shard only.
type shard[T comparable] struct {
	results chan result[T]

	mu      sync.Mutex // guards the fields below
	book    *book[T]
	history history
}

type result[T comparable] struct {
	item T
	run
}

const (
	shardCount  = 4
	pending     = 512 // results of a shard, at most
	foldAtOnce  = 64  // how many results a worker moves, its own and others'
	sampleEvery = time.Second
)

func newRecorder[T comparable](bound int, stats func() (reconcile.Stats, bool)) *recorder[T] {
	r := &recorder[T]{base: time.Now(), seed: maphash.MakeSeed(), stats: stats}
	for i := range r.shards {
		r.shards[i].results = make(chan result[T], pending)
		r.shards[i].book = newBook[T](max(bound/shardCount, perItem))
	}
	return r
}

// now returns the time as runs keep it.
func (r *recorder[T]) now() time.Duration { return time.Since(r.base) }

// shard returns that of an item.
func (r *recorder[T]) shard(item T) *shard[T] {
	return &r.shards[maphash.Comparable(r.seed, item)%shardCount]
}

// record takes a result. It never blocks.
func (r *recorder[T]) record(x reconcile.Result[T]) {
	now, s, o := r.now(), r.shard(x.Item), outcomeOf(x.Outcome)
	r.totals[o].Add(1)
	select {
	case s.results <- result[T]{x.Item, run{
		ended:    now,
		duration: x.Duration,
		waited:   x.Waited,
		next:     x.Next,
		err:      textOf(x.Err),
		failures: int32(min(x.Failures, 1<<31-1)),
		outcome:  o,
	}}:
	default:
		r.dropped.Add(1)
	}
	if s.mu.TryLock() {
		s.foldLocked(foldAtOnce)
		s.mu.Unlock()
	}
	if next := r.nextSample.Load(); int64(now) >= next &&
		r.nextSample.CompareAndSwap(next, int64(now+sampleEvery)) {
		r.sample(now)
	}
}

// sample notes how deep the queue is, unless a reader is at it.
func (r *recorder[T]) sample(now time.Duration) {
	stats, ok := r.stats()
	s := &r.shards[0]
	if ok && s.mu.TryLock() {
		s.history.sample(now, stats.Ready, stats.InFlight)
		s.mu.Unlock()
	}
}

// foldLocked moves at most n results from the channel into the book.
func (s *shard[T]) foldLocked(n int) {
	for range n {
		select {
		case x := <-s.results:
			s.history.count(x.run)
			s.book.add(x.item, x.run)
		default:
			return
		}
	}
}

// read calls f with the lock held, after moving all that is in the channel. It
// is to be short.
func (s *shard[T]) read(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.foldLocked(pending)
	f()
}

// readAtOnce is how many items are read in one lock hold.
const readAtOnce = 128

// lasts returns the last run of each item that is remembered.
func (r *recorder[T]) lasts() map[T]run {
	lasts := make(map[T]run)
	for n := range r.shards {
		s := &r.shards[n]
		for from, more := uint32(firstEntry), true; more; from += readAtOnce {
			s.read(func() {
				entries := &s.book.entries
				more = from < entries.len
				for i := from; i < min(from+readAtOnce, entries.len); i++ {
					if e := entries.at(i); e.count > 0 {
						lasts[e.item] = *s.book.last(e)
					}
				}
			})
		}
	}
	return lasts
}

// bound returns how many runs are remembered at most.
func (r *recorder[T]) bound() int { return shardCount * r.shards[0].book.bound }
