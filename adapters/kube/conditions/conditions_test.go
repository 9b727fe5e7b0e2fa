// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

type thing = *unstructured.Unstructured

// define makes the kind Thing known, and one of it.
func define(t *testing.T, s *apitest.Server, config *rest.Config) (client kube.Client[thing], watch dynamic.ResourceInterface) {
	t.Helper()
	things := s.Define(t, "Namespaced", "conditions.example.com", "Thing")
	ns := s.Namespace(t)
	s.KubectlInput(t, "{apiVersion: conditions.example.com/v1, kind: Thing, metadata: {name: a, namespace: "+ns+"}, status: {size: 1}}", "create", "-f", "-")
	watch = kubetest.Dynamic(t, config).Resource(things).Namespace(ns)
	return kube.Untyped[thing](watch), watch
}

// write writes a condition of a Thing.
func write(t *testing.T, client kube.Client[thing], obj thing, c metav1.Condition) (thing, error) {
	return conditions.WriteStatus(t.Context(), client, obj, func(obj thing) { set(obj, c) })
}

func get(t *testing.T, client kube.Client[thing]) thing {
	t.Helper()
	obj, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// brief returns conditions in one line.
func brief(obj thing) string {
	var parts []string
	for _, c := range of(obj) {
		parts = append(parts, fmt.Sprintf("%s=%s %s %s %d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration))
	}
	return strings.Join(parts, ", ")
}

var failed = metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Failed", Message: "no luck", ObservedGeneration: 1}

// TestWrite writes on change alone, and leaves the conditions of others.
func TestWrite(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		var link kubetest.Link
		client, _ := define(t, s, link.Config(s.Admin()))
		patches := func() int { return link.Requests()["PATCH things/status"] }

		obj, err := write(t, client, get(t, client), metav1.Condition{Type: "Theirs", Status: "True", Reason: "Fine"})
		if err != nil {
			t.Fatal(err)
		}
		obj, err = write(t, client, obj, failed)
		if err != nil {
			t.Fatal(err)
		}
		const want = "Theirs=True Fine  0, Ready=False Failed no luck 1"
		if got := brief(obj); got != want || brief(get(t, client)) != want {
			t.Errorf("got %q, and the server has %q, want %q", got, brief(get(t, client)), want)
		}
		before := patches()
		same, err := write(t, client, obj, failed)
		if err != nil || same != obj || patches() != before {
			t.Errorf("the same again: %v, %d requests, want none", err, patches()-before)
		}
		first := of(obj)[1].LastTransitionTime
		other := failed
		other.Message = "still no luck"
		obj, err = write(t, client, obj, other)
		if err != nil || patches() != before+1 {
			t.Errorf("another message: %v, %d requests, want one", err, patches()-before)
		}
		if c := of(obj)[1]; first.IsZero() || !c.LastTransitionTime.Equal(&first) {
			t.Errorf("last transition %v, want %v, since the status is the same", c.LastTransitionTime, first)
		}
	})
}

// TestWriteWithStaleObject has another writer come first, as a cache that lags
// makes it look: theirs stays, and what is there already is not written again.
func TestWriteWithStaleObject(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		var link kubetest.Link
		client, _ := define(t, s, link.Config(s.Admin()))
		stale := get(t, client)
		if _, err := write(t, client, stale, metav1.Condition{Type: "Theirs", Status: "True", Reason: "Fine"}); err != nil {
			t.Fatal(err)
		}
		obj, err := write(t, client, stale, failed)
		if err != nil {
			t.Fatal(err)
		}
		const want = "Theirs=True Fine  0, Ready=False Failed no luck 1"
		if got := brief(get(t, client)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		version := obj.GetResourceVersion()
		if _, err := write(t, client, stale, failed); err != nil {
			t.Fatal(err)
		}
		if got := get(t, client).GetResourceVersion(); got != version {
			t.Errorf("resource version %s, want %s: the server had it already", got, version)
		}
		s.Kubectl(t, "delete", "things.conditions.example.com", "a", "-n", stale.GetNamespace())
		if _, err := write(t, client, stale, failed); !apierrors.IsNotFound(err) {
			t.Errorf("write to one that is gone: %v, want NotFound", err)
		}
	})
}

