// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

// The broadcaster of client-go wakes each few seconds for ever, so a bubble does not end.

package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/events"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/internal/record"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// A world is a namespace with a ConfigMap in it, and a Recorder.
type world struct {
	*apitest.Server
	client kubernetes.Interface
	ns     string
	cm     *corev1.ConfigMap
	r      *events.Recorder[string]
}

func newWorld(t *testing.T, s *apitest.Server, config *rest.Config) *world {
	t.Helper()
	w := &world{Server: s, ns: s.Namespace(t)}
	var err error
	if w.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if w.cm, err = w.client.CoreV1().ConfigMaps(w.ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.r = &events.Recorder[string]{
		Client: w.client.EventsV1(), Controller: "example.com/test", Logger: quiet,
		Regarding: func(name string) (runtime.Object, error) {
			return w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), name, metav1.GetOptions{})
		},
	}
	return w
}

// around runs f with the Recorder around it.
func (w *world) around(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	if err := w.r.Around(reconcile.RunFunc(f)).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) list(t *testing.T) []eventsv1.Event {
	t.Helper()
	list, err := w.client.EventsV1().Events(w.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// until waits for an event on the server that is as wanted.
func (w *world) until(ctx context.Context, wanted func(e *eventsv1.Event) bool) error {
	changes, err := w.client.EventsV1().Events(w.ns).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() { // beginning with what is there
		if e, ok := change.Object.(*eventsv1.Event); ok && wanted(e) {
			return nil
		}
	}
	return errors.New("the watch ended before there was such an event")
}

// TestOnServer has a real API server take the events of a Reconciler: one event
// for alike failures, which kubectl shows with the object.
func TestOnServer(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		w := newWorld(t, s, s.Admin())
		q := reconcile.NewQueue[string]()
		ctx, stop := context.WithCancel(t.Context())
		runs := 0
		q.Enqueue("a")
		q.Enqueue("gone")
		err := w.r.Around(&reconcile.Reconciler[string]{
			Queue: q, Logger: quiet, OnResult: w.r.OnResult, Retry: reconcile.Backoff(time.Millisecond, time.Millisecond),
			Reconcile: func(ctx context.Context, item string) error {
				if item == "a" {
					if runs++; runs == 10 {
						defer stop()
						// At the end there is a limit to how long is waited for a server.
						return w.until(ctx, func(*eventsv1.Event) bool { return true })
					}
				}
				return errors.New(strings.Repeat("x", 1500)) // too long for the server
			},
		}).Run(ctx)
		if err != nil {
			t.Fatal(err)
		}
		list := w.list(t)
		if len(list) != 1 {
			t.Fatalf("%d events, want one for all that are alike: %v", len(list), list)
		}
		e := list[0]
		if e.Type != "Warning" || e.Reason != "Failed" || e.Action != "Reconcile" || e.Regarding.UID != w.cm.UID || len(e.Note) != 1024 {
			t.Errorf("got %s %s %s of %v, a note of %d bytes; want a Warning Failed Reconcile of UID %s, 1024 bytes", e.Type, e.Reason, e.Action, e.Regarding, len(e.Note), w.cm.UID)
		}
		if out := s.Kubectl(t, "describe", "configmap", "a", "-n", w.ns); !strings.Contains(out, "Failed") {
			t.Errorf("kubectl describe does not show it:\n%s", out)
		}
	})
}

// TestSeries has events of two versions of an object be one, and counted.
func TestSeries(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		w := newWorld(t, s, s.Admin())
		w.around(t, func(ctx context.Context) error {
			w.r.Record(w.cm, events.Event{Reason: "Made"})
			if err := w.until(ctx, func(e *eventsv1.Event) bool { return true }); err != nil {
				return err
			}
			cm := w.cm.DeepCopy()
			cm.ResourceVersion = "1"
			w.r.Record(cm, events.Event{Reason: "Made"})
			return w.until(ctx, func(e *eventsv1.Event) bool { return e.Series != nil && e.Series.Count == 2 })
		})
		if list := w.list(t); len(list) != 1 {
			t.Errorf("%d events, want one: %v", len(list), list)
		}
	})
}

// TestRate writes no more than Rate a second.
func TestRate(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		w := newWorld(t, s, s.Admin())
		w.r.Rate = 4
		w.around(t, func(ctx context.Context) error {
			begin, seen := time.Now(), make(map[string]bool)
			for i := range 8 {
				w.r.Record(w.cm, events.Event{Reason: fmt.Sprint("Made", i)})
			}
			err := w.until(ctx, func(e *eventsv1.Event) bool { seen[e.Reason] = true; return len(seen) == 8 })
			if took := time.Since(begin); took < 900*time.Millisecond {
				t.Errorf("8 events in %v, want a second: 4 at once, and 4 a second", took)
			}
			return err
		})
	})
}

// TestEventsRecordedAtShutdownAreWritten writes what is recorded just before the end, and waits for no
// server that does not answer. It is in a bubble, with a link that answers in the
// server's place: a real one may take longer than the end allows.
func TestEventsRecordedAtShutdownAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var link kubetest.Link
		client, err := eventsclient.NewForConfig(link.Config(&rest.Config{Host: "http://nowhere.invalid"}))
		if err != nil {
			t.Fatal(err)
		}
		r := newRecorder()
		r.Client = client
		end := func(reasons ...string) (took time.Duration) {
			var recorded time.Time
			if err := r.Around(reconcile.RunFunc(func(context.Context) error {
				for _, reason := range reasons {
					r.Record(&corev1.ObjectReference{Kind: "Thing", Namespace: "default", Name: "a"}, events.Event{Reason: reason})
				}
				recorded = time.Now()
				return nil
			})).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			return time.Since(recorded)
		}

		var written atomic.Int64
		link.Fail(func(r *http.Request) (*http.Response, error) {
			time.Sleep(90 * time.Millisecond) // of the bubble
			written.Add(1)
			return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: r.Body, Request: r}, nil
		})
		end("Made0", "Made1", "Made2", "Made3", "Made4")
		if n := written.Load(); n != 5 {
			t.Errorf("%d events, want 5", n)
		}
		r.Record(&corev1.ObjectReference{Kind: "Thing", Namespace: "default", Name: "a"}, events.Event{Reason: "AfterEnd"}) // does not panic

		var log record.Text // client-go may write to it after the end
		r.Logger = slog.New(slog.NewTextHandler(&log, nil))
		link.Fail(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		if took := end("Late"); took != 2*time.Second || !strings.Contains(log.String(), "no time left") {
			t.Errorf("it took %v to end, want 2s, and a line that says so, got:\n%s", took, log.String())
		}
	})
}
