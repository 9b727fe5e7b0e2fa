// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/batch"
)

// A hundred machines are looked at by ten calls: those of the ten workers join.
func ExampleNew() {
	var calls atomic.Int32
	describe := batch.New(10, time.Second, func(_ context.Context, ids []int) ([]string, error) {
		calls.Add(1) // of the API of the cloud
		states := make([]string, len(ids))
		for i := range ids {
			states[i] = "running"
		}
		return states, nil
	})

	queue := reconcile.NewQueue[int]()
	for id := range 100 {
		queue.Enqueue(id)
	}
	queue.Close()
	var running atomic.Int32
	r := reconcile.Reconciler[int]{
		Queue:   queue,
		Workers: 10,
		Reconcile: func(ctx context.Context, id int) error {
			state, err := describe(ctx, id)
			if state == "running" {
				running.Add(1)
			}
			return err
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	if err := r.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(running.Load(), "run, by", calls.Load(), "calls")
	// Output: 100 run, by 10 calls
}
