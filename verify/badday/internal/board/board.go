// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package board has what example/controller.go needs of its board, which knows no
// more than what is wished for.
package board

import "github.com/reconkernel/reconcile"

// A Status is a reason, as that of the example.
type Status string

func (s Status) Error() string { return string(s) }

const (
	InSync    Status = "in sync"
	Creating  Status = "creating"
	Updating  Status = "updating"
	Removing  Status = "removing"
	Waiting   Status = "waiting"
	Throttled Status = "throttled"
)

// A Board asks Wish what is wanted.
type Board[T comparable, W any] struct {
	Wish func(T) (W, bool)
}

func New[T comparable, W any](*reconcile.Queue[T], func(a, b W) bool, func(a, b T) int) *Board[T, W] {
	return &Board[T, W]{}
}

func (b *Board[T, W]) Wanted(item T) (W, bool) { return b.Wish(item) }

func (b *Board[T, W]) WhyNot(T) error { return nil }

func (b *Board[T, W]) Result(reconcile.Result[T], ...T) {}

func (b *Board[T, W]) Listed([]T, func(i int, want W) bool, error) {}
