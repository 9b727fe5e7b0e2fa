// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"slices"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// A watch of one object has the events of that object alone. A selector that could match
// another one is refused.
func TestWatchOfOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := kubesim.NewServer()
		client := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().RESTClient()
		s.Create(owned("default", "a"))
		s.Create(owned("default", "b"))
		for selector, refused := range map[string]bool{"": false, "metadata.name=a": false, "metadata.name=b": true, "metadata.name!=b": true} {
			w, err := client.Get().Resource("configmaps").Namespace("default").Name("a").Param("watch", "true").Param("fieldSelector", selector).Watch(t.Context())
			if refused != apierrors.IsBadRequest(err) {
				t.Errorf("%q: a watch returns %v, want that it is refused: %v", selector, err, refused)
			}
			if err != nil {
				continue
			}
			if got := received(w); !slices.Equal(got, []string{"ADDED a"}) {
				t.Errorf("%q: the watch has %q, want ADDED a", selector, got)
			}
			w.Stop()
		}
	})
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
