// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package bucket is a controller that keeps the buckets of an S3 store as
// somebody wishes them to be.
//
// [Controller] is the part to copy from. What feeds it is another's affair: a
// file, a key-value store, objects of a cluster. Whatever it is, it enqueues the
// names of what has changed, and says when asked what is wished for now.
package bucket

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// A Wish says how one bucket is to be. The zero Wish is a bucket without
// anything: no versioning, no tags of its own, no policy, no markers.
type Wish struct {
	Versioning bool
	Tags       map[string]string
	Policy     string            // as JSON; "" means none
	Markers    map[string]string // name to text; they are objects below [MarkerPrefix]
}

// Equal reports whether two wishes ask for the same.
func (w Wish) Equal(other Wish) bool {
	return w.Versioning == other.Versioning && maps.Equal(w.Tags, other.Tags) &&
		samePolicy(w.Policy, other.Policy) && maps.Equal(w.Markers, other.Markers)
}

// Wishes hold what a [File] wishes for now, by the name of the bucket. The zero
// Wishes are empty and ready. All methods may be called from any goroutine, and none
// blocks.
type Wishes struct {
	mu  sync.Mutex // guards the field below
	all map[string]Wish
}

// Set puts a whole new version of the wishes in force. It returns the names of
// what is different now, sorted: new, changed or not wished for any more.
func (w *Wishes) Set(all map[string]Wish) (changed []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, wish := range all {
		if old, ok := w.all[name]; !ok || !old.Equal(wish) {
			changed = append(changed, name)
		}
	}
	for name := range w.all {
		if _, ok := all[name]; !ok {
			changed = append(changed, name)
		}
	}
	w.all = maps.Clone(all)
	slices.Sort(changed)
	return changed
}

// Get returns the wish for a bucket, if there is one. It is what a Controller
// asks; there is never an error.
func (w *Wishes) Get(_ context.Context, name string) (wish Wish, wanted bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wish, wanted = w.all[name]
	return wish, wanted, nil
}

// Names lists all buckets that are wished for, sorted. It is what a Poller asks.
func (w *Wishes) Names(context.Context) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.all)), nil
}
