// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package remember is a checkpoint file: it records the handled items and their versions,
// so that the next process knows which items are new, changed or gone since then. It does
// the work of a finalizer for things that cannot have one.
//
// A run calls Begin before its first effect, and Done after the last one:
//
//	if err := memory.Begin(name); err != nil {
//		return err
//	}
//	// read the thing and its version; create its dependents, or delete them if the
//	// thing is gone
//	return memory.Done(name, version) // or memory.Forget(name)
//
// [File.All] is the actual state of a [github.com/reconkernel/reconcile/keep.Set] whose
// things cannot be listed otherwise: see the example. Items that were begun and not done
// run again in the next process, also if they are gone by then, and so do items that
// changed.
//
// A reconcile function must be idempotent, as always: if the process ends after the last
// effect and before Done, the item runs once more.
package remember
