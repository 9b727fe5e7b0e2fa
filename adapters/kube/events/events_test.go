// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/events"
	"github.com/reconkernel/reconcile/supervise"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// TestAroundEndsAfterFeeders keeps its place in a Group: a Reconciler in it is ended
// after what feeds.
func TestAroundEndsAfterFeeders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		q := reconcile.NewQueue[string]()
		var g supervise.Group
		feeding := true
		g.Add("feed", reconcile.RunFunc(func(ctx context.Context) error {
			q.Enqueue("a")
			<-ctx.Done()
			time.Sleep(time.Second / 2)
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
		{reconcile.Result[string]{Outcome: reconcile.OutcomeSucceeded}, ""},
		{reconcile.Result[string]{Outcome: reconcile.OutcomeRequeued, Err: reconcile.RequeueAfter(1)}, ""},
		{reconcile.Result[string]{Outcome: reconcile.OutcomeAborted, Err: unlucky}, ""},
		{reconcile.Result[string]{Outcome: reconcile.OutcomeRetrying, Err: unlucky}, "Failed"},
		{reconcile.Result[string]{Outcome: reconcile.OutcomeGaveUp, Err: unlucky}, "GaveUp"},
		{reconcile.Result[string]{Outcome: reconcile.OutcomeTerminal, Err: unlucky}, "TerminalError"},
		{reconcile.Result[string]{Outcome: reconcile.OutcomeRetrying, Err: &reconcile.PanicError{Value: 1}}, "Panicked"},
	} {
		e, ok := events.Failures(test.result)
		if ok != (test.reason != "") || e.Reason != test.reason || ok && (e.Type != "Warning" || e.Note != test.result.Err.Error()) {
			t.Errorf("Failures(%v) = %+v, %v, want the reason %q", test.result, e, ok, test.reason)
		}
	}
}

// TestBadFields sees an error for each field that is missing or wrong.
func TestBadFields(t *testing.T) {
	for want, spoil := range map[string]func(*events.Recorder[string]){
		"Recorder.Client is required":    func(r *events.Recorder[string]) { r.Client = nil },
		"Recorder.Regarding is required": func(r *events.Recorder[string]) { r.Regarding = nil },
		`Recorder.Controller is ""`:      func(r *events.Recorder[string]) { r.Controller = "" },
		`Recorder.Controller is "a b"`:   func(r *events.Recorder[string]) { r.Controller = "a b" },
		"the API server takes 128": func(r *events.Recorder[string]) {
			r.Controller = strings.Repeat(strings.Repeat("x", 60)+".", 2) + "example.com/bucket"
		},
		"Recorder.Rate is -1": func(r *events.Recorder[string]) { r.Rate = -1 },
	} {
		r := newRecorder()
		spoil(r)
		err := r.Around(reconcile.RunFunc(func(context.Context) error { return nil })).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("got %v, want a terminal error with %q in it", err, want)
		}
	}
	if err := newRecorder().Around(nil).Run(t.Context()); err == nil {
		t.Error("Around(nil) runs")
	}
}

// newRecorder returns one that has nothing to write to.
func newRecorder() *events.Recorder[string] {
	return &events.Recorder[string]{
		Client: fake.NewClientset().EventsV1(), Controller: "example.com/test", Logger: quiet,
		Regarding: func(item string) (runtime.Object, error) {
			return &corev1.ObjectReference{Kind: "Thing", Namespace: "default", Name: item}, nil
		},
	}
}
