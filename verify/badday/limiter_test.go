// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"golang.org/x/time/rate"
)

// A limiter of golang.org/x/time/rate fits into a Reconciler by one line.
func TestLimiterFitsIntoAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := rate.NewLimiter(1, 2)
		q := reconcile.NewQueue[int]()
		for i := range 5 {
			q.Enqueue(i)
		}
		q.Close()
		begun := time.Now()
		r := &reconcile.Reconciler[int]{
			Queue: q, Workers: 5, Logger: slog.New(slog.DiscardHandler),
			Reconcile: func(context.Context, int) error { return nil },
			Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
				return nil, limiter.Wait(ctx)
			},
		}
		if err := r.Run(t.Context()); err != nil || time.Since(begun) != 3*time.Second {
			t.Errorf("Run = %v after %v, want nil after 3s", err, time.Since(begun))
		}
	})
}
