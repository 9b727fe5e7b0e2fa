// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/reconkernel/reconcile"
)

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

// The server said when to come back. No event brings the item sooner.
func ExampleRequeueAfter() {
	retryAfter := 30 * time.Second
	answer(fmt.Errorf("too many requests: %w", reconcile.RequeueAfter(retryAfter)))
	// Output:
	// requeued: too many requests: requeue after 30s, next in 30s
}

// An operation is running. It is asked about in a while, or as soon as an event
// says that it is done.
func ExampleRequeueWithin() {
	answer(fmt.Errorf("being made: %w", reconcile.RequeueWithin(15*time.Second)))
	// Output:
	// requeued: being made: requeue within 15s, next in 15s
}

// Somebody else owns the name. Trying again does not help.
func ExampleTerminal() {
	taken := errors.New("name is taken")
	err := reconcile.Terminal(taken)
	answer(err)
	fmt.Println(errors.Is(err, reconcile.ErrTerminal), errors.Is(err, taken))
	// Output:
	// terminated: name is taken, next in 0s
	// true true
}

func ExampleRequeueError() {
	err := fmt.Errorf("being made: %w", reconcile.RequeueWithin(time.Minute))
	if plan := (reconcile.RequeueError{}); errors.As(err, &plan) {
		fmt.Println(plan.Delay, plan.Hold)
	}
	// Output:
	// 1m0s false
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

// The delay doubles, up to a limit. Each is shortened at random by up to half.
func ExampleBackoff() {
	policy := reconcile.Backoff(time.Second, 5*time.Second)
	for failures, most := range []time.Duration{1: time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if failures > 0 {
			delay, _ := policy(nil, failures)
			fmt.Printf("%d: up to %v: %v\n", failures, most, delay > most/2 && delay <= most)
		}
	}
	// Output:
	// 1: up to 1s: true
	// 2: up to 2s: true
	// 3: up to 4s: true
	// 4: up to 5s: true
	// 5: up to 5s: true
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
	// logs: gave up after 1 failure: no route to host
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
	// map[succeeded:7 terminated:3]
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
