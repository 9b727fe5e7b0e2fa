// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

// A Thing is what some program knows of a Thing: its status has a size as well.
type Thing struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            ThingStatus `json:"status,omitzero"`
}

type ThingStatus struct {
	URL        string             `json:"url,omitempty"`
	Colour     string             `json:"colour,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

func (t *Thing) DeepCopyObject() runtime.Object { return custom.DeepCopy(t) }

// TestWriteStatus writes what a function changed, and only if it did; it keeps
// what the type does not know, and what others wrote since the cache knew.
func TestWriteStatus(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		var link kubetest.Link
		anyThing, _ := define(t, s, s.Admin())
		ns := get(t, anyThing).GetNamespace()
		if _, err := anyThing.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"status": {"size": 1}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		gvr := schema.GroupVersionResource{Group: "conditions.example.com", Version: "v1", Resource: "things"}
		things, err := custom.NewClient[Thing](link.Config(s.Admin()), gvr, "Thing")
		if err != nil {
			t.Fatal(err)
		}
		client := things.In(ns)
		old, err := client.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		locate := func(thing *Thing) {
			calls++
			thing.Status.URL = "here"
			meta.SetStatusCondition(&thing.Status.Conditions, conditions.Ready(1, nil))
		}
		requests := func() int { return link.Requests()["PATCH things/status"] }

		thing, err := conditions.WriteStatus(t.Context(), client, old, locate)
		if err != nil || thing.Status.URL != "here" || len(thing.Status.Conditions) != 1 || requests() != 1 || calls != 1 {
			t.Fatalf("got %+v, %v, with %d requests and %d calls", thing, err, requests(), calls)
		}
		if old.Status.URL != "" || len(old.Status.Conditions) != 0 {
			t.Errorf("the object given was changed: %+v", old.Status)
		}
		if status := get(t, anyThing).Object["status"].(map[string]any); status["size"] != int64(1) {
			t.Errorf("the server has the status %v, want the size 1 kept", status)
		}
		same, err := conditions.WriteStatus(t.Context(), client, thing, locate)
		if err != nil || same != thing || requests() != 1 {
			t.Errorf("the same again: %v, %d requests, want one altogether", err, requests())
		}

		// Somebody else writes, and the cache lags.
		if _, err := conditions.WriteStatus(t.Context(), client, thing, func(thing *Thing) { thing.Status.Colour = "red" }); err != nil {
			t.Fatal(err)
		}
		calls = 0
		thing, err = conditions.WriteStatus(t.Context(), client, thing, func(thing *Thing) {
			calls++
			thing.Status.URL = ""
		})
		if err != nil || thing.Status.URL != "" || thing.Status.Colour != "red" || calls != 2 {
			t.Errorf("with a lagging cache: %+v, %v, %d calls, want no URL, red, 2 calls", thing.Status, err, calls)
		}
		before := requests()
		if _, err := conditions.WriteStatus(t.Context(), client, old, func(thing *Thing) { thing.Status.Colour = "red" }); err != nil || requests() != before+1 {
			t.Errorf("what is there already: %v, %d requests, want the one that finds so", err, requests()-before)
		}
		thing, err = conditions.WriteStatus(t.Context(), client, thing, func(thing *Thing) { thing.Status = ThingStatus{} })
		if status := get(t, anyThing).Object["status"].(map[string]any); err != nil || len(status) != 1 || status["size"] != int64(1) {
			t.Errorf("cleared: the server has the status %v, %v, want the size 1 alone", status, err)
		}
		before = requests()
		_, err = conditions.WriteStatus(t.Context(), client, thing, func(thing *Thing) { thing.Labels = map[string]string{"a": "b"} })
		if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "changed more") || requests() != before {
			t.Errorf("a change of a label: %v, %d requests, want a terminal error and none", err, requests()-before)
		}
		s.Kubectl(t, "delete", "things.conditions.example.com", "a", "-n", ns)
		if _, err := conditions.WriteStatus(t.Context(), client, thing, locate); !apierrors.IsNotFound(err) {
			t.Errorf("of one that is gone: %v, want NotFound", err)
		}
	})
}

// A typed client and an informer of a Go type, and its status, which is written
// when it changes.
func ExampleReport_typed() {
	var (
		config *rest.Config
		locate func(thing *Thing) (url string, err error)
		group  supervise.Group
	)
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	things, err := custom.NewClient[Thing](config, gvr, "Thing")
	if err != nil {
		return
	}
	source := &kube.Source[cache.ObjectName]{Informer: things.Informer("", 0), Keys: kube.Name}
	queue := reconcile.NewQueue[cache.ObjectName]()
	run := func(ctx context.Context, name cache.ObjectName) error {
		thing, err := kube.Get[*Thing](source.Informer, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		url, err := locate(thing)
		return conditions.Report(ctx, things.In(name.Namespace), thing, err, func(t *Thing, ready metav1.Condition) {
			t.Status.URL = url
			meta.SetStatusCondition(&t.Status.Conditions, ready)
		})
	}
	group.Add("informer", kube.Run(source.Informer))
	group.Add("things", reconcile.Feed(queue, source.Feed))
	group.Add("runs", supervise.After(source.Synced, &reconcile.Reconciler[cache.ObjectName]{
		Queue: queue, Reconcile: run, Retry: kube.Retry(nil),
	}))
}
