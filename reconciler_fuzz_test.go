// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile"
)

// A oneItem is a Dequeuer that hands out one item and then is closed. It notes
// what it is given back.
type oneItem struct {
	taken bool
	done  int
	waits []reconcile.Wait
}

func (q *oneItem) Dequeue(context.Context) (string, error) {
	if q.taken {
		return "", reconcile.ErrClosed
	}
	q.taken = true
	return "item", nil
}

func (q *oneItem) Done(string)                          { q.done++ }
func (q *oneItem) Requeue(_ string, w reconcile.Wait)   { q.waits = append(q.waits, w) }
func (q *oneItem) State(string) (state reconcile.State) { return reconcile.State{} }

// A manyErrors has more than one error, some of them nil.
type manyErrors []error

func (m manyErrors) Error() string   { return fmt.Sprint(len(m), " errors") }
func (m manyErrors) Unwrap() []error { return m }

// A errTree builds an error from bytes, and says what the rules make of it.
type errTree struct {
	ops      []byte
	plan     *reconcile.RequeueError // the first, depth first
	terminal bool
}

func (b *errTree) next() byte {
	if len(b.ops) == 0 {
		return 0
	}
	op := b.ops[0]
	b.ops = b.ops[1:]
	return op
}

func (b *errTree) build(depth int) error {
	op := b.next()
	if depth > 8 {
		op %= 6
	}
	switch op % 11 {
	case 0:
		return nil
	case 1:
		return errBoom
	case 2, 3:
		plan := reconcile.RequeueError{Delay: time.Duration(int8(b.next())) * time.Second, Hold: op%11 == 2}
		if b.plan == nil {
			b.plan = &plan
		}
		return plan
	case 4:
		return context.Canceled
	case 5:
		b.terminal = true
		return reconcile.ErrTerminal
	case 6:
		err := b.build(depth + 1)
		return fmt.Errorf("wrapped: %w", err)
	case 7:
		err := b.build(depth + 1)
		b.terminal = b.terminal || err != nil
		return reconcile.Terminal(err)
	case 8:
		list := make([]error, b.next()%4)
		for i := range list {
			list[i] = b.build(depth + 1)
		}
		return errors.Join(list...)
	case 9:
		list := make(manyErrors, b.next()%4)
		for i := range list {
			list[i] = b.build(depth + 1)
		}
		return list
	default:
		first := b.build(depth + 1)
		return fmt.Errorf("%w, then %w", first, b.build(depth+1))
	}
}

func FuzzRequeueErrors(f *testing.F) {
	for op := range byte(11) {
		f.Add([]byte{op, 2, 3, 1, 5})
		f.Add([]byte{8, 3, 1, op, 5, 1})
		f.Add([]byte{10, 7, 2, 9, op})
		f.Add([]byte{6, 7, op, 250, 1})
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		tree := errTree{ops: ops}
		err := tree.build(0)
		var q oneItem
		var results resultBook[string]
		r := reconcile.Reconciler[string]{
			Queue:     &q,
			Reconcile: func(context.Context, string) error { return err },
			Retry:     minutes,
			OnResult:  results.add,
			Logger:    slog.New(slog.DiscardHandler),
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatalf("Run = %v", err)
		}
		got := results.only(t)
		want := reconcile.Result[string]{Item: "item", Err: err, Duration: got.Duration, Waited: got.Waited}
		var waits []reconcile.Wait
		switch {
		case err == nil:
			want.Outcome = reconcile.Succeeded
		case tree.plan != nil:
			want.Outcome, want.Next = reconcile.Requeued, max(tree.plan.Delay, 0)
			waits = []reconcile.Wait{{Delay: tree.plan.Delay, Hold: tree.plan.Hold}}
		case tree.terminal:
			want.Outcome, want.Failures = reconcile.Terminated, 1
		default:
			want.Outcome, want.Failures, want.Next = reconcile.Retrying, 1, time.Minute
			waits = []reconcile.Wait{{Delay: time.Minute, Err: err}}
		}
		same := cmp.Options{
			cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }),
			cmp.Comparer(func(a, b reconcile.Wait) bool { // no delay is no delay
				return max(a.Delay, 0) == max(b.Delay, 0) && (a.Hold == b.Hold || a.Delay <= 0) && fmt.Sprint(a.Err) == fmt.Sprint(b.Err)
			}),
		}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Errorf("result of %#v (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff(waits, q.waits, same); diff != "" {
			t.Errorf("%#v requeued (-want +got):\n%s", err, diff)
		}
		if q.done != 1-len(waits) {
			t.Errorf("%#v: item given back by %d Done and %v", err, q.done, q.waits)
		}
	})
}
