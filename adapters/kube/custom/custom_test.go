// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package custom_test

import (
	"context"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// A Job is a kind of the tests.
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              JobSpec   `json:"spec"`
	Status            JobStatus `json:"status,omitzero"`
}

type JobSpec struct {
	Schedule string `json:"schedule"`
}

type JobStatus struct {
	Runs       int                `json:"runs,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

func (j *Job) DeepCopyObject() runtime.Object { return custom.DeepCopy(j) }

// TestClient makes, changes, lists, watches and deletes objects of a Go type, with
// a client whose other kinds are protobuf.
func TestClient(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		gvr := s.Define(t, "Namespaced", "custom.example.com", "Job")
		config := s.Admin()
		config.ContentType = runtime.ContentTypeProtobuf
		jobs, err := custom.NewClient[Job](config, gvr, "Job")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		client := jobs.In(ns)
		made, err := client.Create(ctx, &Job{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: JobSpec{"daily"}}, metav1.CreateOptions{})
		if err != nil || made.Spec.Schedule != "daily" || made.UID == "" || made.Kind != "Job" {
			t.Fatalf("Create: %+v, %v", made, err)
		}

		informer := jobs.Informer(ns, 0)
		source := &kube.Source[cache.ObjectName]{Informer: informer, Keys: kube.Name}
		queue := reconcile.NewQueue[cache.ObjectName]()
		kubetest.Run(t, kube.Run(informer))
		kubetest.Run(t, reconcile.Feed(queue, source.Feed))
		// see takes the next item and returns its object.
		see := func() (*Job, bool) {
			t.Helper()
			name, err := queue.Dequeue(ctx)
			if err != nil {
				t.Fatal(err)
			}
			queue.Done(name)
			job, err := kube.Get[*Job](informer, name)
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			if err == nil && job.GroupVersionKind() != gvr.GroupVersion().WithKind("Job") {
				t.Errorf("the kind of what the informer has is %s", job.GroupVersionKind())
			}
			return job, err == nil
		}
		if job, ok := see(); !ok || job.Spec.Schedule != "daily" {
			t.Errorf("listed: %+v, %t", job, ok)
		}
		made = made.DeepCopyObject().(*Job)
		made.Status.Runs = 3
		made.Spec.Schedule = "hourly"
		if _, err := client.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if job, ok := see(); !ok || job.Status.Runs != 3 || job.Spec.Schedule != "daily" {
			t.Errorf("after a change of the status: %+v, %t", job, ok)
		}
		if list, err := jobs.In("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.namespace=" + ns}); err != nil || len(list.Items) != 1 || list.Items[0].Status.Runs != 3 {
			t.Errorf("List: %+v, %v", list, err)
		} else if c := list.DeepCopyObject().(*custom.List[*Job]); c.Items[0] == list.Items[0] || c.ResourceVersion != list.ResourceVersion || c.Items[0].Name != "a" {
			t.Errorf("a deep copy of the list: %+v", c)
		}
		if err := client.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if job, ok := see(); ok {
			t.Errorf("after its deletion: %+v", job)
		}
		other, err := custom.NewClient[Job](s.Admin(), schema.GroupVersionResource{Group: "custom.example.com", Version: "v1", Resource: "others"}, "Other")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.In(ns).Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get of a kind that is not there: %v, want not found", err)
		}
		config.Host = ":no host:"
		if _, err := custom.NewClient[Job](config, gvr, "Job"); err == nil {
			t.Error("NewClient with a bad host: no error")
		}
	})
}

// TestInformerOptions lists in pages and watches the objects of a namespace that
// have a label, except one of a name. The server is one that cannot list by a
// watch, in which there are no pages.
func TestInformerOptions(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns, other := s.Namespace(t), s.Namespace(t)
		gvr := s.Define(t, "Namespaced", "custom.example.com", "Job")
		var link kubetest.Link
		link.Fail(func(req *http.Request) (*http.Response, error) {
			if req.URL.Query().Has("sendInitialEvents") {
				return kubetest.Answer(req, http.StatusBadRequest, nil), nil
			}
			return nil, nil
		})
		jobs, err := custom.NewClient[Job](link.Config(s.Admin()), gvr, "Job")
		if err != nil {
			t.Fatal(err)
		}
		create := func(ns, name, app string) {
			t.Helper()
			job := &Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
			if _, err := jobs.In(ns).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"a", "b", "c", "d", "not-this"} {
			create(ns, name, "web")
		}
		create(ns, "e", "db")
		create(other, "f", "web")
		informer := jobs.Informer(ns, 0, func(o *metav1.ListOptions) {
			o.LabelSelector, o.FieldSelector = "app=web", "metadata.name!=not-this"
		}, func(o *metav1.ListOptions) {
			if !o.Watch {
				o.Limit, o.ResourceVersion = 2, "" // version 0 has no pages
			}
		})
		source := &kube.Source[cache.ObjectName]{Informer: informer, Keys: kube.Name}
		queue := reconcile.NewQueue[cache.ObjectName]()
		kubetest.Run(t, kube.Run(informer))
		kubetest.Run(t, reconcile.Feed(queue, source.Feed))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		next := func() string {
			t.Helper()
			name, err := queue.Dequeue(ctx)
			if err != nil {
				t.Fatal(err)
			}
			queue.Done(name)
			return name.Name
		}
		first := []string{next(), next(), next(), next()}
		slices.Sort(first)
		if want := []string{"a", "b", "c", "d"}; !slices.Equal(first, want) || queue.Len() != 0 {
			t.Errorf("listed: %q and %d more, want %q", first, queue.Len(), want)
		}
		if n := link.Requests()["LIST jobs"]; n < 2 {
			t.Errorf("%d lists of at most 2, want 2 or more", n)
		}
		create(other, "g", "web")
		create(ns, "h", "db")
		if _, err := jobs.In(ns).Patch(ctx, "b", types.MergePatchType, []byte(`{"metadata": {"labels": {"app": "db"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := next(); got != "b" {
			t.Errorf("got %s, want b, which is no longer selected", got)
		}
		create(ns, "i", "web")
		if got := next(); got != "i" {
			t.Errorf("got %s, want i", got)
		}
		if _, err := kube.Get[*Job](informer, cache.ObjectName{Namespace: ns, Name: "b"}); !apierrors.IsNotFound(err) {
			t.Errorf("Get of what is no longer selected: %v", err)
		}
	})
}

// TestDeepCopy copies an object, and panics on one that no JSON is of.
func TestDeepCopy(t *testing.T) {
	job := &Job{Status: JobStatus{Conditions: []metav1.Condition{{Type: "Ready"}}}}
	c := custom.DeepCopy(job)
	c.Status.Conditions[0].Type = "changed"
	if job.Status.Conditions[0].Type != "Ready" {
		t.Error("the copy shares its conditions")
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	custom.DeepCopy(&struct{ C chan int }{make(chan int)})
}
