// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oldnames_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/docs/guides/oldnames"
)

// TestServiceBehindTheOldNames runs what a service of simple-controller-runtime does: a
// poll, an event during a run, two workers, and items that fail, panic and wait.
func TestServiceBehindTheOldNames(t *testing.T) {
	var log strings.Builder
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})))
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait() // until all have ended
		defer stop()
		start := time.Now()
		runs := make(chan string, 100)
		queue := oldnames.NewQueue[string]()
		poller := oldnames.Poller[string]{
			PollPeriod: time.Minute,
			GetItems:   func(context.Context) ([]string, error) { return []string{"fails", "panics", "waits"}, nil },
			Queue:      queue,
		}
		poller.Start(ctx)
		reconciler := oldnames.Reconciler[string]{
			ReconcileFunction: func(_ context.Context, item string) error {
				runs <- item + " " + time.Since(start).String()
				switch item {
				case "fails":
					return errors.New("no answer")
				case "panics":
					panic("a bug")
				case "waits":
					return oldnames.NewRequeueAfterError(90*time.Second, "busy")
				}
				time.Sleep(10 * time.Second)
				return nil
			},
			ReconcileTimeout: time.Minute,
			Queue:            queue,
		}
		reconciler.Start(ctx)
		reconciler.Start(ctx)
		missing := oldnames.Reconciler[string]{Queue: queue}
		missing.Start(ctx)

		time.Sleep(time.Second)
		queue.Enqueue("event")
		time.Sleep(time.Second)
		queue.Enqueue("event") // in flight
		time.Sleep(100 * time.Second)
		synctest.Wait()
		close(runs)
		var got []string
		for run := range runs {
			got = append(got, run)
		}
		slices.Sort(got)
		want := []string{"event 11s", "event 1s", "fails 0s", "fails 1m0s", "panics 0s", "panics 1m0s", "waits 0s", "waits 1m30s"}
		if !slices.Equal(got, want) {
			t.Errorf("runs\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
	if !strings.Contains(log.String(), "not started") || !strings.Contains(log.String(), "Reconcile is required") {
		t.Errorf("the log has not that the function is missing:\n%s", log.String())
	}
}
