// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
)

// A handler is what an informer tells of its objects. An informer calls it from
// one goroutine.
type handler[T comparable] struct {
	source  *Source[T]
	q       reconcile.Enqueuer[T]
	now     func(T) // of an urgent event
	stopped atomic.Bool
	failed  chan error // the first failure, which ends Feed
}

func (h *handler[T]) OnAdd(v any, initial bool) {
	h.guard(func() error {
		obj, err := objectOf(v)
		if err != nil || !h.only(obj) {
			return err
		}
		if initial {
			h.pass(h.listed, obj)
		} else {
			h.pass(h.q.Enqueue, obj)
		}
		return nil
	})
}

// listed passes on an item of an object that is listed first: to the Background of
// a queue that has one, which is for items that are offered.
//
// An Offer is ignored if a run of the item is due or planned, so it is right only if
// a run that has still to begin will see the object. The informer's store has it by
// now. So that holds for an item that is ready now, and for one that waits for a recheck or
// unknown: if it is something else a moment later, that is by a run that begins, or
// began, after now. It does not hold for an item in flight, nor soon enough for one
// that waits for a plan or a retry.
func (h *handler[T]) listed(item T) {
	// Another kind of queue may not know what is in flight elsewhere.
	if q, ok := h.q.(*reconcile.Queue[T]); ok {
		if s := q.State(item); s.Phase == reconcile.PhaseIdle || s.Phase == reconcile.PhaseReady || s.Recheck {
			q.Offer(item)
			return
		}
	}
	h.q.Enqueue(item)
}

func (h *handler[T]) OnUpdate(before, after any) {
	h.guard(func() error {
		old, err := objectOf(before)
		if err != nil {
			return err
		}
		obj, err := objectOf(after)
		if err != nil {
			return err
		}
		was, is := h.only(old), h.only(obj)
		switch {
		case was && is:
			h.update(old, obj)
		case is:
			h.pass(h.q.Enqueue, obj)
		case was:
			h.pass(h.now, old)
		}
		return nil
	})
}

// update tells of an update of an object that mattered and does.
func (h *handler[T]) update(old, obj metav1.Object) {
	replaced := old.GetUID() != obj.GetUID()
	if !replaced && !VersionChanged(old, obj) {
		h.pass(h.q.Offer, obj)
		return
	}
	goes := obj.GetDeletionTimestamp() != nil
	changed := h.source.Changed
	if !replaced && !goes && changed != nil && !changed(old, obj) {
		return
	}
	enqueue := h.q.Enqueue
	if replaced || goes && old.GetDeletionTimestamp() == nil || old.GetGeneration() != obj.GetGeneration() {
		enqueue = h.now
	}
	h.pass(enqueue, obj, old)
}

func (h *handler[T]) OnDelete(v any) {
	h.guard(func() error {
		obj, err := objectOf(v)
		if err != nil {
			return err
		}
		// Of one that only its name is known of, nothing says that it did not matter.
		if _, nameOnly := obj.(*gone); !nameOnly && !h.only(obj) {
			return nil
		}
		h.pass(h.now, obj)
		return nil
	})
}

func (h *handler[T]) only(obj metav1.Object) bool {
	return h.source.Only == nil || h.source.Only(obj)
}

// pass passes on the items of the objects, each once.
func (h *handler[T]) pass(enqueue func(T), objs ...metav1.Object) {
	var told []T
	for i, obj := range objs {
		last := i == len(objs)-1
		for item := range h.source.keys(obj) {
			if len(objs) > 1 {
				if slices.Contains(told, item) {
					continue
				}
				if !last {
					told = append(told, item)
				}
			}
			enqueue(item)
		}
	}
}

// guard calls f, unless Feed ends, and has a failure, a panic or a Goexit in it end Feed.
// Without this, the panic would end the process: that is what informers do. A Goexit would
// end the goroutine of the informer, and no event would come any more.
func (h *handler[T]) guard(f func() error) {
	if h.stopped.Load() {
		return
	}
	err := error(&reconcile.PanicError{Value: "runtime.Goexit called"}) // unless f returns
	defer func() {
		if v := recover(); v != nil {
			err = &reconcile.PanicError{Value: v, Stack: debug.Stack()}
		}
		if err != nil {
			h.stopped.Store(true)
			select {
			case h.failed <- fmt.Errorf("%s: %w", h.source.what(), err):
			default: // not the first
			}
		}
	}()
	err = f()
}
