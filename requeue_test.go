// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestRequeueAfterAndWithinReturnARequeueErrorValue(t *testing.T) {
	for _, c := range []struct {
		err  error
		want reconcile.RequeueError
		says string
	}{
		{reconcile.RequeueAfter(time.Minute), reconcile.RequeueError{Delay: time.Minute, Hold: true}, "requeue after 1m0s"},
		{reconcile.RequeueWithin(time.Minute), reconcile.RequeueError{Delay: time.Minute}, "requeue within 1m0s"},
		{reconcile.RecheckWithin(time.Minute), reconcile.RequeueError{Delay: time.Minute, Settled: true}, "recheck within 1m0s"},
		{reconcile.RequeueAfter(0), reconcile.RequeueError{Hold: true}, "requeue after 0s"},
		{reconcile.RequeueWithin(-time.Second), reconcile.RequeueError{Delay: -time.Second}, "requeue within -1s"},
		{reconcile.RequeueError{Hold: true, Settled: true}, reconcile.RequeueError{Hold: true, Settled: true}, "requeue after 0s"},
	} {
		if got, ok := c.err.(reconcile.RequeueError); !ok || got != c.want || got.Error() != c.says {
			t.Errorf("got %#v, %q, want %#v, %q", c.err, c.err, c.want, c.says)
		}
		var got reconcile.RequeueError
		if wrapped := fmt.Errorf("snapshot s1 is running: %w", c.err); !errors.As(wrapped, &got) || got != c.want {
			t.Errorf("errors.As(%v) gives %#v, want %#v", wrapped, got, c.want)
		}
	}
}

func TestTerminalMarksAndKeepsTheError(t *testing.T) {
	if err := reconcile.Terminal(nil); err != nil {
		t.Errorf("Terminal(nil) = %v, want nil", err)
	}
	cause := &fs.PathError{Op: "open", Path: "a", Err: errBoom}
	err := reconcile.Terminal(cause)
	if err.Error() != cause.Error() {
		t.Errorf("Terminal(err).Error() = %q, want %q", err, cause)
	}
	if errors.Unwrap(err) != error(cause) {
		t.Errorf("Terminal(err) unwraps to %v, want err", errors.Unwrap(err))
	}
	var path *fs.PathError
	if !errors.Is(err, errBoom) || !errors.As(err, &path) {
		t.Error("Terminal hides the tree of its error")
	}
	if !errors.Is(err, reconcile.ErrTerminal) || !errors.Is(fmt.Errorf("more: %w", err), reconcile.ErrTerminal) {
		t.Error("errors.Is(Terminal(err), ErrTerminal) = false")
	}
	if errors.Is(cause, reconcile.ErrTerminal) || errors.Is(err, reconcile.ErrTimeout) {
		t.Error("errors.Is matches what it must not")
	}
	if twice := reconcile.Terminal(err); twice.Error() != cause.Error() || !errors.Is(twice, reconcile.ErrTerminal) {
		t.Errorf("Terminal(Terminal(err)) = %v", twice)
	}
}

func TestPanicErrorUnwrapsToAnErrorValue(t *testing.T) {
	var err error = &reconcile.PanicError{Value: fmt.Errorf("index: %w", errBoom), Stack: []byte("stack")}
	if !errors.Is(err, errBoom) {
		t.Errorf("%v does not unwrap to its value", err)
	}
	if !strings.Contains(err.Error(), "boom") {
		t.Errorf("Error() = %q does not tell the value", err)
	}
	for _, v := range []any{"no disk", 7, nil} {
		err := &reconcile.PanicError{Value: v}
		if got := errors.Unwrap(err); got != nil {
			t.Errorf("PanicError{%v} unwraps to %v, want nil", v, got)
		}
		if !strings.Contains(err.Error(), fmt.Sprint(v)) {
			t.Errorf("Error() = %q does not tell the value %v", err, v)
		}
	}
}

func TestSentinelsSayWhoSpeaks(t *testing.T) {
	for _, err := range []error{
		reconcile.ErrTerminal, reconcile.ErrTimeout, reconcile.ErrClosed, reconcile.ErrLeaseLost, reconcile.ErrAborted, reconcile.ErrChanged,
	} {
		if !strings.HasPrefix(err.Error(), "reconcile: ") {
			t.Errorf("message %q does not begin with the package", err)
		}
	}
}

func TestNoRetryGivesUpAtOnce(t *testing.T) {
	var p reconcile.RetryPolicy = reconcile.NoRetry
	for _, failures := range []int{1, 2, 100} {
		if d, retry := p(errBoom, failures); retry {
			t.Errorf("NoRetry(err, %d) = %v, true, want false", failures, d)
		}
	}
}

