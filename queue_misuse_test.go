// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestZeroQueueSaysWhatIsMissing(t *testing.T) {
	var q reconcile.Queue[string]
	for name, call := range map[string]func(){
		"Enqueue": func() { q.Enqueue("a") },
		"Offer":   func() { q.Offer("a") },
		"Remove":  func() { q.Remove("a") },
		"Done":    func() { q.Done("a") },
		"Requeue": func() { q.Requeue("a", reconcile.Wait{}) },
		"Has":     func() { q.Has("a") },
		"State":   func() { q.State("a") },
		"Dequeue": func() { _, _ = q.Dequeue(t.Context()) },
		"Close":   func() { q.Close() },
		"Len":     func() { q.Len() },
		"Stats":   func() { q.Stats() },
		"All": func() {
			for range q.All() {
				t.Error("an item")
			}
		},
	} {
		func() { // one after the other: none leaves the queue locked
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, "reconcile: ") || !strings.Contains(got, "NewQueue") {
					t.Errorf("%s of a zero Queue panics with %q, want one that names NewQueue", name, got)
				}
			}()
			call()
		}()
	}
	r := reconcile.Reconciler[string]{Queue: &q, Reconcile: func(context.Context, string) error { return nil }}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Reconciler.Queue") {
		t.Errorf("Run with a zero Queue: %v, want an error that names Reconciler.Queue", err)
	}
	p := reconcile.Poller[string]{Queue: (*reconcile.Queue[string])(nil), GetItems: func(context.Context) ([]string, error) { return nil, nil }, Period: time.Hour}
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Poller.Queue") {
		t.Errorf("Run with a nil Queue: %v, want an error that names Poller.Queue", err)
	}
}

// rudeContext has a Done that does not return.
type rudeContext struct {
	context.Context
	leave func()
}

func (c rudeContext) Done() <-chan struct{} {
	c.leave()
	return nil
}

func TestContextThatPanicsInDoneTakesNothing(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("no") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				go func() {
					defer func() { _ = recover() }()
					_, _ = q.Dequeue(rudeContext{t.Context(), leave})
				}()
				synctest.Wait()
				q.Enqueue("a")
				wantPhase(t, q, "a", reconcile.Ready)
				mustTakeAll(t, q, "a")
			})
		})
	}
}

// Several items that come back from consumers whose context ended do so in the
// order in which they were taken.
func TestCancellationKeepsTheOrder(t *testing.T) {
	for range 100 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			ctx, cancel := context.WithCancel(t.Context())
			var consumers []<-chan dequeued[string]
			for range 3 {
				consumers = append(consumers, startDequeue(ctx, q))
			}
			items := []string{"a", "b", "c", "d"}
			for _, item := range items {
				q.Enqueue(item)
			}
			cancel()
			for _, c := range consumers {
				if d := mustReturn(t, c); d.err == nil { // it was faster than cancel
					items = slices.DeleteFunc(items, func(item string) bool { return item == d.item })
				}
			}
			mustTakeAll(t, q, items...)
		})
	}
}

// An item that was given back by somebody who did not have it, and taken anew,
// is not taken from its new owner by the consumer that it was handed to first.
func TestStrayDoneAndCancellationLeaveTheItemToItsOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		ctx, cancel := context.WithCancel(t.Context())
		startDequeue(ctx, q)
		q.Enqueue("a") // handed over, and most likely not seen yet
		cancel()
		q.Done("a")
		q.Enqueue("a")
		mustTakeAll(t, q, "a")
		synctest.Wait()
		wantPhase(t, q, "a", reconcile.InFlight)
	})
}
