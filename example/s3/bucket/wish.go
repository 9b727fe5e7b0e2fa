// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package bucket is a controller that keeps the buckets of an S3 store as
// somebody wishes them to be.
//
// [Controller] is the part to copy from. What feeds it is another's affair: a
// file, a key-value store, objects of a cluster. Whatever it is, it enqueues the
// names of what has changed, and says when asked what is wished for now.
package bucket

import "maps"

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
