// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package refs_test

import (
	"fmt"
	"slices"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/refs"
)

// An event of a key runs the buckets that said that they depend on it.
func ExampleRefs() {
	queue := reconcile.NewQueue[string]()
	var dependents refs.Refs[string, string] // keys, buckets
	dependents.Set("logs", "key-1")          // as Reconcile looks at them
	dependents.Set("photos", "key-1", "key-2")
	dependents.Set("tmp", "key-1")
	dependents.Set("tmp") // is gone

	keys := reconcile.Map(queue, dependents.Of)
	keys.Enqueue("key-1")
	fmt.Println(queue.Has("logs"), queue.Has("photos"), queue.Len())
	fmt.Println(slices.Collect(dependents.Of("key-2")))
	// Output:
	// true true 2
	// [photos]
}
