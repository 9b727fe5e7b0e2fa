// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reconkernel/reconcile"
)

// The limit of runs at once is halved when the far side has too much to do: half
// of one run is one still. Each limit's worth of good runs adds one, if the limit
// is in the way.
func ExampleGate() {
	errTooMany := errors.New("429 Too Many Requests")
	gate := &reconcile.Gate{
		Max:  8,
		Slow: func(err error, _ time.Duration) bool { return errors.Is(err, errTooMany) },
	}
	queue := reconcile.NewQueue[string]()
	for _, bucket := range []string{"logs", "photos", "music", "books"} {
		queue.Enqueue(bucket)
	}
	queue.Close()

	busy := true
	r := reconcile.Reconciler[string]{
		Queue: queue,
		Gate:  gate,
		Reconcile: func(context.Context, string) error {
			if busy {
				busy = false
				return errTooMany
			}
			return nil
		},
		Retry:    reconcile.NoRetry,
		OnResult: func(r reconcile.Result[string]) { fmt.Println(r.Item, r.Outcome, gate.Stats().Limit) },
		Logger:   slog.New(slog.DiscardHandler),
	}
	fmt.Println("limit", gate.Stats().Limit)
	if err := r.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// limit 8
	// logs gave up 1
	// photos succeeded 2
	// music succeeded 2
	// books succeeded 2
}

// Runs start 20 milliseconds apart, but for two after a pause.
func ExampleGate_budget() {
	gate := &reconcile.Gate{Every: 20 * time.Millisecond, Burst: 2}
	queue := reconcile.NewQueue[int]()
	for i := range 5 {
		queue.Enqueue(i)
	}
	queue.Close()
	begin := time.Now()
	r := reconcile.Reconciler[int]{
		Queue:     queue,
		Gate:      gate,
		Workers:   5,
		Reconcile: func(context.Context, int) error { return nil },
		Logger:    slog.New(slog.DiscardHandler),
	}
	if err := r.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println("five runs in less than 60ms:", time.Since(begin) < 60*time.Millisecond)
	// Output:
	// five runs in less than 60ms: false
}
