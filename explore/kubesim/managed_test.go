// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	})
}
