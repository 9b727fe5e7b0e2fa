// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package explore

import (
	"runtime"
	"testing"
	"time"
)

// The memory does not grow with the plans.
func TestMemory(t *testing.T) {
	held := func(plans int) uint64 {
		s := crowd(5)
		start := s.Start
		s.Start = func(proc *Process, w *shelf) {
			start(proc, w)
			buffer := make([]byte, 1<<16)
			go func() { // like the queue of client-go 0.34: it looks whether to end
				for proc.Context().Err() == nil {
					time.Sleep(500 * time.Millisecond)
				}
				runtime.KeepAlive(buffer)
			}()
		}
		s.Plans = plans
		x := explorerOf(t, s)
		x.explore()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		runtime.KeepAlive(x)
		return m.HeapAlloc
	}
	few, many := held(400), held(1600)
	if many > few+few/4+1<<20 {
		t.Errorf("after 400 plans %d bytes are held, after 1600 %d", few, many)
	}
}
