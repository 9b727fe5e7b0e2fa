// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A copy that takes hours is given up as soon as somebody wants another one. No
// failure is counted, and the next run begins at once.
func ExampleUntilChanged() {
	var wish struct { // what is wanted of the disk
		sync.Mutex
		image string
	}
	wish.image = "debian-12"
	queue := reconcile.NewQueue[string]()
	copying := make(chan bool)

	// image makes the disk a copy of an image. The first takes hours.
	copyImage := func(ctx context.Context, image string) error {
		if image == "debian-13" {
			return nil
		}
		copying <- true
		<-ctx.Done()
		return fmt.Errorf("copy of %s: %w", image, context.Cause(ctx))
	}
	r := reconcile.Reconciler[string]{
		Queue: queue,
		Reconcile: func(ctx context.Context, disk string) error {
			ctx, stop := reconcile.UntilChanged(ctx)
			defer stop()
			wish.Lock()
			image := wish.image
			wish.Unlock()
			return copyImage(ctx, image)
		},
		OnResult: func(r reconcile.Result[string]) { fmt.Printf("%s, %d failures: %v\n", r.Outcome, r.Failures, r.Err) },
		Logger:   slog.New(slog.DiscardHandler),
	}

	queue.Enqueue("disk-1")
	go func() {
		<-copying
		wish.Lock()
		wish.image = "debian-13"
		wish.Unlock()
		queue.Enqueue("disk-1")
		queue.Close()
	}()
	r.Run(context.Background())
	// Output:
	// requeued, 0 failures: copy of debian-12: reconcile: item was enqueued again
	// succeeded, 0 failures: <nil>
}

// A job that runs once: it enqueues all there is, waits until that is done, with
// all retries, and ends.
func ExampleQueue_WaitIdle() {
	queue := reconcile.NewQueue[string]()
	failed := false
	r := reconcile.Reconciler[string]{
		Queue: queue,
		Reconcile: func(_ context.Context, bucket string) error {
			if bucket == "photos" && !failed {
				failed = true
				return fmt.Errorf("server is busy")
			}
			fmt.Println("tidied up", bucket)
			return nil
		},
		Retry:  reconcile.Backoff(time.Millisecond, time.Second),
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, bucket := range []string{"photos", "logs"} {
		queue.Enqueue(bucket)
	}
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })

	err := queue.WaitIdle(context.Background())
	end()
	running.Wait()
	fmt.Println(err)
	// Output:
	// tidied up logs
	// tidied up photos
	// <nil>
}

// What somebody asked for is waited for, and no longer than he has time.
func ExampleQueue_WaitItem() {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("disk-1") // and nobody works

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(queue.WaitItem(ctx, "disk-1"))
	fmt.Println(queue.WaitItem(ctx, "disk-2"))
	// Output:
	// reconcile: item disk-1 is ready, after 0 failures in a row: context deadline exceeded
	// <nil>
}
