// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/supervise"
)

// A service that keeps DNS zones in their desired state, until Ctrl-C.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	listZones := func(context.Context) ([]string, error) { return []string{"example.org"}, nil }
	ensureZone := func(_ context.Context, zone string) (ready bool, err error) {
		fmt.Println("compares and corrects", zone)
		stop() // like Ctrl-C
		return true, nil
	}

	queue := reconcile.NewQueue[string]()
	list := &reconcile.Poller[string]{Queue: queue, GetItems: listZones, Period: time.Minute}
	zones := &reconcile.Reconciler[string]{
		Queue: queue, Workers: 4, Timeout: time.Minute, Retry: reconcile.Backoff(time.Second, list.Period),
		Reconcile: func(ctx context.Context, zone string) error {
			ready, err := ensureZone(ctx, zone)
			switch {
			case err != nil:
				return err // failed: again after a back-off
			case !ready:
				return reconcile.RequeueWithin(10 * time.Second) // in progress: check again
			}
			return nil // in sync: the next poll or event runs it
		},
	}
	var group supervise.Group
	group.Add("list", list)
	group.Add("zones", zones)
	err := group.Run(ctx)
	fmt.Println(err)
	// Output:
	// compares and corrects example.org
	// <nil>
}

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

// A Reconciler works until its context is done, or as here until its queue is
// closed and empty.
func ExampleReconciler() {
	queue := reconcile.NewQueue[string]()
	for _, bucket := range []string{"logs", "photos", "logs"} {
		queue.Enqueue(bucket) // twice is once
	}
	queue.Close()

	r := reconcile.Reconciler[string]{
		Queue: queue,
		Reconcile: func(_ context.Context, bucket string) error {
			fmt.Println("looking at", bucket)
			return nil
		},
	}
	err := r.Run(context.Background())
	fmt.Println(err)
	// Output:
	// looking at logs
	// looking at photos
	// <nil>
}

// Results are for metrics and for whoever shows the state of things.
func ExampleResult() {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("logs")
	queue.Close()
	r := reconcile.Reconciler[string]{
		Queue:     queue,
		Reconcile: func(context.Context, string) error { return errors.New("no route to host") },
		Retry:     reconcile.NoRetry,
		OnResult: func(r reconcile.Result[string]) {
			fmt.Printf("%s: %s after %d failure: %v\n", r.Item, r.Outcome, r.Failures, r.Err)
			fmt.Println(r.Waited < time.Minute, r.Duration < time.Minute)
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	r.Run(context.Background())
	// Output:
	// logs: gave_up after 1 failure: no route to host
	// true true
}

func ExampleOutcome() {
	queue := reconcile.NewQueue[int]()
	for i := range 10 {
		queue.Enqueue(i)
	}
	queue.Close()
	count := make(map[reconcile.Outcome]int)
	r := reconcile.Reconciler[int]{
		Queue: queue,
		Reconcile: func(_ context.Context, i int) error {
			if i%4 == 0 {
				return reconcile.Terminal(errors.New("divisible by four"))
			}
			return nil
		},
		OnResult: func(r reconcile.Result[int]) { count[r.Outcome]++ },
		Logger:   slog.New(slog.DiscardHandler),
	}
	r.Run(context.Background())
	fmt.Println(count)
	// Output:
	// map[succeeded:7 terminal_error:3]
}

// Inside Reconcile, the Logger knows what it is about.
func ExampleLogger() {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("logs")
	queue.Close()
	r := reconcile.Reconciler[string]{
		Queue: queue,
		Reconcile: func(ctx context.Context, bucket string) error {
			reconcile.Logger(ctx).Info("made", "region", "eu-1")
			return nil
		},
		Name: "buckets",
		Logger: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{} // for the sake of the example
				}
				return a
			},
		})),
	}
	r.Run(context.Background())
	// Output:
	// level=INFO msg=made reconciler=buckets item=logs failures=0 region=eu-1
}

func ExamplePanicError() {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("disk-1")
	queue.Close()
	r := reconcile.Reconciler[string]{
		Queue:     queue,
		Reconcile: func(context.Context, string) error { panic("no such zone") },
		OnResult: func(r reconcile.Result[string]) {
			if p := (*reconcile.PanicError)(nil); errors.As(r.Err, &p) {
				fmt.Printf("%s panicked with %q, stack: %v\n", r.Item, p.Value, len(p.Stack) > 0)
			}
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	r.Run(context.Background())
	// Output:
	// disk-1 panicked with "no such zone", stack: true
}

// answer runs a Reconciler once, and prints what becomes of its item.
func answer(err error) {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("disk-1")
	queue.Close()
	r := reconcile.Reconciler[string]{
		Queue:     queue,
		Reconcile: func(context.Context, string) error { return err },
		OnResult: func(r reconcile.Result[string]) {
			fmt.Printf("%s: %v, next in %v\n", r.Outcome, r.Err, r.Next)
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	if err := r.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
}

// Somebody else owns the name. Trying again does not help.
func ExampleTerminal() {
	taken := errors.New("name is taken")
	err := reconcile.Terminal(taken)
	answer(err)
	fmt.Println(errors.Is(err, reconcile.ErrTerminal), errors.Is(err, taken))
	// Output:
	// terminal_error: name is taken, next in 0s
	// true true
}

// A policy of one's own, for one kind of error.
func ExampleRetryPolicy() {
	errQuota := errors.New("quota exceeded")
	usual := reconcile.Backoff(time.Second, time.Minute).Limit(3)
	policy := reconcile.RetryPolicy(func(err error, failures int) (time.Duration, bool) {
		if errors.Is(err, errQuota) {
			return time.Hour, true
		}
		return usual(err, failures)
	})

	fmt.Println(policy(errQuota, 20))
	_, retry := policy(errors.New("timeout"), 3)
	fmt.Println(retry)
	_, retry = policy(errors.New("timeout"), 4)
	fmt.Println(retry)
	// Output:
	// 1h0m0s true
	// true
	// false
}

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
