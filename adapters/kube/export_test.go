// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

// Writes is what a Controller knows of its own writes.
type Writes[T comparable] = writes[T]

// Known returns of how many items w remembers a write.
func (w *writes[T]) Known() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.last)
}

// ObjectOf is what handlers make of what an informer tells them.
var ObjectOf = objectOf
