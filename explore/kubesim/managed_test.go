// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	v1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/reconkernel/reconcile/explore/kubesim"
)

// TestManagedFields has two owners of fields. A client reads who they are from the answer
// to an apply, a get and a list, and from an event. The owners that it writes are ignored.
func TestManagedFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := kubesim.NewServer()
		maps := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().ConfigMaps("default")
		w, err := maps.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		applied, err := maps.Apply(t.Context(), v1.ConfigMap("a", "default").WithData(map[string]string{"x": "1"}), metav1.ApplyOptions{FieldManager: "one"})
		if err != nil {
			t.Fatal(err)
		}
		want := func(where string, fields []metav1.ManagedFieldsEntry, owners ...string) {
			t.Helper()
			var got []string
			for _, f := range fields {
				text, err := f.FieldsV1.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(f.Operation)+" by "+f.Manager+" "+string(text))
			}
			if !slices.Equal(got, owners) {
				t.Errorf("%s: the owners are %q, want %q", where, got, owners)
			}
		}
		one := `Apply by one {"f:data":{"f:x":{}}}`
		want("applied", applied.ManagedFields, one)
		event := <-w.ResultChan()
		want("watched", event.Object.(metav1.Object).GetManagedFields(), one)

		applied.Data["y"] = "2"
		applied.ManagedFields[0].Manager = "an impostor"
		if _, err := maps.Update(t.Context(), applied, metav1.UpdateOptions{FieldManager: "two"}); err != nil {
			t.Fatal(err)
		}
		two := `Update by two {"f:data":{"f:y":{}}}`
		got, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want("got", got.ManagedFields, one, two)
		all, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want("listed", all.Items[0].ManagedFields, one, two)

		// A dry run answers as the request would, and the last event of an object has them too:
		// also that of a watch which it does not match any more.
		dry := []string{metav1.DryRunAll}
		none, err := maps.Apply(t.Context(), v1.ConfigMap("b", "default").WithData(map[string]string{"x": "1"}), metav1.ApplyOptions{FieldManager: "one", DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		want("created by a dry run", none.ManagedFields, one)
		got.Labels = map[string]string{"tier": "web"}
		labelled, err := maps.Update(t.Context(), got, metav1.UpdateOptions{FieldManager: "three", DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		three := `Update by three {"f:metadata":{"f:labels":{".":{},"f:tier":{}}}}`
		want("updated by a dry run", labelled.ManagedFields, one, three, two)
		if _, err = maps.Update(t.Context(), got, metav1.UpdateOptions{FieldManager: "three"}); err != nil {
			t.Fatal(err)
		}
		web, err := maps.Watch(t.Context(), metav1.ListOptions{LabelSelector: "tier=web"})
		if err != nil {
			t.Fatal(err)
		}
		defer web.Stop()
		<-web.ResultChan()
		if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":null,"finalizers":["example.com/x"]}}`), metav1.PatchOptions{FieldManager: "three"}); err != nil {
			t.Fatal(err)
		}
		event = <-web.ResultChan()
		want("watched by another label", event.Object.(metav1.Object).GetManagedFields(), one, three, two)
		four := `Update by three {"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/x\"":{}}}}`
		for _, options := range []metav1.DeleteOptions{{DryRun: dry}, {}} {
			body := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().RESTClient().Delete().Resource("configmaps").Namespace("default").Name("a").Body(&options).Do(t.Context())
			var deleted corev1.ConfigMap
			if err := body.Into(&deleted); err != nil {
				t.Fatal(err)
			}
			want("marked as deleted", deleted.ManagedFields, one, four, two)
		}
		if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{FieldManager: "three"}); err != nil {
			t.Fatal(err)
		}
		for event = range w.ResultChan() {
			if event.Type == watch.Deleted {
				break
			}
		}
		want("watched at its end", event.Object.(metav1.Object).GetManagedFields(), one, two)
	})
}
