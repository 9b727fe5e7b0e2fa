// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package bucket is a controller that keeps the buckets of an S3 store in their
// desired state.
//
// [Controller.Set] is the part to copy from: it returns a desired-state set of package
// keep. The desired state may come from a file, a database, or objects of a cluster.
package bucket

import "maps"

// A Spec is the desired state of one bucket. The zero Spec is a bucket without
// anything: no versioning, no tags of its own, no policy, no markers.
type Spec struct {
	Versioning bool
	Tags       map[string]string
	Policy     string            // as JSON; "" means none
	Markers    map[string]string // name to text; they are objects below [MarkerPrefix]
}

// Equal reports whether two specs are equal.
func (w Spec) Equal(other Spec) bool {
	return w.Versioning == other.Versioning && maps.Equal(w.Tags, other.Tags) &&
		samePolicy(w.Policy, other.Policy) && maps.Equal(w.Markers, other.Markers)
}
