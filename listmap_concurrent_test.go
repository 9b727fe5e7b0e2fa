// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reconkernel/reconcile"
)

func TestListMapLosesNothingUnderConcurrency(t *testing.T) {
	const writers, each = 8, 300
	var l reconcile.ListMap[int, int]
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				l.AddItem(0, w*each+i) // one key for all
				l.AddItem(1+w, i)      // one of its own
			}
		})
	}
	all.Wait()
	if l.Size() != 1+writers || l.KeySize(0) != writers*each {
		t.Errorf("%d keys and %d values in the common one, want %d and %d", l.Size(), l.KeySize(0), 1+writers, writers*each)
	}
	last := make(map[int]int) // by writer: its values come in its order
	for _, v := range l.Range(0) {
		w := v / each
		if next, ok := last[w]; ok && v <= next {
			t.Errorf("value %d after %d of one writer", v, next)
		}
		last[w] = v
	}
	for w := range writers {
		wantList(t, &l, 1+w, slices.Collect(seqTo(each))...)
	}
}

func seqTo(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// Each value is removed by exactly one of those that want it.
func TestListMapRemovesEachValueOnceUnderConcurrency(t *testing.T) {
	const values = 2000
	var l reconcile.ListMap[string, int]
	var removed, added atomic.Int64
	var all sync.WaitGroup
	add := func(v int) { l.AddItem("k", v); added.Add(1) }
	for w := range 2 {
		all.Go(func() {
			for i := range values / 2 {
				add(w*values + i)
			}
		})
	}
	for w := range 6 {
		all.Go(func() {
			for i := range 200 {
				switch (w + i) % 4 {
				case 0:
					removed.Add(int64(l.RemoveItems("k", even, 0)))
				case 1:
					removed.Add(int64(l.RemoveItems("k", always, 3)))
				case 2:
					if l.RemoveItem("k", func(v int) bool { return v%3 == 0 }) {
						removed.Add(1)
					}
				case 3:
					for _, v := range l.Range("k") {
						if v%7 == 0 && l.RemoveItem("k", is(v)) {
							removed.Add(1)
						}
					}
					for range l.RangeAll() {
						break
					}
				}
			}
		})
	}
	all.Wait()
	if left := int64(l.KeySize("k")); removed.Load()+left != added.Load() {
		t.Errorf("%d added, %d removed, %d left", added.Load(), removed.Load(), left)
	}
}
