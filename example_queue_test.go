// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/reconkernel/reconcile"
)

// A queue without a Reconciler: take an item, work on it, give it back.
func ExampleQueue() {
	ctx := context.Background()
	q := reconcile.NewQueue[string]()
	q.Enqueue("bucket/logs")
	q.Enqueue("bucket/media")
	q.Enqueue("bucket/logs") // known already

	item, _ := q.Dequeue(ctx)
	fmt.Println("taken:", item)
	q.Enqueue(item) // something happened as it was being worked on
	q.Done(item)    // so it comes once more

	q.Close() // what is ready can still be taken
	for {
		item, err := q.Dequeue(ctx)
		if err == reconcile.ErrClosed {
			break
		}
		fmt.Println("taken:", item)
		q.Done(item)
	}
	// Output:
	// taken: bucket/logs
	// taken: bucket/media
	// taken: bucket/logs
}

// An event brings a run forward, unless it is held.
func ExampleQueue_EnqueueWithin() {
	q := reconcile.NewQueue[string]()
	q.EnqueueWithin("polled", time.Hour)   // in an hour at the latest
	q.EnqueueAfter("throttled", time.Hour) // in an hour and not before
	q.Enqueue("polled")
	q.Enqueue("throttled")
	fmt.Println(q.State("polled").Phase, q.State("throttled").Phase)

	q.EnqueueNow("throttled") // an operator insists
	fmt.Println(q.State("polled").Phase, q.State("throttled").Phase)
	// Output:
	// ready waiting
	// ready ready
}

// Polls see the same items again and again; Offer adds only those not known.
func ExampleQueue_Offer() {
	q := reconcile.NewQueue[string]()
	q.Enqueue("failing")
	item, _ := q.Dequeue(context.Background())
	q.Requeue(item, reconcile.Wait{Delay: time.Minute, Err: errors.New("no quota")})

	q.Offer("failing") // seen: that does not cut its back-off short
	q.Offer("new")
	for item, s := range q.All() {
		fmt.Println(item, "is", s.Phase, "after", s.Failures, "failures")
	}
	// Output:
	// new is ready after 0 failures
	// failing is waiting after 1 failures
}

// After a start the queue holds all that there is, but a user who changes one
// item does not wait for that.
func ExampleQueue_background() {
	queue := reconcile.NewQueue[string]()
	queue.Background = 2 // every second item taken, at least, is one that was only seen

	for _, seen := range []string{"vm-1", "vm-2", "vm-3", "vm-4"} {
		queue.Offer(seen)
	}
	queue.Enqueue("vm-3") // changed: it leaves the background
	queue.Enqueue("vm-9") // new

	for queue.Len() > 0 {
		item, err := queue.Dequeue(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(item)
		queue.Done(item)
	}
	// Output:
	// vm-3
	// vm-1
	// vm-9
	// vm-2
	// vm-4
}
