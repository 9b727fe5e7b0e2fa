// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package lanes_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/lanes"
)

// The comment of Lanes.Lane says what a lane costs.
func TestCostOfALane(t *testing.T) {
	const n = 2000
	used := func() (bytes, goroutines int) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
	}
	for maxRunning, most := range map[int][2]int{0: {48_000, 4}, 1: {24_000, 2}} {
		synctest.Test(t, func(t *testing.T) {
			l := &lanes.Lanes[string, string]{
				Lane: func(item string) string { return item }, Logger: quiet, MaxRunning: maxRunning,
				Reconciler: func(string) *reconcile.Reconciler[string] {
					return &reconcile.Reconciler[string]{Timeout: time.Hour, Reconcile: func(ctx context.Context, _ string) error {
						<-ctx.Done()
						return ctx.Err()
					}}
				},
			}
			end := serve(t, l)
			bytes, goroutines := used()
			for i := range n {
				l.Enqueue(fmt.Sprint(i))
			}
			synctest.Wait()
			bytesNow, goroutinesNow := used()
			t.Logf("MaxRunning %d: %d bytes and %.1f goroutines a lane", maxRunning, (bytesNow-bytes)/n, float64(goroutinesNow-goroutines)/n)
			if b, g := (bytesNow-bytes)/n, (goroutinesNow-goroutines)/n; b > most[0] || g > most[1] {
				t.Errorf("MaxRunning %d: a lane costs %d bytes and %d goroutines, want %d and %d at most", maxRunning, b, g, most[0], most[1])
			}
			end()
		})
	}
}
