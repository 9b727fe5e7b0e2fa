// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A breaking queue hands out one item, whose lease is lost, and fails for the
// consumer that waits longest a minute later.
type breaking struct {
	*reconcile.Queue[string]
	item, broken chan struct{}
}

func (q breaking) Dequeue(ctx context.Context) (string, error) {
	select {
	case <-q.item:
		return "a", nil
	default:
	}
	select {
	case <-q.broken:
		return "", errBoom
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (breaking) Lease(ctx context.Context, _ string) context.Context {
	ctx, lose := context.WithCancelCause(ctx)
	lose(reconcile.ErrLeaseLost)
	return ctx
}

// A worker whose last run was aborted is woken like any other when the queue
// fails.
func TestQueueFailsAfterALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := breaking{reconcile.NewQueue[string](), make(chan struct{}, 1), make(chan struct{})}
		q.item <- struct{}{}
		r := &reconcile.Reconciler[string]{
			Queue: q, Workers: 2, Logger: unlogged(),
			Reconcile: func(ctx context.Context, _ string) error {
				time.Sleep(time.Second) // so that the other one waits already
				return ctx.Err()
			},
		}
		time.AfterFunc(time.Minute, func() { q.broken <- struct{}{} })
		if err := r.Run(t.Context()); !errors.Is(err, errBoom) {
			t.Errorf("Run() = %v, want %v", err, errBoom)
		}
	})
}

// A leasing queue hands out items under leases that can be lost.
type leasing struct {
	plainQueue[string]
	lose map[string]context.CancelCauseFunc
}

type leaseKey struct{}

func (q leasing) Lease(ctx context.Context, item string) context.Context {
	ctx, q.lose[item] = context.WithCancelCause(context.WithValue(ctx, leaseKey{}, "lease of "+item))
	return ctx
}

func TestLostLeaseAbortsTheRunAlone(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		outcome reconcile.Outcome
	}{
		{"ends with an error", context.Canceled, reconcile.Aborted},
		{"ends with another error", errBoom, reconcile.Aborted},
		{"ends well", nil, reconcile.Succeeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := leasing{plainly(reconcile.NewQueue[string]()), make(map[string]context.CancelCauseFunc)}
				book := newLogBook()
				var results resultBook[string]
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(ctx context.Context, item string) error {
						if got := ctx.Value(leaseKey{}); got != "lease of "+item {
							t.Errorf("run of %s has %v", item, got)
						}
						if item == "b" {
							return ctx.Err()
						}
						if len(results.all()) > 0 {
							return nil // the second time
						}
						<-ctx.Done()
						if cause := context.Cause(ctx); cause != reconcile.ErrLeaseLost {
							t.Errorf("cause = %v, want %v", cause, reconcile.ErrLeaseLost)
						}
						return c.err
					},
					Timeout:  time.Hour,
					Grace:    time.Hour,
					OnResult: results.add,
					Logger:   book.logger(),
				})
				q.q.Enqueue("a")
				time.Sleep(time.Minute)
				synctest.Wait()
				q.lose["a"](reconcile.ErrLeaseLost)
				synctest.Wait()
				first := results.all()[0]
				if first.Outcome != c.outcome || first.Failures != 0 || first.Next != 0 {
					t.Errorf("result = %+v, want %s", first, c.outcome)
				}
				if again := len(results.all()) == 2; again != (c.outcome == reconcile.Aborted) {
					t.Errorf("results %+v, want a second run only of an aborted item", results.all())
				}
				// The worker goes on.
				q.q.Enqueue("b")
				synctest.Wait()
				if got := results.last(t); got.Item != "b" || got.Outcome != reconcile.Succeeded {
					t.Errorf("result = %+v, want b to succeed", got)
				}
				if lines := book.from(slog.LevelInfo); len(lines) != 0 {
					t.Errorf("a lost lease was logged as a failure: %v", lines)
				}
				run.end()
			})
		})
	}
}
