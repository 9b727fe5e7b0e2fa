// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/reconkernel/reconcile/explore/kubesim"
)

// received returns the events that a watch has now.
func received(w watch.Interface) (all []string) {
	synctest.Wait()
	for {
		select {
		case e := <-w.ResultChan():
			o := e.Object.(metav1.Object)
			text := string(e.Type) + " " + o.GetName()
			if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				text += "of the list"
			}
			all = append(all, text)
			synctest.Wait()
		default:
			return all
		}
	}
}

// A request of one object that asks for a watch is answered with the object.
func TestWatchOfOneObject(t *testing.T) {
	s := kubesim.NewServer()
	s.Create(owned("default", "a"))
	client := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().RESTClient()
	for _, selector := range []string{"", "metadata.name=b"} {
		got, err := client.Get().Resource("configmaps").Namespace("default").Name("a").Param("watch", "true").Param("fieldSelector", selector).Do(t.Context()).Get()
		if err != nil || got.(*corev1.ConfigMap).Name != "a" {
			t.Errorf("%q: the request returns %v, %v, want a", selector, got, err)
		}
	}
}

// A watch that begins with what is there has a bookmark behind that, if it asks for
// bookmarks, also if it does not ask for initial events.
func TestBookmarkOfInitialEvents(t *testing.T) {
	for _, noWatchList := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := kubesim.NewServer()
			s.NoWatchList = noWatchList
			s.Create(owned("default", "a"))
			want := []string{"ADDED a", "BOOKMARK of the list"}
			if noWatchList {
				want = want[:1]
			}
			for _, version := range []string{"", "0"} {
				w, err := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
				if err != nil {
					t.Fatal(err)
				}
				if got := received(w); !slices.Equal(got, want) {
					t.Errorf("NoWatchList %v: a watch from the version %q has %q, want %q", noWatchList, version, got, want)
				}
				w.Stop()
			}
		})
	}
}
