// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/kinds"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
	"github.com/reconkernel/reconcile/supervise"
)

// The packages of adapters/kube, each in a program of its own.

// A world is a cluster, and what programs make outside of it.
type world struct {
	*kubesim.Server
	mu    sync.Mutex
	files map[string]string
	busy  map[string]int // by what may be done by one at a time
}

func newWorld(t *testing.T) func() *world {
	kubesim.Silence()
	kinds := kubesim.CRDs(t, "../../explore/kubesim/testdata")
	return func() *world {
		return &world{Server: kubesim.NewServer(kinds...), files: map[string]string{}, busy: map[string]int{}}
	}
}

func (w *world) state() string { return w.State() + fmt.Sprintln("files:", w.files) }

// enter notes that somebody does what one alone may do, until leave is called.
func (w *world) enter(what string) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[what]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy[what]--
	}
}

func (w *world) alone() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(w.busy)) {
		if n := w.busy[what]; n > 1 {
			return fmt.Errorf("%d at once: %s", n, what)
		}
	}
	return nil
}

var widgetKind = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec":     map[string]any{"size": size},
	}}
}

func resize(s *kubesim.Server, name string, size int64) {
	kubesim.Update(s, widget(name, size), func(o *unstructured.Unstructured) {
		o.Object["spec"].(map[string]any)["size"] = size
	})
}

// setReady sets a condition in an object that has no Go type.
func setReady(o *unstructured.Unstructured, ready metav1.Condition) {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	was, _, _ := unstructured.NestedMap(o.Object, "status")
	convert := runtime.DefaultUnstructuredConverter
	if err := convert.FromUnstructured(was, &status); err != nil {
		panic(err)
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	is, err := convert.ToUnstructured(&status)
	if err != nil {
		panic(err)
	}
	o.Object["status"] = is
}

// guarded writes a file for each widget, by a Guard that reports.
func guarded(proc *explore.Process, w *world) reconcile.Runner {
	client := dynamic.NewForConfigOrDie(w.Config(proc))
	informer := kinds.Dynamic(client, "default", 0)(widgetKind)
	resource := kube.Untyped(client.Resource(widgetKind).Namespace("default"))
	queue := reconcile.NewQueue[cache.ObjectName]()
	source := &kube.Source[cache.ObjectName]{Informer: informer, Keys: kube.Name}
	guard := &finalizer.Guard[cache.ObjectName, *unstructured.Unstructured]{
		Name: "example.com/file",
		Get: func(_ context.Context, n cache.ObjectName) (*unstructured.Unstructured, error) {
			v, there, err := informer.GetStore().GetByKey(n.String())
			if err == nil && !there {
				err = apierrors.NewNotFound(widgetKind.GroupResource(), n.Name)
			}
			if err != nil {
				return nil, err
			}
			return v.(*unstructured.Unstructured).DeepCopy(), nil
		},
		Client: func(cache.ObjectName) kube.Client[*unstructured.Unstructured] { return resource },
		Ensure: func(ctx context.Context, o *unstructured.Unstructured) error {
			err := proc.Do(ctx, "write "+o.GetName(), func() error {
				w.files[o.GetName()] = fmt.Sprint(o.Object["spec"].(map[string]any)["size"])
				return nil
			})
			return conditions.Report(ctx, resource, o, err, setReady)
		},
		Clean: func(ctx context.Context, o *unstructured.Unstructured) error {
			return proc.Do(ctx, "remove "+o.GetName(), func() error { delete(w.files, o.GetName()); return nil })
		},
	}
	group := &supervise.Group{Logger: proc.Logger()}
	group.Add("informer", kube.Run(informer))
	group.Add("widgets", reconcile.Feed(queue, source.Feed))
	group.Add("runs", supervise.After(source.Synced, &reconcile.Reconciler[cache.ObjectName]{Queue: queue, Reconcile: guard.Reconcile, Timeout: 30 * time.Second}))
	return group
}

// inTerms runs what start returns, each time for a term, and the last time for good.
func inTerms(terms []time.Duration, start func() reconcile.Runner) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		for _, term := range terms {
			ctx, cancel := context.WithTimeout(ctx, term)
			err := start().Run(ctx)
			cancel()
			if err != nil {
				return err
			}
		}
		return start().Run(ctx)
	})
}

// TestGuard explores finalizer.Guard and conditions.Report. The widgets come and go, one
// of them twice under the same name, which found a Guard that cleaned what it should not;
// and terms end, so that the next one may list what is gone, which found a Guard that made
// it again and left it there.
func TestGuard(t *testing.T) {
	fresh := newWorld(t)
	explore.Run(t, explore.Scenario[*world]{
		World: func() *world {
			w := fresh()
			w.NoWatchList = true // so that a list may be stale
			return w
		},
		Start: func(proc *explore.Process, w *world) {
			kubesim.Run(proc, func() kubesim.Runner {
				return inTerms([]time.Duration{150 * time.Second, time.Minute}, func() reconcile.Runner { return guarded(proc, w) })
			})
		},
		Steps: func(s *explore.Environment, w *world) {
			w.Create(widget("a", 1))
			w.Create(widget("b", 1))
			s.Advance(time.Minute)
			resize(w.Server, "a", 2)
			w.Delete(widget("b", 1))
			for there := true; there; _, there = kubesim.Get(w.Server, widget("b", 0)) {
				s.Advance(time.Minute)
			}
			w.Create(widget("b", 3))
			s.Advance(time.Minute)
			w.Delete(widget("a", 1))
			s.Advance(time.Minute)
		},
		State:        (*world).state,
		Within:       10 * time.Minute,
		CustomFaults: kubesim.Faults(),
		Plans:        60,
	})
}