// TestReadyDoesNotWakeItself runs a Reconciler that is fed by a watch: each
// outcome is written once, and the event of that makes one more run, which
// writes nothing.
func TestReadyDoesNotWakeItself(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		var link kubetest.Link
		client, resource := define(t, s, link.Config(s.Admin()))
		q := reconcile.NewQueue[string]()
		watch, err := resource.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Stop()
		runs := make(chan error, 10)
		var outcome error
		var next func() error
		step := func() { // one event, one run
			t.Helper()
			event, ok := <-watch.ResultChan()
			if !ok {
				t.Fatal("the watch has ended")
			}
			q.Enqueue(event.Object.(thing).GetName())
			if err := <-runs; !errors.Is(err, outcome) {
				t.Errorf("run: %v, want %v", err, outcome)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- (&reconcile.Reconciler[string]{
				Queue: q, Retry: reconcile.NoRetry, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
				Reconcile: func(ctx context.Context, name string) error {
					obj, err := client.Get(ctx, name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					outcome = next()
					return conditions.Report(ctx, client, obj, outcome, set)
				},
				OnResult: func(r reconcile.Result[string]) { runs <- r.Err },
			}).Run(ctx)
		}()
		defer func() {
			stop()
			<-ended
		}()
		always := func(err error) func() error { return func() error { return err } }
		delay := time.Hour
		longer := func() error {
			delay++
			return fmt.Errorf("copying: %w", reconcile.RequeueWithin(delay))
		}
		for i, f := range []func() error{
			always(nil), always(errors.New("no luck")), longer, always(reconcile.Terminal(errors.New("never"))), always(nil),
		} {
			next = f
			if i > 0 {
				s.Kubectl(t, "annotate", "--overwrite", "things.conditions.example.com", "a", "-n", get(t, client).GetNamespace(), fmt.Sprintf("step=%d", i))
			}
			step() // writes
			step() // finds nothing to write
			if got := link.Requests()["PATCH things/status"]; got != i+1 {
				t.Errorf("step %d: %d writes, want %d", i, got, i+1)
			}
		}
		select {
		case event := <-watch.ResultChan():
			t.Errorf("one more event: %v, want none", event)
		default:
		}
		if got, want := brief(get(t, client)), "Ready=True Reconciled  1"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestReadyOfPeriodicController has a Reconciler that looks again and again once
// all is well: Ready becomes True, stays so, and is not written again.
func TestReadyOfPeriodicController(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		var link kubetest.Link
		client, _ := define(t, s, link.Config(s.Admin()))
		patches := func() int { return link.Requests()["PATCH things/status"] }
		var run int
		next := func() error {
			switch run++; {
			case run <= 2:
				return fmt.Errorf("copying: %w", reconcile.RequeueWithin(time.Millisecond))
			case run < 10:
				return reconcile.RecheckWithin(time.Millisecond)
			}
			return reconcile.RecheckWithin(time.Hour)
		}
		q := reconcile.NewQueue[string]()
		var seen []string // after each run
		r := &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, name string) error {
				obj, err := client.Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				err = conditions.Report(ctx, client, obj, next(), set)
				seen = append(seen, fmt.Sprint(brief(get(t, client)), ", written ", patches()))
				if run == 10 {
					q.Close()
				}
				return err
			},
			Retry: reconcile.NoRetry,
		}
		q.Enqueue("a")
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := slices.Repeat([]string{"Ready=Unknown Progressing copying: requeued 1, written 1"}, 2)
		want = append(want, slices.Repeat([]string{"Ready=True Reconciled  1, written 2"}, 8)...)
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("Ready after each run: (-want +got)\n%s", diff)
		}
	})
}

// TestReportOverran has a run end well, or as planned, though its context is done:
// Ready is not written, so it is an error, and the next run writes it. Any other
// error stays what it is.
func TestReportOverran(t *testing.T) {
	unlucky := errors.New("no luck")
	for _, test := range []struct{ err, want error }{
		{nil, reconcile.ErrTimeout},
		{reconcile.RequeueAfter(time.Hour), reconcile.ErrTimeout},
		{reconcile.RecheckWithin(time.Hour), reconcile.ErrTimeout},
		{unlucky, unlucky},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(reconcile.ErrTimeout)
		err := conditions.Report(ctx, nil, new(unstructured.Unstructured), test.err, set)
		if err != test.want {
			t.Errorf("a run that overran its timeout and returned %v: %v, want %v", test.err, err, test.want)
		}
	}
}

