// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package remember keeps what was handled, and at which version, so that the next
// process tells what is new, what changed and what is gone since then: the
// finalizer for what can have none.
//
// A run says that it begins before it has any effect, and that it is done after
// the last one:
//
//	if err := memory.Begin(name); err != nil {
//		return err
//	}
//	// read the thing and its version; make what it needs, or, if it is gone,
//	// remove what was made for it
//	return memory.Done(name, version) // or memory.Forget(name)
//
// [File.All] is the actual state of a [github.com/reconkernel/reconcile/keep.Set] whose
// things cannot be listed otherwise: see the example. What was begun and not done is then
// run again, also if it is gone by now, and so is what changed.
//
// A reconcile function has to bear a run too many, as always: if the process ends
// after the last effect and before Done, the item is run once more.
package remember
