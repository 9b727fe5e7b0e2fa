// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
)

type panickyError struct{}

func (panickyError) Error() string { panic("no text") }

func TestTextOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("quota"), "quota"},
		{reconcile.RequeueAfter(time.Minute), ""},
		{reconcile.RecheckWithin(time.Minute), ""},
		{fmt.Errorf("busy: %w", reconcile.RequeueWithin(time.Minute)), "busy: requeue within 1m0s"},
		{panickyError{}, "(the Error method of this error panicked)"},
		{(*panickyError)(nil), "(the Error method of this error panicked)"},
		{errors.New(strings.Repeat("x", maxText)), strings.Repeat("x", maxText)},
		{errors.New(strings.Repeat("x", maxText+1)), strings.Repeat("x", maxText) + " … (cut)"},
		{errors.New(strings.Repeat("x", maxText-1) + "é"), strings.Repeat("x", maxText-1) + " … (cut)"},
	} {
		if got := errorFormat(nil).text(test.err, maxText); got != test.want {
			t.Errorf("text(%T) = %.80q, want %.80q", test.err, got, test.want)
		}
	}
	if got := errorFormat(nil).text(errors.New(strings.Repeat("é", 1<<20)), maxText); !utf8.ValidString(got) || len(got) > maxText+20 {
		t.Errorf("a long text is cut to %d bytes, valid: %v", len(got), utf8.ValidString(got))
	}
}

// The kernel may be a copy in a folder of another name: its frames are cut from the stack
// there too.
func TestStackOfAVendoredKernelIsCut(t *testing.T) {
	stack := "goroutine 7 [running]:\npanic({0x1, 0x2})\n\t/go/panic.go:1 +0x1\n" +
		"main.attach(...)\n\t/app/main.go:7 +0x1\n" +
		"example.org/app/lib/kernel.(*worker[...]).reconcile(0x1)\n\t/app/lib/kernel/worker.go:9 +0x1\n"
	if got, want := string(where([]byte(stack))), "main.attach(...)\n\t/app/main.go:7 +0x1"; got != want {
		t.Errorf("where gives\n%s\nwant\n%s", got, want)
	}
}

// TestTextOfPanic runs a reconciler whose function panics: the text has the place of the
// panic, and no frames of the kernel.
func TestTextOfPanic(t *testing.T) {
	q := reconcile.NewQueue[string]()
	q.Enqueue("a")
	q.Close()
	var text string
	r := reconcile.Reconciler[string]{
		Queue:     q,
		Logger:    discard,
		Retry:     reconcile.NoRetry,
		OnResult:  func(r reconcile.Result[string]) { text = errorFormat(nil).text(r.Err, maxText) },
		Reconcile: func(context.Context, string) error { return explode([]int{1}, 3) },
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	head, stack, _ := strings.Cut(text, stackMark)
	if want := "panic: runtime error: index out of range [3] with length 1"; head != want {
		t.Errorf("the text begins with %q, want %q", head, want)
	}
	lines := strings.Split(stack, "\n")
	if len(lines) != 4 || !strings.Contains(lines[0], "explode") || !strings.Contains(lines[1], "run_test.go") ||
		!strings.Contains(lines[2], "TestTextOfPanic") {
		t.Errorf("want the two functions of this file, got\n%s", stack)
	}
	if got := (&run{Error: text, Outcome: reconcile.OutcomeRetrying}).Headline(); got != head {
		t.Errorf("the headline is %q, want %q", got, head)
	}
}

//go:noinline
func explode(s []int, i int) error { return fmt.Errorf("never: %d", s[i]) }

func TestHeadline(t *testing.T) {
	for _, test := range []struct {
		text string
		o    reconcile.Outcome
		want string
	}{
		{"in sync: requeue within 1m4s", reconcile.OutcomeRequeued, "in sync"},
		{"in sync: recheck within 1h0m0s", reconcile.OutcomeSucceeded, "in sync"},
		{"throttled: 429: requeue after 30s", reconcile.OutcomeRequeued, "throttled: 429"},
		{"requeue after 30s", reconcile.OutcomeRequeued, ""},
		{"requeue after 30s", reconcile.OutcomeRetrying, "requeue after 30s"},
		{"we requeue after it is done", reconcile.OutcomeRequeued, "we requeue after it is done"},
		{"", reconcile.OutcomeRequeued, ""},
		{"first\nsecond", reconcile.OutcomeRetrying, "first\nsecond"},
	} {
		if got := (&run{Error: test.text, Outcome: test.o}).Headline(); got != test.want {
			t.Errorf("the headline of %q, %v is %q, want %q", test.text, test.o, got, test.want)
		}
	}
}

// The times of runs are right after a step of the wall clock. The beginning is changed as
// if the clock had been stepped forward by three hours since, between two runs.
func TestTimesOfRunsAfterAStepOfTheClock(t *testing.T) {
	r := newRecorder[string](100, func() errorFormat { return nil }, nil)
	r.record(reconcile.Result[string]{Item: "a", Outcome: reconcile.OutcomeSucceeded})
	r.read()
	const step = 3 * time.Hour
	*(*uint64)(unsafe.Pointer(&r.begin)) -= uint64(step/time.Second) << 30 // the seconds of a time with a monotonic reading
	for i := range r.shards {
		for _, e := range r.shards[i].book.items {
			e.newest.run.Ended -= moment(step)
		}
	}
	r.record(reconcile.Result[string]{Item: "b", Outcome: reconcile.OutcomeSucceeded})
	lasts, _ := r.read()
	for _, item := range []string{"a", "b"} {
		for _, run := range append(r.history(item), lasts[item]) {
			if ago := time.Since(run.Ended.Time()); ago < 0 || ago > time.Minute {
				t.Errorf("%s ended %v ago, want now", item, ago)
			}
		}
	}
}

func TestOnClockAfterAStepOfTheClock(t *testing.T) {
	then := time.Now()
	if got := onClock(then); got != then {
		t.Errorf("without a step onClock = %v, want %v", got, then)
	}
	*(*uint64)(unsafe.Pointer(&then)) -= 3 * 3600 << 30
	for what, got := range map[string]time.Time{"JSON": onClock(then).Round(0), "the page": onClock(then)} {
		if ago := time.Since(got); ago < 0 || ago > time.Minute {
			t.Errorf("after a step, for %s it was %v ago, want now", what, ago)
		}
	}
	if got := onClock(time.Time{}); !got.IsZero() {
		t.Errorf("onClock of the zero time = %v", got)
	}
}

// A rejecting Set has rejected its listings since then.
type rejecting struct {
	Set
	since time.Time
}

func (r rejecting) Stats() keep.Stats            { return keep.Stats{} }
func (r rejecting) Age() time.Duration           { return 0 }
func (r rejecting) Rejected() (time.Time, error) { return r.since, keep.ErrTooMany }

func TestTimeOfARejectionAfterAStepOfTheClock(t *testing.T) {
	then := time.Now()
	*(*uint64)(unsafe.Pointer(&then)) -= 3 * 3600 << 30
	v := New().listingView(&Listing{Name: "l", Of: rejecting{since: then}})
	if ago := time.Since(v.Since.Round(0)); ago < 0 || ago > time.Minute {
		t.Errorf("rejected %v ago, want now", ago)
	}
}
