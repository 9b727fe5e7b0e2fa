// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/board"
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// told tells a board of a run, as the Reconciler does: before the item is
// given back to the queue.
func told(t *testing.T, b *assetBoard, id cloud.ID, outcome reconcile.Outcome, err error, failures int, next time.Duration) {
	t.Helper()
	got, errTake := b.Queue.Dequeue(t.Context())
	if errTake != nil || got != id {
		t.Fatalf("the queue gives %v, %v; want %v", got, errTake, id)
	}
	b.Result(reconcile.Result[cloud.ID]{Item: id, Outcome: outcome, Err: err, Failures: failures, Next: next})
	planned := reconcile.RequeueError{}
	switch {
	case errors.As(err, &planned):
		b.Queue.Requeue(id, reconcile.RequeueOptions{Delay: planned.Delay, Hold: planned.Hold, Recheck: planned.Recheck})
	case outcome == reconcile.Retrying:
		b.Queue.Requeue(id, reconcile.RequeueOptions{Delay: next, Err: err})
	default:
		b.Queue.Done(id)
	}
}

// A scene is a board with assets in many states.
func scene(t *testing.T) *view {
	queue := reconcile.NewQueue[cloud.ID]()
	b := newBoard(queue)
	want(b, generate(8)) // a key and seven buckets
	id := func(i int) cloud.ID { return bucket(fmt.Sprintf("bucket-%05d", i)) }
	told(t, b, key("key-00000"), reconcile.Succeeded, errInSync, 0, time.Minute)
	told(t, b, id(1), reconcile.Retrying, errors.New("500: internal error"), 3, 400*time.Millisecond)
	told(t, b, id(2), reconcile.TerminalError, errors.New("409: the name is taken\nby another"), 1, 0)
	told(t, b, id(3), reconcile.Requeued, fmt.Errorf("%w, by op-7: %w", board.Creating, reconcile.RequeueWithin(time.Second)), 0, time.Second)
	told(t, b, id(4), reconcile.Requeued, fmt.Errorf("%w, 429: slowly: %w", board.Throttled, reconcile.RequeueAfter(2*time.Second)), 0, 2*time.Second)
	told(t, b, id(5), reconcile.GaveUp, errors.New("no answer"), 13, 0)
	if _, err := queue.Dequeue(t.Context()); err != nil { // bucket 6 runs, bucket 7 is ready
		t.Fatal(err)
	}
	return &view{board: b, queue: queue, title: "cloud at http://cloud", began: time.Now()}
}

func TestTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := scene(t)
		v.screen = func() (int, int) { return 0, 0 }
		v.note("something %s", "happened")
		time.Sleep(2 * time.Second)
		v.file("f.json", 0, errors.New("f.json:3: bad"))
		fmt.Fprintln(v, "a line of the log")
		for _, test := range []struct {
			width, height int
			want          string
		}{
			{100, 24, `
[##------------------] in sync 1/8, about 2s left, 3 reconciles a second, 2.0s
pending 2, creating 1, throttled 1, retrying 1, cannot be 2; 6 reconciles, 1 retry, drift mended 0
cloud at http://cloud

ASSET                    STATE     TRIES  NEXT RUN          DETAIL
key/key-00000            in sync          within 58s
bucket/bucket-00001      retrying      3  now               500: internal error
bucket/bucket-00002      refused       1  -                 409: the name is taken by another
bucket/bucket-00003      creating         now               by op-7
bucket/bucket-00004      throttled        now               429: slowly
bucket/bucket-00005      gave up      13  -                 no answer
bucket/bucket-00006      pending          running
bucket/bucket-00007      pending          now

    2.0s  f.json is not used, the last good version stays in force:
          f.json:3: bad
    2.0s  a line of the log
    0.0s  something happened
`},
			// Where there is little room, what needs attention comes first.
			{60, 13, `
in sync 1/8, about 2s left, 3 reconciles a second, 2.0s
pending 2, creating 1, throttled 1, retrying 1, cannot be 2~
cloud at http://cloud

ASSET                    STATE     TRIES  NEXT RUN         ~
bucket/bucket-00005      gave up      13  -                ~
bucket/bucket-00002      refused       1  -                ~
bucket/bucket-00001      retrying      3  now              ~

    2.0s  f.json is not used, the last good version stays i~
          f.json:3: bad
    2.0s  a line of the log
    0.0s  something happened
`},
			{20, 2, `
in sync 1/8, about ~
pending 2, creating~
`},
		} {
			lines := v.frame(test.width, test.height)
			for i := range lines {
				lines[i] = strings.TrimRight(lines[i], " ")
			}
			if got, want := strings.Join(lines, "\n"), strings.TrimSuffix(test.want[1:], "\n"); got != want {
				t.Errorf("the table of %d by %d is\n%s\nwant\n%s", test.width, test.height, got, want)
			}
		}
	})
}

