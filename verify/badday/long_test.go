// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFight runs two versions of a service that fight for the same assets. The fight
// shows in the requeues, which become many times as frequent. Soon after one version has
// ended, all assets are as the other desires them.
func TestFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const assets = 200
		w := newWorld(assets)
		w.rate, w.tokens = 100, 200 // as many calls as both can use
		ctx, cancel := context.WithTimeout(t.Context(), 3*hour)
		defer cancel()
		w.live(ctx, assets/10, assets/10)
		var p *parts
		w.watch = func(all *parts) { p = all }
		var both sync.WaitGroup
		both.Go(func() { ours(ctx, w, nil) })
		synctest.Wait()
		w.watch = nil
		time.Sleep(hour)
		alone := p.regions.Stats().Requeued
		fight, end := context.WithTimeout(ctx, hour)
		defer end()
		ours(otherVersion(fight), w, nil)
		fighting := p.regions.Stats().Requeued - alone
		time.Sleep(5 * minute)
		w.mu.Lock()
		wrong := 0
		for name, d := range w.outOfSync {
			if time.Since(d.since) > 5*minute {
				t.Logf("%s has been out of sync for %v", name, time.Since(d.since))
				wrong++
			}
		}
		w.mu.Unlock()
		if wrong > 0 {
			t.Errorf("five minutes after the fight %d assets have been out of sync since then", wrong)
		}
		t.Logf("items went back to the queue %d times in the hour before, and %d times in the fight", alone, fighting)
		if fighting < 10*alone {
			t.Errorf("the fight is not seen: items went back to the queue %d times in it, and %d times in the hour before", fighting, alone)
		}
		cancel()
		both.Wait()
	})
}

// TestMonth checks that nothing grows in a month: the calls of a day, the calls of the
// worst minute, and the memory. With -short it is a week.
func TestMonth(t *testing.T) {
	const assets, day = 200, 24 * hour
	days := time.Duration(30)
	if testing.Short() {
		days = 7
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(assets)
		w.calls = make([]int, 0, days*24*3600+1000)
		w.corrected = make([]correction, 0, 2*days*24*3600/600)
		ctx, cancel := context.WithTimeout(t.Context(), days*day)
		defer cancel()
		w.live(ctx, 2, 1)
		var all sync.WaitGroup
		all.Go(func() { ours(ctx, w, nil) })
		memory := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		time.Sleep(2 * day)
		before := memory()
		time.Sleep(days*day - 2*day - hour)
		after := memory()
		<-ctx.Done()
		all.Wait()
		second, _ := between(w.calls, day, 2*day)
		last, _ := between(w.calls, (days-1)*day-hour, days*day-hour)
		worst := 0
		for at := (days - 1) * day; at < days*day-hour; at += minute {
			n, _ := between(w.calls, at, at+minute)
			worst = max(worst, n)
		}
		t.Logf("calls: %d on the second day, %d on the last, %d at most in a minute; memory: %d KiB, %d KiB", second, last, worst, before>>10, after>>10)
		if last > second+second/5 {
			t.Errorf("%d calls on the last day, and %d on the second", last, second)
		}
		if worst > assets/4 {
			t.Errorf("%d calls in a minute of the last day: the rechecks have come together", worst)
		}
		if after > before+1<<20 {
			t.Errorf("%d bytes at the end, %d after two days", after, before)
		}
		if w.deleted > 0 {
			t.Errorf("%d were deleted", w.deleted)
		}
	})
}
