// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package statuspage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/reconkernel/reconcile"
)

// TestMemory runs a million items, each of which fails with a text of its own.
func TestMemory(t *testing.T) {
	l := &Loop[string]{Name: "q", Runs: 1000}
	record := l.OnResult(nil)
	before := heap()
	random := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, 4*maxText)
	for i := range 20_000 {
		for k := range text[:16] {
			text[k] = 'a' + byte(random.IntN(26))
		}
		record(reconcile.Result[string]{
			Item:     fmt.Sprint("item ", i),
			Outcome:  []reconcile.Outcome{reconcile.OutcomeRetrying, reconcile.OutcomeGaveUp, reconcile.OutcomeSucceeded}[i%3],
			Err:      errors.New(string(text)),
			Failures: 1,
		})
	}
	after := heap()
	// Per run the text and some 200 bytes, of the run, its item and the index.
	if limit := int64(1000*(maxText+400) + 400_000); after-before > limit {
		t.Errorf("%d bytes more than before, want at most %d", after-before, limit)
	}
	runtime.KeepAlive(record)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
