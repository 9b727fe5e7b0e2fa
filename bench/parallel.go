// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// This file has the workloads with many goroutines.

// serve runs f for each item that q hands out, in so many workers, until q is
// closed. The function that it returns waits for them.
func serve(q queue[string], workers int, f func(item string)) (wait func()) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				item, ok := q.Get()
				if !ok {
					return
				}
				f(item)
				q.Done(item)
			}
		})
	}
	return all.Wait
}

// crowd lets producers add n items, each once, while workers take them.
func crowd(t *trial, producers, workers int) error {
	items, q, l := names(t.n), use(t, t.impl.strings(t.n)), t.ledger(t.n)
	t.start()
	wait := serve(q, workers, func(item string) {
		l.take(index(item))
		l.finish()
	})
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for i := p; i < len(items); i += producers {
				q.Add(items[i])
			}
		})
	}
	all.Wait()
	if err := t.wait(l.all); err != nil {
		return err
	}
	t.stop("", t.n)
	q.Close()
	wait()
	return nil
}

// storm lets 8 producers add a thousand hot items n times in all, while 4 workers take
// them. An item is in one hand at a time, and after the last Add of each item
// a run of it begins.
func storm(t *trial) error {
	const producers, workers = 8, 4
	hot := min(1000, t.n/20)
	items, q, l := names(hot), use(t, t.impl.strings(hot)), t.ledger(hot)
	// Added counts one Add in 16, and all of the last turn: to count is not
	// free, and shared by everybody. Seen is what a run saw when it began.
	added, seen := make([]atomic.Int32, hot), make([]atomic.Int32, hot)
	t.start()
	wait := serve(q, workers, func(item string) {
		i := index(item)
		l.take(i)
		seen[i].Store(added[i].Load())
		if i%64 == 0 {
			t.dwell(time.Millisecond) // or two hands would hardly ever meet
		}
		l.giveBack(i)
	})
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			i := p * hot / producers
			for n := range t.n / producers {
				if n%16 == 0 {
					added[i].Add(1)
				}
				q.Add(items[i])
				if i++; i == hot {
					i = 0
				}
			}
		})
	}
	all.Wait()
	if t.mode == tiny {
		t.dwell(time.Microsecond)
	}
	for i, item := range items {
		added[i].Add(1)
		q.Add(item)
	}
	q.Len()
	t.stop("", t.n+hot)
	// Added was counted before each Add, so a run that sees less began before it.
	for i, item := range items {
		for seen[i].Load() != added[i].Load() {
			select {
			case <-t.ended:
				t.fail("%q was added, and no run of it began after that", item)
				return errStuck
			case <-time.After(time.Millisecond):
			}
		}
	}
	q.Close()
	wait()
	return nil
}

// dwell lets others run. In the tests it takes a time of theirs: in a bubble,
// everybody else has come to rest before it is over.
func (t *trial) dwell(d time.Duration) {
	if t.mode == tiny {
		time.Sleep(d)
	} else {
		runtime.Gosched()
	}
}

// wake measures how long an idle worker takes from Add to its start. Busy says
// that the producer goes on to work; otherwise it waits, as one does that has
// nothing more to add.
func wake(t *trial, busy bool) error {
	w, q := newWaker(t, busy), use(t, t.impl.strings(1))
	wait := serve(q, 1, w.started)
	defer wait()
	defer q.Close()
	return w.run(q.Add)
}

// A waker adds items one by one, each to an idle worker.
type waker struct {
	t     *trial
	busy  bool
	items []string
	base  time.Time
	item  string // that the worker took, published by at
	at    atomic.Int64
	done  chan struct{}
}

func newWaker(t *trial, busy bool) *waker {
	return &waker{t: t, busy: busy, items: names(manyNames), base: time.Now(), done: make(chan struct{}, 1)}
}

// started is called by the worker with the item that it took.
func (w *waker) started(item string) {
	now := time.Since(w.base)
	w.item = item
	w.at.Store(int64(now))
	w.done <- struct{}{}
}

func (w *waker) run(add func(item string)) error {
	late := make([]time.Duration, w.t.n)
	w.t.start()
	for i := range late {
		time.Sleep(200 * time.Microsecond) // the worker goes to sleep meanwhile
		w.at.Store(0)
		want := w.items[i%len(w.items)]
		added := time.Since(w.base)
		add(want)
		for w.busy && w.at.Load() == 0 {
		}
		if err := w.t.wait(w.done); err != nil {
			return err
		}
		if late[i] = time.Duration(w.at.Load()) - added; w.item != want {
			return fmt.Errorf("the worker took %q, want %q", w.item, want)
		}
	}
	w.t.stop("", len(late))
	w.t.lateness(late)
	return nil
}