func TestLimitGivesUpAfterThatManyRetries(t *testing.T) {
	every := reconcile.RetryPolicy(func(err error, failures int) (time.Duration, bool) {
		if err != errBoom {
			t.Errorf("policy was asked about %v, want %v", err, errBoom)
		}
		return time.Duration(failures) * time.Hour, true
	})
	for _, limit := range []int{-3, 0, 1, 2, 10} {
		p := every.Limit(limit)
		for failures := 1; failures <= 12; failures++ {
			d, retry := p(errBoom, failures)
			if want := failures <= limit; retry != want {
				t.Errorf("Limit(%d)(err, %d) retries: %v, want %v", limit, failures, retry, want)
			} else if retry && d != time.Duration(failures)*time.Hour {
				t.Errorf("Limit(%d)(err, %d) = %v, want the policy's own delay", limit, failures, d)
			}
		}
	}
	if _, retry := reconcile.RetryPolicy(reconcile.NoRetry).Limit(5)(errBoom, 1); retry {
		t.Error("NoRetry.Limit(5) retries")
	}
	if d, retry := reconcile.RetryPolicy(nil).Limit(2)(errBoom, 2); !retry || !within(d, time.Second, 2*time.Second) {
		t.Errorf("nil policy with Limit(2) = %v, %v, want what DefaultRetry says", d, retry)
	}
}

func TestBackoffDoublesFromFirstToMax(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		first, max time.Duration
		want       []time.Duration // full delay for 1, 2, 3, ... failures
	}{
		{100 * ms, time.Second, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms}},
		{time.Second, 5 * time.Minute, []time.Duration{1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 16000 * ms, 32000 * ms, 64000 * ms, 128000 * ms, 256000 * ms, 300000 * ms}},
		{time.Minute, time.Second, []time.Duration{1000 * ms, 1000 * ms}}, // max below first
		{0, 5 * time.Second, []time.Duration{1000 * ms, 2000 * ms, 4000 * ms, 5000 * ms}},
		{-time.Hour, 2 * time.Second, []time.Duration{1000 * ms, 2000 * ms, 2000 * ms}},
		{0, 500 * ms, []time.Duration{500 * ms, 500 * ms}},
		{3 * time.Second, 0, []time.Duration{3000 * ms, 3000 * ms, 3000 * ms}}, // no max: constant
		{0, 0, []time.Duration{1000 * ms, 1000 * ms}},
		{1, 5, []time.Duration{1, 2, 4, 5, 5}},
		{math.MaxInt64/2 + 1, math.MaxInt64, []time.Duration{math.MaxInt64/2 + 1, math.MaxInt64, math.MaxInt64}},
	} {
		p := reconcile.Backoff(c.first, c.max)
		if c.first == time.Second && c.max == 5*time.Minute {
			p = reconcile.DefaultRetry
		}
		for i, full := range c.want {
			lower := false
			for range 200 {
				d, retry := p(errBoom, i+1)
				if !retry {
					t.Fatalf("Backoff(%v, %v)(err, %d) gives up", c.first, c.max, i+1)
				}
				if !within(d, full/2, full) {
					t.Fatalf("Backoff(%v, %v)(err, %d) = %v, want in (%v, %v]", c.first, c.max, i+1, d, full/2, full)
				}
				lower = lower || d < full-full/4
			}
			if full > 4 && !lower {
				t.Errorf("Backoff(%v, %v)(err, %d) is never shortened by more than a quarter", c.first, c.max, i+1)
			}
		}
		last := c.want[len(c.want)-1]
		for _, failures := range []int{64, 65, 1 << 20, math.MaxInt} {
			if d, retry := p(errBoom, failures); !retry || !within(d, last/2, last) {
				t.Errorf("Backoff(%v, %v)(err, %d) = %v, %v, want in (%v, %v]", c.first, c.max, failures, d, retry, last/2, last)
			}
		}
		for _, failures := range []int{0, -1, math.MinInt} {
			if d, retry := p(errBoom, failures); !retry || !within(d, c.want[0]/2, c.want[0]) {
				t.Errorf("Backoff(%v, %v)(err, %d) = %v, %v, want as for 1 failure", c.first, c.max, failures, d, retry)
			}
		}
	}
}

func TestBackoffKeepsItemsApart(t *testing.T) {
	p := reconcile.Backoff(time.Minute, time.Minute)
	seen := make(map[time.Duration]bool)
	for range 100 {
		d, _ := p(errBoom, 1)
		seen[d] = true
	}
	if len(seen) < 90 {
		t.Errorf("100 items that fail together come back at %d instants, want them apart", len(seen))
	}
}

func FuzzBackoff(f *testing.F) {
	for _, first := range []int64{-1, 0, 1, 2, 3, int64(time.Second), math.MaxInt64, math.MinInt64} {
		for _, limit := range []int64{-1, 0, 1, 5, int64(time.Hour), math.MaxInt64} {
			for _, failures := range []int{1, 39, 63, 141, math.MinInt} {
				f.Add(first, limit, failures)
			}
		}
	}
	f.Fuzz(func(t *testing.T, first, limit int64, failures int) {
		d, retry := reconcile.Backoff(time.Duration(first), time.Duration(limit))(errBoom, failures)
		full := time.Second
		if first > 0 {
			full = time.Duration(first)
		}
		if limit > 0 {
			grown := new(big.Int).Lsh(big.NewInt(int64(full)), uint(min(max(failures, 1)-1, 64)))
			if highest := big.NewInt(limit); grown.Cmp(highest) > 0 {
				grown = highest
			}
			full = time.Duration(grown.Int64())
		}
		if !retry || !within(d, full/2, full) {
			t.Errorf("Backoff(%d, %d)(err, %d) = %d, %v, want in (%d, %d]", first, limit, failures, d, retry, full/2, full)
		}
	})
}

