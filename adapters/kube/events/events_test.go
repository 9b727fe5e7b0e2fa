// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/events"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// TestSeries writes the first at once, the count once in Interval, and a new
// event when the series was quiet for 6 minutes.
func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRecorder()
		defer start(t, r)()
		failed := events.Event{Type: "Warning", Reason: "Failed", Note: "no luck"}
		r.Record("a", failed)
		want(t, s, "create a Failed x1 0s")
		for range 5 {
			r.Record("a", failed)
		}
		r.Record("b", failed)
		want(t, s, "create b Failed x1 0s")
		time.Sleep(59 * time.Second)
		want(t, s)
		time.Sleep(time.Second)
		want(t, s, "patch a x6 1m0s")
		time.Sleep(4 * time.Minute)
		r.Record("a", failed)
		want(t, s, "patch a x7 5m0s")
		time.Sleep(5 * time.Minute)
		r.Record("a", failed)
		want(t, s, "patch a x8 10m0s")
		time.Sleep(6 * time.Minute)
		r.Record("a", failed)
		want(t, s, "create a Failed x1 16m0s")
	})
}

// TestRate writes no more than Rate a second, of all series.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRecorder()
		r.Rate = 2
		defer start(t, r)()
		for i := range 6 {
			r.Record(fmt.Sprint(i), events.Event{Reason: "Made"})
		}
		want(t, s, "create 0 Made x1 0s", "create 1 Made x1 0s")
		time.Sleep(time.Second)
		want(t, s, "create 2 Made x1 500ms", "create 3 Made x1 1s")
		time.Sleep(time.Second)
		want(t, s, "create 4 Made x1 1.5s", "create 5 Made x1 2s")
	})
}

// TestLimit drops what is more than Limit, says so once, and takes new ones when
// old ones are over.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRecorder()
		var log bytes.Buffer
		r.Logger, r.Limit = slog.New(slog.NewTextHandler(&log, nil)), 2
		defer start(t, r)()
		for _, item := range []string{"a", "b", "c", "d", "a"} {
			r.Record(item, events.Event{Reason: "Made"})
		}
		synctest.Wait()
		if got := s.took(); len(got) != 2 || strings.Count(log.String(), "too many series") != 1 {
			t.Errorf("writes %q and log %q, want two writes and one line", got, log.String())
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s.took()
		r.Record("c", events.Event{Reason: "Made"})
		want(t, s, "create c Made x1 10m0s")
	})
}

// TestServerTrouble has the server fail, lose an answer, forget an event, and
// refuse one.
func TestServerTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRecorder()
		defer start(t, r)()
		made := events.Event{Reason: "Made"}
		tries := 0
		s.fail = func(string) error {
			if tries++; tries <= 3 {
				return errors.New("no server")
			}
			return nil
		}
		r.Record("a", made)
		r.Record("a", made)
		time.Sleep(10 * time.Second) // pauses of 1, 2 and 4 s at most
		synctest.Wait()
		if got := s.took(); len(got) != 1 || !strings.HasPrefix(got[0], "create a Made x2 ") || tries != 4 {
			t.Errorf("after %d tries: %q, want that the fourth made an event of two", tries, got)
		}

		lost := true
		s.fail = func(string) error {
			if lost {
				lost = false
				return errLost
			}
			return nil
		}
		r.Record("b", made)
		r.Record("b", made)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := s.took(); len(got) != 1 || !strings.HasPrefix(got[0], "patch b x2") {
			t.Errorf("after an answer was lost: %q, want that the one there is counted", got)
		}

		s.fail = nil
		s.expire()
		time.Sleep(2 * time.Minute)
		r.Record("a", made)
		synctest.Wait()
		if got := s.took(); len(got) != 1 || !strings.HasPrefix(got[0], "create a Made x3") {
			t.Errorf("after the server forgot it: %q, want it made again", got)
		}

		tries = 0
		s.fail = func(string) error {
			tries++
			return apierrors.NewForbidden(schema.GroupResource{}, "c", errors.New("no"))
		}
		r.Record("c", made)
		time.Sleep(time.Minute)
		synctest.Wait()
		if tries != 1 {
			t.Errorf("%d tries of what was refused, want 1", tries)
		}
		s.fail = nil
		r.Record("c", made)
		want(t, s, fmt.Sprintf("create c Made x1 %v", time.Since(s.begin)))
	})
}

