// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"hash/maphash"
	"slices"
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
// next one who comes, or by the next reader. Only readers wait for a lock. When the
// channel is full, results are dropped, and counted.
type recorder[T comparable] struct {
	begin   time.Time
	seed    maphash.Seed
	shards  [shardCount]shard[T]
	totals  [len(outcomes)]atomic.Uint64 // runs since the beginning
	dropped atomic.Uint64                // of these

	format     func() errorFormat
	queue      Source[T] // to sample the depth of; may be nil
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

func newRecorder[T comparable](bound int, format func() errorFormat, queue Source[T]) *recorder[T] {
	r := &recorder[T]{begin: time.Now(), seed: maphash.MakeSeed(), format: format, queue: queue}
	for i := range r.shards {
		r.shards[i].results = make(chan result[T], pending)
		r.shards[i].book = newBook[T](max(bound/shardCount, perItem))
	}
	return r
}

// shard returns that of an item.
func (r *recorder[T]) shard(item T) *shard[T] {
	return &r.shards[maphash.Comparable(r.seed, item)%shardCount]
}

// record takes a result. It never blocks.
func (r *recorder[T]) record(x reconcile.Result[T]) {
	now, s := time.Since(r.begin), r.shard(x.Item)
	if i := slices.Index(outcomes[:], x.Outcome); i >= 0 {
		r.totals[i].Add(1)
	}
	next := duration(x.Next)
	if x.Next == 0 && x.Outcome != reconcile.OutcomeRequeued && x.Outcome != reconcile.OutcomeRetrying {
		next = none
	}
	select {
	case s.results <- result[T]{x.Item, run{
		Ended:    moment(r.begin.UnixNano() + int64(now)),
		Outcome:  x.Outcome,
		Duration: duration(x.Duration),
		Waited:   duration(x.Waited),
		Next:     next,
		Failures: x.Failures,
		Error:    r.format().text(x.Err, maxText),
	}}:
	default:
		r.dropped.Add(1)
	}
	if s.mu.TryLock() {
		r.foldLocked(s, foldAtOnce)
		s.mu.Unlock()
	}
	if next := r.nextSample.Load(); int64(now) >= next &&
		r.nextSample.CompareAndSwap(next, int64(now+sampleEvery)) {
		r.sample(now)
	}
}

// sample notes how deep the queue is, unless a reader is at it.
func (r *recorder[T]) sample(now time.Duration) {
	if r.queue == nil {
		return
	}
	stats, s := r.queue.Stats(), &r.shards[0]
	if s.mu.TryLock() {
		s.history.sample(now, stats.Ready, stats.InFlight)
		s.mu.Unlock()
	}
}

// foldLocked moves at most n results from the channel into the book.
func (r *recorder[T]) foldLocked(s *shard[T], n int) {
	for range n {
		select {
		case x := <-s.results:
			s.history.count(time.Duration(int64(x.Ended)-r.begin.UnixNano()), &x.run)
			s.book.add(x.item, x.run)
		default:
			return
		}
	}
}

// step returns by how much the wall clock was stepped since the beginning.
func (r *recorder[T]) step() moment { return moment(onClock(r.begin).Sub(r.begin)) }

// read returns the last run of each item that is remembered, and what is known of
// all runs.
func (r *recorder[T]) read() (map[T]run, *measures) {
	now, step := time.Since(r.begin), r.step()
	r.sample(now)
	lasts, m := make(map[T]run), &measures{age: now, dropped: r.dropped.Load()}
	for i := range m.totals {
		m.totals[i] = r.totals[i].Load()
	}
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		r.foldLocked(s, pending)
		for item, e := range s.book.items {
			last := e.newest.run
			last.Ended += step
			lasts[item] = last
		}
		m.add(&s.history)
		s.mu.Unlock()
	}
	m.sum()
	return lasts, m
}

// history returns the runs of an item, the latest first.
func (r *recorder[T]) history(item T) []run {
	s := r.shard(item)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.foldLocked(s, pending)
	runs, step := s.book.history(item), r.step()
	for i := range runs {
		runs[i].Ended += step
	}
	return runs
}

// bound returns how many runs are remembered at most.
func (r *recorder[T]) bound() int { return shardCount * r.shards[0].book.bound }