func divide(a, b int) { fmt.Fprint(io.Discard, a/b) }

// The stack that is logged is one line: the calls of the user, from the panic on.
func TestLoggedStackIsALineOfCalls(t *testing.T) {
	var disks map[string]int
	for name, c := range map[string]struct {
		fails func()
		want  string
	}{
		"panic":      {func() { panic("no disk") }, "func1 requeue_test.go"},
		"fault":      {func() { divide(1, len(disks)) }, "reconcile_test.divide requeue_test.go < func2 requeue_test.go"},
		"map":        {func() { disks["x"] = 1 }, "func3 requeue_test.go"},
		"Goexit":     {func() { runtime.Goexit() }, "func4 requeue_test.go"},
		"of ours":    {func() { reconcile.NewQueue[*int]() }, "reconcile.NewQueue[...] queue.go < func5 requeue_test.go"},
		"in a defer": {func() { defer func() { panic(recover()) }(); divide(1, len(disks)) }, "func6.1 requeue_test.go < reconcile_test.divide requeue_test.go < func6 requeue_test.go"},
	} {
		book := newLogBook()
		fails := func(context.Context) error { return panicsHere(c.fails) }
		queue := reconcile.NewQueue[string]()
		queue.Enqueue("x")
		queue.Close()
		r := reconcile.Reconciler[string]{
			Queue: queue, Reconcile: func(ctx context.Context, _ string) error { return fails(ctx) },
			Retry: reconcile.NoRetry, Logger: book.logger(),
		}
		g := reconcile.Group{Logger: book.logger()}
		g.Add("", reconcile.Restart(func(_ error, n int) (time.Duration, bool) { return 0, n < 2 }, reconcile.RunFunc(fails)))
		if err := r.Run(t.Context()); err != nil || g.Run(t.Context()) == nil {
			t.Errorf("%s: a Reconciler ends with %v, want nil, or a Group with nil", name, err)
		}

		want := c.want + " < reconcile_test.panicsHere group_test.go < func7 requeue_test.go"
		for i, want := range []string{want + " < func8 requeue_test.go", want} {
			stack := book.from(slog.LevelWarn)[i].Attrs["stack"].String()
			got := regexp.MustCompile(`reconcile_test\.Test\w+\.(func)|:\d+`).ReplaceAllString(stack, "$1")
			if got != want || !strings.Contains(stack, " group_test.go:") {
				t.Errorf("%s: the stack that is logged is %q, want %q and the lines", name, stack, want)
			}
		}
	}
}

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

func (q *oneItem) Done(string) { q.done++ }

func (q *oneItem) Requeue(_ string, w reconcile.Wait) { q.waits = append(q.waits, w) }

func (q *oneItem) State(string) (state reconcile.State) { return reconcile.State{} }

// A manyErrors has more than one error, some of them nil.
type manyErrors []error

func (m manyErrors) Error() string { return fmt.Sprint(len(m), " errors") }

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
	switch op % 12 {
	case 0:
		return nil
	case 1:
		return errBoom
	case 2, 3:
		n := b.next()
		plan := reconcile.RequeueError{Delay: time.Duration(int8(n)) * time.Second, Hold: op%12 == 2, Settled: n%2 == 0}
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
	for _, ops := range []string{"((0", "A0A9", "A0"} {
		f.Add([]byte(ops))
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
			if tree.plan.Settled && !tree.plan.Hold {
				want.Outcome = reconcile.Succeeded
			}
			waits = []reconcile.Wait{{Delay: tree.plan.Delay, Hold: tree.plan.Hold, Settled: tree.plan.Settled}}
		case tree.terminal:
			want.Outcome, want.Failures = reconcile.Terminated, 1
		default:
			want.Outcome, want.Failures, want.Next = reconcile.Retrying, 1, time.Minute
			waits = []reconcile.Wait{{Delay: time.Minute, Err: err}}
		}
		wantSame(t, fmt.Sprintf("result of %#v", err), got, want)
		same := func(a, b reconcile.Wait) bool { // no delay is no delay, and what is held is not settled
			return max(a.Delay, 0) == max(b.Delay, 0) && reflect.DeepEqual(a.Err, b.Err) &&
				(a.Delay <= 0 || a.Hold == b.Hold && (a.Hold || a.Settled == b.Settled))
		}
		if !slices.EqualFunc(q.waits, waits, same) {
			t.Errorf("%#v requeued: %+v, want %+v", err, q.waits, waits)
		}
		if q.done != 1-len(waits) {
			t.Errorf("%#v: item given back by %d Done and %v", err, q.done, q.waits)
		}
	})
}
