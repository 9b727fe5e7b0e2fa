// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package outcome_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/outcome"
)

// TestOf asks a Reconciler.
func TestOf(t *testing.T) {
	oops := errors.New("oops")
	for _, result := range []error{
		nil,
		oops,
		reconcile.Terminal(oops),
		reconcile.RequeueAfter(time.Hour),
		reconcile.RequeueWithin(time.Hour),
		reconcile.RecheckWithin(time.Hour),
		reconcile.RequeueError{},
		reconcile.RequeueError{Settled: true, Hold: true},
		fmt.Errorf("in order: %w", reconcile.RecheckWithin(time.Hour)),
		errors.Join(reconcile.RequeueAfter(time.Hour), reconcile.RecheckWithin(time.Hour)),
		errors.Join(reconcile.RecheckWithin(time.Hour), reconcile.RequeueAfter(time.Hour)),
		errors.Join(oops, reconcile.RecheckWithin(time.Hour)),
		errors.Join(reconcile.Terminal(oops), reconcile.RecheckWithin(time.Hour)),
		reconcile.Terminal(reconcile.RequeueAfter(time.Hour)),
	} {
		var outcomes []reconcile.Outcome
		q := reconcile.NewQueue[string]()
		r := &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(context.Context, string) error {
				q.Close()
				if len(outcomes) > 0 { // it asked for the next run at once
					return nil
				}
				return result
			},
			Logger:   slog.New(slog.DiscardHandler),
			Retry:    func(error, int) (time.Duration, bool) { return time.Hour, true },
			OnResult: func(r reconcile.Result[string]) { outcomes = append(outcomes, r.Outcome) },
		}
		q.Enqueue("x")
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := outcome.Of(result); got != outcomes[0] {
			t.Errorf("Of(%v) = %s, want %s", result, got, outcomes[0])
		}
	}
}