func TestReady(t *testing.T) {
	for _, test := range []struct {
		err                     error
		status, reason, message string
	}{
		{nil, "True", "Reconciled", ""},
		{fmt.Errorf("copying: %w", reconcile.RequeueWithin(1)), "Unknown", "Progressing", "copying: requeued"},
		{fmt.Errorf("copying: %w", reconcile.RequeueWithin(time.Hour)), "Unknown", "Progressing", "copying: requeued"},
		{errors.Join(reconcile.RequeueAfter(time.Minute), fmt.Errorf("%w (b)", reconcile.RequeueWithin(2*time.Minute))), "Unknown", "Progressing", "requeued\nrequeued (b)"},
		{reconcile.RequeueError{Recheck: true, MinDelay: 1}, "Unknown", "Progressing", "requeued"},
		{reconcile.RecheckWithin(time.Hour), "True", "Reconciled", ""},
		{fmt.Errorf("3 of 3 copies: %w", reconcile.RecheckWithin(time.Hour)), "True", "Reconciled", "3 of 3 copies: recheck"},
		{reconcile.Terminal(errors.New("never")), "False", "TerminalError", "never"},
		{errors.New("no luck"), "False", "Failed", "no luck"},
		{errors.Join(errors.New("no luck"), reconcile.RecheckWithin(time.Hour)), "False", "Failed", "no luck\nrecheck"},
		{errors.Join(errors.New("no luck"), reconcile.RequeueAfter(time.Hour)), "False", "Failed", "no luck\nrequeued"},
		{errors.New(strings.Repeat("ä", 20000)), "False", "Failed", strings.Repeat("ä", 16382) + "..."},
	} {
		want := metav1.Condition{Type: "Ready", Status: metav1.ConditionStatus(test.status), Reason: test.reason, Message: test.message, ObservedGeneration: 3}
		if diff := cmp.Diff(want, conditions.Ready(3, test.err)); diff != "" {
			t.Errorf("Ready(3, %.30v): (-want +got)\n%s", test.err, diff)
		}
	}
}

// TestTyped has a kind of Kubernetes itself, whose status has conditions of a
// type of their own kind, which a func turns into the common one.
func TestTyped(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		client, err := typedcorev1.NewForConfig(s.Admin())
		if err != nil {
			t.Fatal(err)
		}
		ns, err := client.Namespaces().Get(t.Context(), s.Namespace(t), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		set := func(ns *corev1.Namespace, c metav1.Condition) {
			ns.Status.Conditions = []corev1.NamespaceCondition{{
				Type: corev1.NamespaceConditionType(c.Type), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			}}
		}
		var version string
		for range 2 {
			if err := conditions.Report(t.Context(), client.Namespaces(), ns, nil, set); err != nil {
				t.Fatal(err)
			}
			if ns, err = client.Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{}); err != nil || len(ns.Status.Conditions) != 1 {
				t.Fatalf("got %v, %v, want one condition", ns.Status, err)
			}
			if version != "" && ns.ResourceVersion != version {
				t.Errorf("the same again: version %s, want %s", ns.ResourceVersion, version)
			}
			version = ns.ResourceVersion
		}
	})
}

// set sets a condition of an object of a dynamic client. What is no condition in
// its list is left out.
func set(obj *unstructured.Unstructured, c metav1.Condition) {
	conditions := of(obj)
	if !meta.SetStatusCondition(&conditions, c) {
		return
	}
	list := make([]any, len(conditions))
	for i := range conditions {
		list[i], _ = runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i]) // of its type, always
	}
	if _, ok := obj.Object["status"].(map[string]any); !ok {
		obj.Object["status"] = make(map[string]any)
	}
	obj.Object["status"].(map[string]any)["conditions"] = list
}

// of returns the conditions of an object of a dynamic client, and leaves out what
// is no condition.
func of(obj *unstructured.Unstructured) (conditions []metav1.Condition) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, entry := range list {
		var c metav1.Condition
		fields, _ := entry.(map[string]any)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) == nil && c.Type != "" {
			conditions = append(conditions, c)
		}
	}
	return conditions
}
