// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestWaitIdleWithAReconciler(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		runs := map[string]int{}
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Retry: minutes, Logger: unlogged(),
			Reconcile: func(_ context.Context, item string) error {
				time.Sleep(time.Second)
				runs[item]++
				switch {
				case item == "b" && runs[item] < 3:
					return errBoom // again after 1 and 2 minutes
				case item == "c":
					return reconcile.RequeueAfter(time.Hour)
				}
				return nil
			},
		})
		start := time.Now()
		for _, item := range []string{"a", "b", "c"} {
			q.Enqueue(item)
		}
		q.EnqueueAfter("d", 24*time.Hour)
		all := startWait(func() error { return q.WaitIdle(t.Context()) })
		a := startWait(func() error { return q.WaitItem(t.Context(), "a") })
		b := startWait(func() error { return q.WaitItem(t.Context(), "b") })
		c := startWait(func() error { return q.WaitItem(t.Context(), "c") })
		time.Sleep(10 * time.Minute)
		for name, w := range map[string]struct {
			c    <-chan waitResult
			want time.Duration
		}{
			"WaitItem a": {a, time.Second},
			"WaitItem b": {b, 2*time.Second + time.Minute + time.Second + 2*time.Minute + time.Second},
			"WaitItem c": {c, 3 * time.Second},
			"WaitIdle":   {all, 2*time.Second + time.Minute + time.Second + 2*time.Minute + time.Second},
		} {
			if r := mustHaveReturned(t, w.c); r.err != nil || r.at.Sub(start) != w.want {
				t.Errorf("%s: %v after %v, want nil after %v", name, r.err, r.at.Sub(start), w.want)
			}
		}
		run.end()
	})
}

// In a run, a queue is not idle, and its item has not settled.
func TestWaitInARun(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Logger: unlogged(),
			Reconcile: func(ctx context.Context, item string) error {
				for name, wait := range map[string]func(context.Context) error{
					"WaitIdle": q.WaitIdle,
					"WaitItem": func(ctx context.Context) error { return q.WaitItem(ctx, item) },
				} {
					ctx, cancel := context.WithTimeout(ctx, time.Minute)
					if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s in a run: %v, want %v", name, err, context.DeadlineExceeded)
					}
					cancel()
				}
				return nil
			},
		})
		q.Enqueue("x")
		if err := q.WaitIdle(t.Context()); err != nil {
			t.Errorf("WaitIdle: %v", err)
		}
		run.end()
	})
}