func TestTableColours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := scene(t)
		v.colour = true
		frame := v.frame(100, 24)
		if line := frame[5]; !strings.HasPrefix(line, green) || !strings.HasSuffix(line, plain) {
			t.Errorf("what is in sync is not green: %q", line)
		}
		if line := frame[7]; !strings.HasPrefix(line, red) || !strings.HasSuffix(line, plain) {
			t.Errorf("what is refused is not red: %q", line)
		}
	})
}

// The time that is left counts what was begun as half done; there is none before
// anything was, once all was in sync, and of what nobody knows.
func TestTimeLeft(t *testing.T) {
	v := &view{began: time.Now()}
	for _, test := range []struct {
		now  board.Totals
		took time.Duration
		want string
	}{
		{board.Totals{Wanted: 20000, Pending: 20000}, 100 * time.Millisecond, ""},
		{board.Totals{Wanted: 20000, Pending: 16000}, time.Second, ", about 9s left"},
		{board.Totals{Wanted: 20000, Pending: 10000, Runs: 10000}, 3 * time.Second, ", about 9s left"},
		{board.Totals{Wanted: 20000, InSync: 8000, Refused: 2000}, 3 * time.Second, ", about 1s left"},
		{board.Totals{Wanted: 20000, InSync: 20000}, 10 * time.Second, ""},
		{board.Totals{Wanted: 20000, InSync: 19999}, time.Hour, ""}, // drift is being mended
	} {
		if got := v.timeLeft(test.now, test.took); got != test.want {
			t.Errorf("%+v after %v: %q, want %q", test.now, test.took, got, test.want)
		}
	}
}

// The screen is put back as it was, and shows the last table.
func TestScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := scene(t)
		var out buffer
		v.out = &out
		v.screen = func() (int, int) { return 100, 24 }
		stop := sync.OnceFunc(v.start(t.Context()))
		defer stop() // also when the test fails before its end
		time.Sleep(time.Second)
		synctest.Wait()
		if n := strings.Count(out.String(), home); n != 6 {
			t.Errorf("the table was drawn %d times in a second, want 6", n)
		}
		stop()
		got := out.String()
		if !strings.HasPrefix(got, enterScreen+home) {
			t.Errorf("the output begins with %q", got[:40])
		}
		_, after, left := strings.Cut(got, leaveScreen)
		if !left || !strings.Contains(after, "bucket/bucket-00002      refused") || strings.Contains(after, "\x1b") {
			t.Errorf("after the end of the screen comes %q, want the table", after)
		}
	})
}

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := scene(t)
		var out, errs buffer
		v.out, v.errs = &out, &errs
		for _, r := range v.board.Rows(100) {
			v.moved(r)
		}
		v.brief = true // then only of what cannot be
		for _, r := range v.board.Rows(100) {
			v.moved(r)
		}
		want := `
    0.0s  key/key-00000          in sync
    0.0s  bucket/bucket-00001    retrying   try 3, the next in 400ms: 500: internal error
    0.0s  bucket/bucket-00002    refused    409: the name is taken by another
    0.0s  bucket/bucket-00003    creating   by op-7
    0.0s  bucket/bucket-00004    throttled  429: slowly
    0.0s  bucket/bucket-00005    gave up    no answer
    0.0s  bucket/bucket-00006    pending
    0.0s  bucket/bucket-00007    pending
    0.0s  bucket/bucket-00002    refused    409: the name is taken by another
    0.0s  bucket/bucket-00005    gave up    no answer
`[1:]
		if got := out.String(); got != want {
			t.Errorf("the lines are\n%swant\n%s", got, want)
		}
	})
}

// Where not all fit, those come first that need attention, and of the others those
// that changed last.
func TestRowsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(reconcile.NewQueue[cloud.ID]())
		all := generate(10)
		want(b, all)
		for i, id := range all.order {
			switch i {
			case 5, 7:
				told(t, b, id, reconcile.Retrying, errors.New("bad"), i, time.Hour)
			default:
				told(t, b, id, reconcile.Succeeded, errInSync, 0, time.Hour)
			}
			time.Sleep(time.Millisecond)
		}
		o, rows := all.order, b.Rows(4)
		for i, want := range []cloud.ID{o[7], o[5], o[9], o[8]} {
			if rows[i].Item != want {
				t.Errorf("row %d is %v, want %v", i, rows[i].Item, want)
			}
		}
	})
}

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := scene(t)
		for _, test := range []struct {
			watch bool
			code  int
			first string
		}{
			{true, 0, "1 of 8 assets in sync after 2.0s\n"},
			{false, 1, "interrupted\n1 of 8 assets in sync after 2.0s\n"},
		} {
			var out buffer
			code := v.board.Report(&out, "asset", "assets", 2*time.Second, test.watch)
			got := out.String()
			if code != test.code || !strings.HasPrefix(got, test.first) {
				t.Errorf("with watch %t the code is %d and the report\n%s\nwant %d and first\n%s", test.watch, code, got, test.code, test.first)
			}
			if want := "2 cannot be:\n  bucket/bucket-00002: 409: the name is taken by another\n  bucket/bucket-00005: no answer\n"; !strings.HasSuffix(got, want) {
				t.Errorf("the report is\n%s\nwant at its end\n%s", got, want)
			}
		}
	})
}
