// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// This file has the workloads with delays.

// settle returns once q has seen everything that was done to it: some hand a
// delay to a goroutine, in order. It takes what is ready until then and hands it
// to early, if that is not nil; otherwise nothing may be.
func settle(q queue[string], early func(item string) error) error {
	const last = "settle/last-00000000"
	q.AddAfter(last, time.Nanosecond)
	for {
		item, ok := q.Get()
		switch {
		case !ok:
			return errStuck
		case item == last:
			q.Done(item)
			return nil
		case early == nil:
			return fmt.Errorf("took %q, want nothing yet", item)
		}
		if err := early(item); err != nil {
			return err
		}
	}
}

// dice returns the same numbers for every implementation, others each round.
func (t *trial) dice() *rand.Rand {
	return rand.New(rand.NewPCG(uint64(t.round), 0))
}

// laterThanThis is before the first of many delays is over: none may end while
// they are still being added, on a slow machine either.
const laterThanThis = stuckAfter

// fillDelayed adds n items that wait, all for longer than a trial may take, and
// up to an hour more. In the first round, one of thousand waits much less; these
// must come out, each once, not too early, and nothing else: they stand for all
// the others.
func fillDelayed(t *trial) error {
	items, delays, r := names(t.n), make([]time.Duration, t.n), t.dice()
	soon := time.Duration(t.n) * 10 * time.Microsecond
	probes := 0
	for i := range delays {
		delays[i] = laterThanThis + rand.N(time.Hour)
		if t.round == 0 && r.IntN(1000) == 0 {
			delays[i] = soon + time.Duration(probes)*time.Microsecond
			probes++
		}
	}
	before, goroutines := liveBytes(), runtime.NumGoroutine()
	q := use(t, t.impl.delayed())
	began, seen := time.Now(), make(map[string]bool)
	probe := func(item string) error {
		if d := delays[index(item)]; seen[item] || time.Since(began) < d {
			return fmt.Errorf("%q came %v after the start, again: %t; want once, after %v", item, time.Since(began), seen[item], d)
		}
		seen[item] = true
		q.Done(item)
		return nil
	}
	t.start()
	for i, item := range items {
		q.AddAfter(item, delays[i])
	}
	if err := settle(q, probe); err != nil { // some on a slow machine
		return err
	}
	t.stop("", t.n)
	t.values["held"] = (liveBytes() - before) / float64(t.n)
	runtime.KeepAlive(items) // it was there before
	t.values["goroutines"] = float64(runtime.NumGoroutine() - goroutines)
	for len(seen) < probes {
		item, ok := q.Get()
		if !ok {
			return errStuck
		}
		if err := probe(item); err != nil {
			return err
		}
	}
	return empty(q)
}

// fire lets n delays end within a fifth of a second, and measures how late the
// items come out at one worker, and what it all costs.
func fire(t *trial) error {
	items, delays, r := names(t.n), make([]time.Duration, t.n), t.dice()
	lead := time.Duration(t.n) * 10 * time.Microsecond // to add them all
	for i := range delays {
		delays[i] = lead + time.Duration(r.Int64N(int64(200*time.Millisecond)))
	}
	q := use(t, t.impl.delayed())
	due, late, l := make([]time.Duration, t.n), make([]time.Duration, t.n), t.ledger(t.n)
	t.start()
	for i, item := range items {
		now := time.Since(t.began)
		due[i] = max(now, delays[i])
		q.AddAfter(item, delays[i]-now)
	}
	for range items {
		item, ok := q.Get()
		if !ok {
			return errStuck
		}
		i := index(item)
		l.take(i)
		if late[i] = time.Since(t.began) - due[i]; late[i] < 0 {
			return fmt.Errorf("%q came %v too early", item, -late[i])
		}
		q.Done(item)
	}
	t.stop("", t.n)
	t.values["total cpu"] = t.values["cpu"] * float64(t.n)
	t.lateness(late)
	return empty(q)
}

// requeue lets 4 workers take n items and give each back for a millisecond, for
// a while, and counts how often they do.
func requeue(t *trial) error {
	const workers, pause = 4, time.Millisecond
	lasts := [...]time.Duration{tiny: 20 * time.Millisecond, quick: 200 * time.Millisecond, full: 500 * time.Millisecond}[t.mode]
	items, q, l := names(t.n), use(t, t.impl.delayed()), t.ledger(t.n)
	notBefore := make([]time.Duration, t.n)
	var stop atomic.Bool
	var cycles atomic.Int64
	work := func() {
		n := int64(0)
		defer func() { cycles.Add(n) }()
		for {
			item, ok := q.Get()
			if !ok {
				return
			}
			i := index(item)
			l.take(i)
			watched := i%16 == 0 // reading the clock for all would be most of the work
			if watched && time.Since(t.began) < notBefore[i] {
				t.fail("%q came back too early", item)
			}
			if stop.Load() {
				l.finish() // and stays taken: it must not come again
				q.Done(item)
				continue
			}
			n++
			if watched {
				notBefore[i] = time.Since(t.began) + pause
			}
			l.giveBack(i)
			q.RequeueAfter(item, pause)
		}
	}
	t.start()
	for _, item := range items {
		q.Add(item)
	}
	var workersDone sync.WaitGroup
	for range workers {
		workersDone.Go(work)
	}
	time.Sleep(lasts)
	stop.Store(true)
	if err := t.wait(l.all); err != nil {
		return err
	}
	t.stop("", 1)
	if err := empty(q); err != nil {
		return err
	}
	q.Close()
	workersDone.Wait()
	n := float64(cycles.Load())
	for _, key := range []string{"wall", "cpu", "allocs", "bytes"} {
		t.values[key] /= n
	}
	t.values["rate"] = 1e9 / t.values["wall"]
	return nil
}

// failAll takes n items, all of which fail, and gives them back for a back-off.
func failAll(t *trial) error {
	items, q := names(t.n), use(t, t.impl.limited())
	add(q, items)
	t.start()
	for _, want := range items {
		if err := expect(q, want); err != nil {
			return err
		}
		q.Fail(want)
	}
	if err := settle(q, nil); err != nil {
		return err
	}
	t.stop("", t.n)
	return empty(q)
}
