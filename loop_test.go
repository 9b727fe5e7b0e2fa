// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"reflect"
	"testing"
	"time"
)

type leasing[T comparable] struct{ *Queue[T] }

func (q leasing[T]) Lease(ctx context.Context, _ T) context.Context { return ctx }

// Runs are allocated together only where a context that is kept keeps little.
func TestRunsAtOnce(t *testing.T) {
	small := Reconciler[string]{Queue: NewQueue[string]()}
	timed, leased := small, small
	timed.Timeout = time.Second
	leased.Queue = leasing[string]{NewQueue[string]()}
	for name, c := range map[string]struct{ got, want int }{
		"small items":              {runsAtOnce(t, small), 16},
		"a context for each run":   {runsAtOnce(t, timed), 1},
		"a lease for each run":     {runsAtOnce(t, leased), 1},
		"items that are not small": {runsAtOnce(t, Reconciler[[128]byte]{Queue: NewQueue[[128]byte]()}), 1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d runs at once, want %d", name, c.got, c.want)
		}
	}
}

func runsAtOnce[T comparable](t *testing.T, r Reconciler[T]) int {
	r.Reconcile = func(context.Context, T) error { return nil }
	l, err := newLoop(&r)
	if err != nil {
		t.Fatal(err)
	}
	return l.runsAtOnce
}

// Items are strings in most programs, and each run allocates one of these.
func TestRunIsOneCacheLine(t *testing.T) {
	if size := reflect.TypeFor[run[string]]().Size(); size > 64 {
		t.Errorf("a run of a string is %d bytes, want 64", size)
	}
}