// TestLastWords writes what is left when it ends.
func TestLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRecorder()
		made := events.Event{Reason: "Made"}
		r.Event = func(result reconcile.Result[string]) (events.Event, bool) {
			return events.Event{Reason: "Ended"}, result.Outcome == reconcile.Succeeded
		}
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		workers := &reconcile.Reconciler[string]{
			Queue: q, Logger: quiet, Grace: time.Minute, OnResult: r.OnResult,
			Reconcile: func(context.Context, string) error {
				r.Record("a", made)
				time.Sleep(30 * time.Second)
				r.Record("a", made) // held for a minute
				return nil
			},
		}
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if err := r.Around(workers).Run(ctx); err != nil {
			t.Error(err)
		}
		got := s.took()
		slices.Sort(got)
		if want := []string{"create a Ended x1 30s", "create a Made x1 0s", "patch a x2 30s"}; !slices.Equal(got, want) {
			t.Errorf("writes: got %q, want %q", got, want)
		}
		if at := time.Since(s.begin); at != 30*time.Second {
			t.Errorf("ended at %v, want 30s, with the workers", at)
		}

		// A server that does not answer is not waited for.
		s.fail = func(string) error {
			time.Sleep(time.Second)
			return errors.New("no server")
		}
		for _, item := range []string{"b", "c", "d", "e"} {
			r.Record(item, made)
		}
		ctx, stop = context.WithCancel(t.Context())
		stop()
		begin := time.Now()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("it took %v to end, want little more than 2s", took)
		}
	})
}

// TestAroundEndsLast keeps its place in a Group: a Reconciler in it is ended
// after what feeds.
func TestAroundEndsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRecorder()
		q := reconcile.NewQueue[string]()
		var g reconcile.Group
		feeding := true
		g.Add("feed", reconcile.RunFunc(func(ctx context.Context) error {
			q.Enqueue("a")
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			feeding = false
			return nil
		}))
		g.Add("workers", r.Around(&reconcile.Reconciler[string]{Queue: q, Logger: quiet, Reconcile: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			if feeding {
				t.Error("the workers are ended before what feeds")
			}
			return nil
		}}))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestFailures is the table of what becomes of results.
func TestFailures(t *testing.T) {
	unlucky := errors.New("no luck")
	for _, test := range []struct {
		result reconcile.Result[string]
		reason string
	}{
		{reconcile.Result[string]{Outcome: reconcile.Succeeded}, ""},
		{reconcile.Result[string]{Outcome: reconcile.Requeued, Err: reconcile.RequeueAfter(1)}, ""},
		{reconcile.Result[string]{Outcome: reconcile.Aborted, Err: unlucky}, ""},
		{reconcile.Result[string]{Outcome: reconcile.Retrying, Err: unlucky}, "Failed"},
		{reconcile.Result[string]{Outcome: reconcile.GaveUp, Err: unlucky}, "GaveUp"},
		{reconcile.Result[string]{Outcome: reconcile.Terminated, Err: unlucky}, "Terminated"},
		{reconcile.Result[string]{Outcome: reconcile.Retrying, Err: &reconcile.PanicError{Value: 1}}, "Panicked"},
	} {
		e, ok := events.Failures(test.result)
		if ok != (test.reason != "") || e.Reason != test.reason || ok && (e.Type != "Warning" || e.Note != test.result.Err.Error()) {
			t.Errorf("Failures(%v) = %+v, %v, want the reason %q", test.result, e, ok, test.reason)
		}
	}
}

// TestBadFields sees an error for each field that is missing or wrong, and a line
// for each event that is.
func TestBadFields(t *testing.T) {
	for want, spoil := range map[string]func(*events.Recorder[string]){
		"Recorder.Client is required":    func(r *events.Recorder[string]) { r.Client = nil },
		"Recorder.Regarding is required": func(r *events.Recorder[string]) { r.Regarding = nil },
		`Recorder.Controller is ""`:      func(r *events.Recorder[string]) { r.Controller = "" },
		`Recorder.Controller is "a b"`:   func(r *events.Recorder[string]) { r.Controller = "a b" },
		"Recorder.Instance is":           func(r *events.Recorder[string]) { r.Instance = strings.Repeat("x", 129) },
		"Recorder.Interval is -1s":       func(r *events.Recorder[string]) { r.Interval = -time.Second },
		"Recorder.Rate is -1":            func(r *events.Recorder[string]) { r.Rate = -1 },
		"Recorder.Limit is -1":           func(r *events.Recorder[string]) { r.Limit = -1 },
	} {
		r, _ := newRecorder()
		spoil(r)
		for _, run := range []reconcile.Runner{r, r.Around(reconcile.RunFunc(func(context.Context) error { return nil }))} {
			if err := run.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, reconcile.ErrTerminal) {
				t.Errorf("got %v, want a terminal error with %q in it", err, want)
			}
		}
	}
	r, s := newRecorder()
	if err := r.Around(nil).Run(t.Context()); err == nil {
		t.Error("Around(nil) runs")
	}
	var log bytes.Buffer
	r.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r.Record("a", events.Event{Reason: "Made", Type: "Bad"})
	r.Record("a", events.Event{})
	r.Record("a", events.Event{Reason: strings.Repeat("x", 129)})
	if n := strings.Count(log.String(), "event dropped"); n != 3 {
		t.Errorf("%d lines, want 3:\n%s", n, log.String())
	}
	r.Record("gone", events.Event{Reason: "Made"})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Run(ctx); err != nil || len(s.took()) > 0 {
		t.Errorf("Run: %v, want no writes", err)
	}
}
