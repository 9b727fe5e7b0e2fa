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
	"path"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

func TestRequeueAfterAndWithinReturnARequeueErrorValue(t *testing.T) {
	for _, c := range []struct {
		err  error
		want reconcile.RequeueError
		says string
	}{
		{reconcile.RequeueAfter(time.Minute), reconcile.RequeueError{Delay: time.Minute, MinDelay: time.Minute}, "requeue after 1m0s"},
		{reconcile.RequeueWithin(time.Minute), reconcile.RequeueError{Delay: time.Minute}, "requeue within 1m0s"},
		{reconcile.RecheckWithin(time.Minute), reconcile.RequeueError{Delay: time.Minute, Recheck: true}, "recheck within 1m0s"},
		{reconcile.RequeueAfter(0), reconcile.RequeueError{}, "requeue within 0s"},
		{reconcile.RequeueWithin(-time.Hour), reconcile.RequeueError{Delay: time.Second}, "requeue within 1s"},
		{reconcile.RequeueAfter(-time.Hour), reconcile.RequeueError{Delay: time.Second, MinDelay: time.Second}, "requeue after 1s"},
		{reconcile.RequeueError{MinDelay: 1, Recheck: true}, reconcile.RequeueError{MinDelay: 1, Recheck: true}, "requeue after 1ns"},
		{reconcile.RequeueError{Delay: 2, MinDelay: 1}, reconcile.RequeueError{Delay: 2, MinDelay: 1}, "requeue within 2ns, after 1ns at the earliest"},
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

func TestRecheckWithinNoTimeIsNil(t *testing.T) {
	for _, d := range []time.Duration{0, -1} {
		if err := reconcile.RecheckWithin(d); err != nil {
			t.Errorf("RecheckWithin(%v) = %v, want nil", d, err)
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

func TestErrorMessagesHavePackagePrefix(t *testing.T) {
	for _, err := range []error{
		reconcile.ErrTerminal, reconcile.ErrTimeout, reconcile.ErrClosed, reconcile.ErrLeaseLost,
	} {
		if !strings.HasPrefix(err.Error(), "reconcile: ") {
			t.Errorf("message %q does not begin with the package", err)
		}
	}
}

func TestNoRetryNeverRetries(t *testing.T) {
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

func TestBackoffIsRandomized(t *testing.T) {
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

// In a bubble the random part follows from the time and the number of failures.
func TestBackoffIsTheSameInEachBubble(t *testing.T) {
	var runs [2][]time.Duration
	for i := range runs {
		synctest.Test(t, func(*testing.T) {
			for range 10 {
				time.Sleep(time.Second)
				for failures := range 3 {
					d, _ := reconcile.Backoff(time.Hour, time.Hour)(errBoom, failures)
					runs[i] = append(runs[i], d)
				}
			}
		})
	}
	if diff := cmp.Diff(runs[0], runs[1]); diff != "" {
		t.Errorf("the delays in two bubbles differ:\n%s", diff)
	}
	if slices.Sort(runs[0]); len(slices.Compact(slices.Clone(runs[0]))) < 30 {
		t.Errorf("the delays of 10 instants and 3 numbers of failures are %v, want all different", runs[0])
	}
}

func divide(a, b int) { fmt.Fprint(io.Discard, a/b) }

// The stack that is logged is one line: the calls of the user, from the panic on.
func TestLoggedStackIsALineOfCalls(t *testing.T) {
	var disks map[string]int
	folder := path.Base(reflect.TypeFor[reconcile.RequeueOptions]().PkgPath()) // another one in a copy
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
		book := record.NewLog()
		queue := reconcile.NewQueue[string]()
		queue.Enqueue("x")
		queue.Close()
		r := reconcile.Reconciler[string]{
			Queue: queue, Reconcile: func(context.Context, string) error { return panicsHere(c.fails) },
			Retry: reconcile.NoRetry, Logger: book.Logger(),
		}
		if err := r.Run(t.Context()); err != nil {
			t.Errorf("%s: Run = %v, want nil", name, err)
		}

		want := c.want + " < reconcile_test.panicsHere support_test.go < func7 requeue_test.go"
		stack := book.From(slog.LevelWarn)[0].Attrs["stack"].String()
		got := strings.NewReplacer(folder+"_test.", "reconcile_test.", folder+".", "reconcile.").Replace(stack)
		got = regexp.MustCompile(`reconcile_test\.Test\w+\.(func)|:\d+`).ReplaceAllString(got, "$1")
		if got != want || !strings.Contains(stack, " support_test.go:") {
			t.Errorf("%s: the stack that is logged is %q, want %q and the lines", name, stack, want)
		}
	}
}
