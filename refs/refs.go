// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package refs records which items depend on what, so that a change of a dependency runs
// the items that depend on it. It needs nothing of the kernel: [Refs.Of] is a function for
// reconcile.Map.
package refs

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
)

// Refs records the dependencies of items, so that a change of a dependency runs the items
// that depend on it:
//
//	keys := reconcile.Map(buckets, refs.Of) // an Enqueuer of keys
//
// The zero Refs is empty and ready. Its methods may be called from any
// goroutine.
type Refs[D, T comparable] struct {
	mu    sync.RWMutex
	deps  map[T][]D
	items map[D]map[T]uint64 // with the number of the call of Set
	calls uint64             // of Set
}

// Set replaces the dependencies of an item; without any it removes the item. A
// reconcile function calls it each time, with all dependencies that it has read. Set
// panics, and changes nothing, if the item or a dependency cannot be compared or is
// not equal to itself, as a NaN: it would never be found again.
func (r *Refs[D, T]) Set(item T, deps ...D) {
	mustBeKey("item", item)
	for _, d := range deps {
		mustBeKey("dependency", d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.deps[item] {
		if delete(r.items[d], item); len(r.items[d]) == 0 {
			delete(r.items, d)
		}
	}
	if len(deps) == 0 {
		delete(r.deps, item)
		return
	}
	if r.deps == nil {
		r.deps = make(map[T][]D)
		r.items = make(map[D]map[T]uint64)
	}
	r.deps[item] = slices.Clone(deps)
	r.calls++
	for _, d := range deps {
		if r.items[d] == nil {
			r.items[d] = make(map[T]uint64)
		}
		r.items[d][item] = r.calls
	}
}

// mustBeKey panics if a value cannot be the key of a map, or would not be found.
func mustBeKey[K comparable](what string, key K) {
	var equal bool
	defer func() {
		if recover() != nil {
			panic(fmt.Sprintf("refs: Set: the %s %v is a %T, which cannot be compared", what, key, key))
		}
		if !equal {
			panic(fmt.Sprintf("refs: Set: the %s %v is not equal to itself, and would never be found again", what, key))
		}
	}()
	equal = key == key
}

// Of returns a sequence of the items that depend on dep when the range loop over it
// begins, in the order of the last call of Set for each item.
func (r *Refs[D, T]) Of(dep D) iter.Seq[T] {
	return func(yield func(T) bool) {
		set := r.itemsOf(dep)
		items := slices.AppendSeq(make([]T, 0, len(set)), maps.Keys(set))
		slices.SortFunc(items, func(a, b T) int { return cmp.Compare(set[a], set[b]) })
		for _, item := range items {
			if !yield(item) {
				return
			}
		}
	}
}

func (r *Refs[D, T]) itemsOf(dep D) map[T]uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock() // A dep that cannot be compared panics.
	return maps.Clone(r.items[dep])
}
