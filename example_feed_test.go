// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
)

func ExamplePoller() {
	ctx, cancel := context.WithCancel(context.Background())
	queue := reconcile.NewQueue[string]()
	poller := &reconcile.Poller[string]{
		Queue: queue,
		GetItems: func(context.Context) ([]string, error) {
			return []string{"logs", "photos"}, nil // from a file, a database, a server
		},
		Period: time.Minute,
	}
	ended := make(chan error)
	go func() { ended <- poller.Run(ctx) }()

	for range 2 { // a Reconciler does this
		bucket, _ := queue.Dequeue(ctx)
		fmt.Println(bucket)
		queue.Done(bucket)
	}
	poller.Trigger() // the file has changed
	bucket, _ := queue.Dequeue(ctx)
	fmt.Println(bucket)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// logs
	// photos
	// logs
	// <nil>
}

// A Feeder reads events from anywhere until there are no more.
func ExampleFeeder() {
	events := strings.NewReader("put logs\nput photos\ndelete logs\n")
	feeder := reconcile.Feeder[string](func(ctx context.Context, q reconcile.Enqueuer[string]) error {
		lines := bufio.NewScanner(events)
		for ctx.Err() == nil && lines.Scan() {
			_, bucket, _ := strings.Cut(lines.Text(), " ")
			q.Enqueue(bucket) // what happened does not matter, only to what
		}
		return lines.Err()
	})

	queue := reconcile.NewQueue[string]()
	fmt.Println(feeder(context.Background(), queue))
	fmt.Println(queue.Len(), "to look at")
	// Output:
	// <nil>
	// 2 to look at
}

// Feed makes a member of a Group of a Feeder.
func ExampleFeed() {
	queue := reconcile.NewQueue[string]()
	var group reconcile.Group
	group.Add("events", reconcile.Feed(queue, func(_ context.Context, q reconcile.Enqueuer[string]) error {
		q.Enqueue("logs")
		return nil
	}))
	fmt.Println(group.Run(context.Background()))
	fmt.Println(queue.Has("logs"))
	// Output:
	// <nil>
	// true
}

func ExampleFromChan() {
	hooks := make(chan string, 2)
	hooks <- "logs"
	hooks <- "photos"
	close(hooks)

	queue := reconcile.NewQueue[string]()
	err := reconcile.Feed(queue, reconcile.FromChan(hooks)).Run(context.Background())
	fmt.Println(queue.Len(), err)
	// Output:
	// 2 <nil>
}

// Each of three processes serves its share of the items.
func ExampleFilter() {
	queue := reconcile.NewQueue[int]()
	mine := reconcile.Filter(queue, func(id int) bool { return id%3 == 1 })
	for id := range 10 {
		mine.Enqueue(id)
	}
	fmt.Println(queue.Has(4), queue.Has(5), queue.Len())
	// Output:
	// true false 3
}

// An event of a pod runs the deployment that owns it.
func ExampleMap() {
	queue := reconcile.NewQueue[string]()
	pods := reconcile.Map(queue, func(pod string) iter.Seq[string] {
		owner, _, ok := strings.Cut(pod, "/")
		if !ok {
			return nil // it has none
		}
		return slices.Values([]string{owner})
	})
	for _, pod := range []string{"web/1", "web/2", "db/1", "debug"} {
		pods.Enqueue(pod)
	}
	fmt.Println(queue.Has("web"), queue.Has("db"), queue.Len())
	// Output:
	// true true 2
}

// An event of a key runs the buckets that said that they depend on it.
func ExampleRefs() {
	queue := reconcile.NewQueue[string]()
	var refs reconcile.Refs[string, string] // keys, buckets
	refs.Set("logs", "key-1")               // as Reconcile looks at them
	refs.Set("photos", "key-1", "key-2")
	refs.Set("tmp", "key-1")
	refs.Set("tmp") // is gone

	keys := reconcile.Map(queue, refs.Of)
	keys.Enqueue("key-1")
	fmt.Println(queue.Has("logs"), queue.Has("photos"), queue.Len())
	fmt.Println(slices.Collect(refs.Of("key-2")))
	// Output:
	// true true 2
	// [photos]
}

func ExampleListMap() {
	watchers := reconcile.NewListMap[string]()
	watchers.AddItem("pods", "log", "metrics", "audit")
	watchers.AddItem("nodes", "log")

	for i, name := range watchers.Range("pods") {
		fmt.Println(i, name)
		watchers.RemoveItem("pods", func(other string) bool { return other == name }) // inside the loop
	}
	fmt.Println(watchers.Keys(), watchers.Size())
	// Output:
	// 0 log
	// 1 metrics
	// 2 audit
	// [nodes] 1
}
