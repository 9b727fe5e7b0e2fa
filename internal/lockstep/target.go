// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
)

// On has operations carried out on q: see [model.Op.Do].
func On[T comparable](q *reconcile.Queue[T]) model.Target[T] { return target[T]{q} }

type target[T comparable] struct{ *reconcile.Queue[T] }

// Requeue has the name of the queue's Requeue, and the model's words.
func (t target[T]) Requeue(item T, w model.RequeueOptions) {
	t.Queue.Requeue(item, reconcile.RequeueOptions(w))
}
