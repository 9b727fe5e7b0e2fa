// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package gate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
)

// The limit of runs at once is halved when the far side has too much to do: half
// of one run is one still. Each limit's worth of good runs adds one, if the limit
// is in the way.
func ExampleGate() {
	errTooMany := errors.New("429 Too Many Requests")
	cloud := &gate.Gate{
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
		Admit: cloud.Admit,
		Reconcile: func(context.Context, string) error {
			if busy {
				busy = false
				return errTooMany
			}
			return nil
		},
		Retry:    reconcile.NoRetry,
		OnResult: func(r reconcile.Result[string]) { fmt.Println(r.Item, r.Outcome, cloud.Stats().Limit) },
		Logger:   slog.New(slog.DiscardHandler),
	}
	fmt.Println("limit", cloud.Stats().Limit)
	if err := r.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// limit 8
	// logs gave_up 1
	// photos succeeded 2
	// music succeeded 2
	// books succeeded 2
}

// The first answer says when to come back: nobody asks before, and then one alone.
func ExampleGate_pause() {
	type busy struct {
		error
		retryAfter time.Duration
	}
	pause := func(err error) time.Duration {
		var answer busy
		errors.As(err, &answer) // 0 if it is none
		return answer.retryAfter
	}
	cloud := &gate.Gate{
		Every: time.Second / 80, Burst: 20, // of the 100 calls a second that it allows
		Pause: pause, // 429 and 503: for how long no run starts
	}
	cloud.Logger = slog.New(slog.DiscardHandler) // by default it says when it is paused and when it resumes
	queue := reconcile.NewQueue[string]()
	for _, bucket := range []string{"logs", "photos", "music"} {
		queue.Enqueue(bucket)
	}
	refused := false
	ctx, cancel := context.WithCancel(context.Background())
	r := reconcile.Reconciler[string]{
		Queue: queue,
		Admit: cloud.Admit,
		Reconcile: func(_ context.Context, bucket string) error {
			s := cloud.Stats()
			fmt.Println(bucket, "while it is paused:", !s.PausedSince.IsZero())
			if !refused {
				refused = true
				err := busy{errors.New("429"), 50 * time.Millisecond}
				return fmt.Errorf("%w: %w", err, reconcile.RequeueAfter(time.Hour)) // no failure
			}
			if bucket == "music" {
				cancel()
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	if err := r.Run(ctx); err != nil {
		fmt.Println(err)
	}
	s := queue.State("logs")
	fmt.Println("logs is", s.Phase, "after", s.Failures, "failures")
	// Output:
	// logs while it is paused: false
	// photos while it is paused: true
	// music while it is paused: false
	// logs is waiting after 0 failures
}

// What else may stand at the Admit of a Reconciler: a semaphore that several share.
func ExampleGate_semaphore() {
	places := make(chan struct{}, 2)
	admit := func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
		select {
		case places <- struct{}{}:
			return func(reconcile.Outcome, error, time.Duration) { <-places }, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("logs")
	queue.Close()
	r := reconcile.Reconciler[string]{
		Queue: queue, Admit: admit, Workers: 5,
		Reconcile: func(context.Context, string) error { fmt.Println("in use:", len(places)); return nil },
	}
	if err := r.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println("in use:", len(places))
	// Output:
	// in use: 1
	// in use: 0
}