// exits starts a program that may exit, by the function that it is given.
func exits(start func(exit func(error)) reconcile.Runner) func() kubesim.Runner {
	return func() kubesim.Runner {
		return reconcile.RunFunc(func(ctx context.Context) error {
			ctx, exit := context.WithCancelCause(ctx)
			defer exit(nil)
			err := start(exit).Run(ctx)
			if cause := context.Cause(ctx); ctx.Err() != nil {
				err = cause
			}
			return err
		})
	}
}

// TestElect has two that stand for one lease.
func TestElect(t *testing.T) {
	stand := func(name string) func(proc *explore.Process, w *world) {
		return func(proc *explore.Process, w *world) {
			client := kubernetes.NewForConfigOrDie(w.Config(proc))
			kubesim.Run(proc, exits(func(exit func(error)) reconcile.Runner {
				return elect.Elect(elect.Config{
					Client: client.CoordinationV1(), Namespace: "default", Name: "one", Identity: name, Logger: proc.Logger(), Exit: exit,
				}, reconcile.RunFunc(func(ctx context.Context) error {
					defer w.enter("lead")()
					<-ctx.Done()
					return nil
				}))
			}))
		}
	}
	explore.Run(t, explore.Scenario[*world]{
		World: newWorld(t), Start: stand("a"), Others: []func(*explore.Process, *world){stand("b")},
		Steps:     func(s *explore.Environment, _ *world) { s.Advance(time.Minute) },
		Invariant: (*world).alone,
		Final: func(w *world) error {
			if w.busy["lead"] != 1 {
				return fmt.Errorf("%d lead, want 1", w.busy["lead"])
			}
			return nil
		},
		Within:       2 * time.Minute,
		CustomFaults: kubesim.Faults(),
		Plans:        80,
	})
}

// TestKinds has two kinds mirrored by watches that are made while the program runs.
func TestKinds(t *testing.T) {
	mirror := func(proc *explore.Process, w *world) {
		client := dynamic.NewForConfigOrDie(w.Config(proc))
		kubesim.Run(proc, func() kubesim.Runner {
			watches := &kinds.Kinds{Informer: kinds.Dynamic(client, "default", 0), Logger: proc.Logger()}
			group := &supervise.Group{Logger: proc.Logger()}
			group.Add("kinds", watches)
			for _, resource := range []string{"configmaps", "secrets"} {
				queue := reconcile.NewQueue[cache.ObjectName]()
				source := &kube.Source[cache.ObjectName]{Keys: kube.Name}
				if _, err := kinds.Serve(watches, schema.GroupVersionResource{Version: "v1", Resource: resource}, queue, source); err != nil {
					proc.Errorf("Serve: %v", err)
				}
				group.Add(resource, supervise.After(source.Synced, &reconcile.Reconciler[cache.ObjectName]{Queue: queue, Reconcile: func(_ context.Context, n cache.ObjectName) error {
					v, there, err := source.Informer.GetStore().GetByKey(n.String())
					if err != nil {
						return err
					}
					w.mu.Lock()
					defer w.mu.Unlock()
					if name := resource + " " + n.Name; there {
						w.files[name] = v.(*unstructured.Unstructured).GetLabels()["text"]
					} else {
						delete(w.files, name)
					}
					return nil
				}}))
			}
			return group
		})
	}
	explore.Run(t, explore.Scenario[*world]{
		World: newWorld(t), Start: mirror,
		Steps: func(s *explore.Environment, w *world) {
			a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"text": "1"}}}
			b := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b", Labels: map[string]string{"text": "1"}}}
			w.Create(a)
			w.Create(b)
			s.Advance(time.Minute)
			kubesim.Update(w.Server, a, func(a *corev1.ConfigMap) { a.Labels["text"] = "2" })
			s.Advance(time.Minute)
			w.Delete(b)
			s.Advance(time.Minute)
		},
		// A process that dies and comes back does not hear of what went meanwhile: its mirror
		// would have to be looked through, as docs/guides/deleting-safely.md has it.
		Final: func(w *world) error {
			got := fmt.Sprint(w.files)
			if !strings.HasPrefix(got, "map[configmaps a:2") {
				return fmt.Errorf("the mirror has %s, want a as 2", got)
			}
			return nil
		},
		Within:       5 * time.Minute,
		CustomFaults: kubesim.Faults(),
		Plans:        60,
	})
}
