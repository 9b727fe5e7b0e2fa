// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A brokenQueue fails to dequeue once it is broken.
type brokenQueue struct {
	plainQueue[string]
	broken chan struct{}
}

func (q brokenQueue) Dequeue(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	select {
	case <-q.broken:
		return "", errBoom
	default:
	}
	go func() {
		select {
		case <-q.broken:
			cancel(errBoom)
		case <-ctx.Done():
		}
	}()
	return q.q.Dequeue(ctx)
}

func TestReconcilerRunReturnsTheErrorOfAForeignDequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := brokenQueue{plainly(reconcile.NewQueue[string]()), make(chan struct{})}
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { time.Sleep(10 * time.Second); return nil },
			Name:      "buckets",
			Workers:   3,
			OnResult:  results.add,
			Logger:    unlogged(),
		})
		q.q.Enqueue("a")
		time.Sleep(4 * time.Second)
		close(q.broken)
		began := time.Now()
		err := run.wait()
		if !errors.Is(err, errBoom) || err == errBoom {
			t.Errorf("Run = %v, want %v, wrapped", err, errBoom)
		}
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("Run returned after %v, want 6s: it waits for its runs", took)
		}
		if r := results.only(t); r.Outcome != reconcile.Succeeded || q.q.Has("a") {
			t.Errorf("result %+v, state %+v, want the item done", r, q.q.State("a"))
		}
	})
}

// A wordyQueue wraps the errors of Dequeue, as a Dequeuer may.
type wordyQueue struct{ plainQueue[string] }

func (q wordyQueue) Dequeue(ctx context.Context) (string, error) {
	item, err := q.q.Dequeue(ctx)
	if err != nil {
		err = fmt.Errorf("waiting for work: %w", err)
	}
	return item, err
}

func TestReconcilerRunReturnsNilThoughDequeueWrapsItsErrors(t *testing.T) {
	for _, how := range []string{"ctx", "close"} {
		synctest.Test(t, func(t *testing.T) {
			q := wordyQueue{plainly(reconcile.NewQueue[string]())}
			run := launch(t, &reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Workers: 2, Logger: unlogged()})
			synctest.Wait()
			if how == "close" {
				q.q.Close()
				if err := run.wait(); err != nil {
					t.Errorf("Run = %v after Close, want nil", err)
				}
			}
			run.end()
		})
	}
}

// A watchingQueue embeds a Queue and has its own way to give items back.
type watchingQueue struct {
	*reconcile.Queue[string]
	journal *journal
}

func (q watchingQueue) Dequeue(ctx context.Context) (string, error) {
	item, err := q.Queue.Dequeue(ctx)
	if err == nil {
		q.journal.note("dequeue %s", item)
	}
	return item, err
}

func (q watchingQueue) Done(item string) {
	q.journal.note("done %s", item)
	q.Queue.Done(item)
}

func (q watchingQueue) Requeue(item string, w reconcile.Wait) {
	q.journal.note("requeue %s", item)
	q.Queue.Requeue(item, w)
}

func TestReconcilerUsesTheMethodsOfADequeuerThatEmbedsAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := watchingQueue{reconcile.NewQueue[string](), newJournal()}
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, item string) error {
				switch item {
				case "bad":
					return errBoom
				case "long":
					return untilDone(ctx, item)
				}
				return nil
			},
			Retry:  minutes,
			Logger: unlogged(),
		})
		for item := range strings.FieldsSeq("good bad long") {
			q.Enqueue(item)
		}
		synctest.Wait()
		run.end()
		q.journal.mustBe(t, "0s dequeue good", "0s done good", "0s dequeue bad", "0s requeue bad", "0s dequeue long", "0s requeue long")
	})
}

// A ledger is a Dequeuer that hands out some items, then ends as it is told to,
// and notes all that it is called for.
type ledger struct {
	*journal
	items []string
	end   func() error
}

func (q *ledger) Dequeue(context.Context) (string, error) {
	if len(q.items) == 0 {
		q.note("no more")
		return "", q.end()
	}
	item := q.items[0]
	q.items = q.items[1:]
	q.note("take %s", item)
	return item, nil
}

func (q *ledger) Done(item string)                      { q.note("done %s", item) }
func (q *ledger) Requeue(item string, _ reconcile.Wait) { q.note("requeue %s", item) }
func (q *ledger) State(string) (state reconcile.State)  { return reconcile.State{} }

// endsOfAQueue are the ways in which the Dequeue of a queue can fail.
func endsOfAQueue() map[string]func() error {
	ends := map[string]func() error{"an error returned": func() error { return errBoom }}
	for name := range failuresOfUserCode {
		ends[name] = failuresAs(name)
	}
	return ends
}

// mustTellTheEnd checks what Run returned of a queue that failed in one of these ways.
func mustTellTheEnd(t *testing.T, name string, err error) {
	t.Helper()
	if returned := name == "an error returned"; isPanic(err) == returned || returned && !errors.Is(err, errBoom) {
		t.Errorf("Run = %v, want how Dequeue ended", err)
	}
}

func TestReconcilerGivesEachItemBackOnceThoughTheQueueFails(t *testing.T) {
	for name, end := range endsOfAQueue() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &ledger{newJournal(), strings.Fields("good bad"), end}
				err := launch(t, &reconcile.Reconciler[string]{
					Queue:     q,
					Reconcile: mixed,
					Retry:     reconcile.NoRetry,
					Logger:    unlogged(),
				}).wait()
				mustTellTheEnd(t, name, err)
				q.mustBe(t, "0s take good", "0s done good", "0s take bad", "0s done bad", "0s no more")
			})
		})
	}
}
