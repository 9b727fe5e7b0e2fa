// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/supervise"
)

var ownedByConfigMap = kube.OwnedBy{APIVersion: "v1", Kind: "ConfigMap"}

// A shop has ConfigMaps, the Secrets that they own, and Pods that tell of both, each
// with an informer of its own, and a Controller of the ConfigMaps. It is to be used in
// a bubble.
type shop struct {
	t                      testing.TB
	configs, secrets, pods *fcache.FakeControllerSource
	c                      *kube.Controller[*corev1.ConfigMap]
	owned                  *kube.Owned[*corev1.Secret]
	said                   []string // by its functions, one at a time
	verdict                error    // of Reconcile
}

func newShop(t testing.TB) *shop {
	s := &shop{t: t, configs: fcache.NewFakeControllerSource(), secrets: fcache.NewFakeControllerSource(), pods: fcache.NewFakeControllerSource()}
	t.Cleanup(func() {
		for _, api := range []*fcache.FakeControllerSource{s.configs, s.secrets, s.pods} {
			api.Shutdown()
		}
	})
	s.c = &kube.Controller[*corev1.ConfigMap]{
		Name:     "configs",
		Informer: cache.NewSharedInformer(s.configs, &corev1.ConfigMap{}, 0),
		Reconcile: func(_ context.Context, cm *corev1.ConfigMap) error {
			owned, err := s.owned.Of(cm)
			if err != nil {
				t.Error(err)
			}
			s.said = append(s.said, fmt.Sprintf("%s %v owns %d", cm.Name, cm.Data, len(owned)))
			cm.Data["spoilt"] = "yes"
			return s.verdict
		},
		Gone: func(_ context.Context, name cache.ObjectName) error {
			s.said = append(s.said, name.Name+" is gone")
			return nil
		},
	}
	s.owned = kube.Owns[*corev1.Secret](s.c, cache.NewSharedIndexInformer(s.secrets, &corev1.Secret{}, 0, cache.Indexers{}), ownedByConfigMap)
	kube.Watches(s.c, cache.NewSharedInformer(s.pods, &corev1.Pod{}, 0), func(pod *corev1.Pod) iter.Seq[cache.ObjectName] {
		name := pod.Labels["of"]
		pod.Labels["of"] = "spoilt"
		return slices.Values([]cache.ObjectName{{Namespace: pod.Namespace, Name: name}})
	})
	return s
}

// run runs the informers and the controller, which returns its error when stop is
// called.
func (s *shop) run() (stop func() error) {
	var group supervise.Group
	group.Add("informers", s.c.Informers())
	group.Add("configs", s.c)
	return begin(s.t, &group)
}

func begin(t testing.TB, r reconcile.Runner) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// expect waits until all is at rest, and compares what was said meanwhile.
func (s *shop) expect(what string, want ...string) {
	s.t.Helper()
	synctest.Wait()
	slices.Sort(s.said)
	if !slices.Equal(s.said, want) {
		s.t.Errorf("%s: %q, want %q", what, s.said, want)
	}
	s.said = nil
}

func config(name, value string, uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid}, Data: map[string]string{"v": value}}
}

func secret(t testing.TB, name string, owner *corev1.ConfigMap) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if err := ownedByConfigMap.Set(s, owner); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestController says what is run after what: objects that come, change and go, what
// they own, and what is watched. What functions are given, they may spoil.
func TestController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		a, old := config("a", "1", "A"), config("a", "0", "before")
		s.configs.Add(a)
		s.secrets.Add(secret(t, "s", a))
		s.secrets.Add(secret(t, "of another a", old))
		stop := s.run()
		s.expect("at first", "a map[v:1] owns 1")
		s.configs.Modify(config("a", "2", "A"))
		s.expect("changed", "a map[v:2] owns 1")
		s.secrets.Add(secret(t, "s2", a))
		s.expect("one more", "a map[v:2] owns 2")
		s.pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{"of": "a"}}})
		s.expect("watched", "a map[v:2] owns 2")
		s.pods.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{"of": "a"}}})
		s.expect("watched, gone", "a map[v:2] owns 2")
		s.configs.Delete(a)
		s.expect("gone", "a is gone")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestControllerFilters has Only and Changed decide. They may spoil what they are
// given, too.
func TestControllerFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.c.Only = func(cm *corev1.ConfigMap) bool {
			defer func() { cm.Data["v"] = "spoilt" }()
			return cm.Data["v"] != "out"
		}
		s.c.Changed = func(old, new *corev1.ConfigMap) bool {
			defer func() { old.Data["v"], new.Data["v"] = "spoilt", "spoilt" }()
			return old.Data["v"] != new.Data["v"]
		}
		s.configs.Add(config("a", "1", "A"))
		s.configs.Add(config("b", "out", "B"))
		stop := s.run()
		s.expect("at first", "a map[v:1] owns 0")
		s.configs.Modify(config("a", "1", "A"))
		s.expect("not changed")
		s.configs.Modify(config("a", "2", "A"))
		s.expect("changed", "a map[v:2] owns 0")
		s.configs.Modify(config("a", "out", "A"))
		s.expect("out", "a is gone")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A creator makes Secrets whose cache does not hear of them.
type creator struct{ version string }

func (c creator) Create(_ context.Context, s *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	s = s.DeepCopy()
	s.ResourceVersion = c.version
	return s, nil
}

// TestControllerWaitsForItsWrites has a run make a Secret: the next one of that owner
// begins when the cache has the Secret, whatever happens until then; one of another
// owner does at once.
func TestControllerWaitsForItsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		a := config("a", "1", "A")
		s.configs.Add(a)
		s.secrets.Add(secret(t, "of another", config("b", "0", "before"))) // is version 1
		stop := s.run()
		s.expect("at first", "a map[v:1] owns 0", "b is gone")
		made, err := s.owned.Create(t.Context(), creator{"2"}, a, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}})
		if err != nil {
			t.Fatal(err)
		}
		s.configs.Modify(config("a", "2", "A"))
		s.configs.Add(config("b", "1", "B"))
		s.expect("before the cache has it", "b map[v:1] owns 0")
		s.secrets.Add(made)
		s.expect("after", "a map[v:2] owns 1")

		if _, err := s.owned.Create(t.Context(), creator{"3"}, config("b", "1", "B"), made); !errors.Is(err, kube.ErrOwned) {
			t.Errorf("Create of what another one owns: %v, want %v", err, kube.ErrOwned)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestControllerParts has the right defaults: a deletion cuts a hold short, a conflict
// is tried again at once, events pass what is listed first. With sets the rest.
func TestControllerParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.verdict = reconcile.RequeueAfter(time.Hour)
		a := config("a", "1", "A")
		s.configs.Add(a)
		results, around := 0, false
		s.c.With = func(p *kube.Parts) {
			if p.Queue.Background != 20 {
				t.Errorf("Background is %d, want 20", p.Queue.Background)
			}
			if d, ok := p.Reconciler.Retry(apierrors.NewConflict(schema.GroupResource{}, "a", nil), 1); d > 5*time.Millisecond || !ok {
				t.Errorf("a conflict is tried again after %v, %t", d, ok)
			}
			p.Reconciler.OnResult = func(reconcile.Result[cache.ObjectName]) { results++ }
			p.Around = func(r reconcile.Runner) reconcile.Runner {
				return reconcile.RunFunc(func(ctx context.Context) error {
					around = true
					return r.Run(ctx)
				})
			}
		}
		stop := s.run()
		s.expect("at first", "a map[v:1] owns 0")
		s.configs.Modify(config("a", "2", "A"))
		s.expect("held")
		s.configs.Delete(a)
		s.expect("gone", "a is gone")
		if err := stop(); err != nil || results != 2 || !around {
			t.Errorf("Run: %v; %d results, want 2; Around was used: %t", err, results, around)
		}
	})
}

// TestControllerWaitsForAllCaches begins no run while the cache of what is owned is not
// whole.
func TestControllerWaitsForAllCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		a := config("a", "1", "A")
		s.configs.Add(a)
		s.secrets.Add(secret(t, "s", a))
		stopFirst, stop := begin(t, kube.Run(s.c.Informer)), begin(t, s.c)
		s.expect("before the Secrets")
		stopOthers := begin(t, s.c.Informers())
		s.expect("with them", "a map[v:1] owns 1")
		if err := errors.Join(stop(), stopOthers(), stopFirst()); err != nil {
			t.Error(err)
		}
	})
}

// TestControllerTwice runs it twice at once, which is an error, and again, which begins
// with all there is.
func TestControllerTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.configs.Add(config("a", "1", "A"))
		stopInformers := begin(t, s.c.Informers())
		stop := begin(t, s.c)
		s.expect("a term", "a map[v:1] owns 0")
		if err := s.c.Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("Run while it runs: %v, want %v", err, reconcile.ErrTerminal)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		s.configs.Add(config("b", "1", "B"))
		s.expect("between")
		stop = begin(t, s.c)
		s.expect("another term", "a map[v:1] owns 0", "b map[v:1] owns 0")
		if err := errors.Join(stop(), stopInformers()); err != nil {
			t.Error(err)
		}
	})
}

// TestControllerErrorNamesTheMissingField says what is missing.
func TestControllerErrorNamesTheMissingField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.ConfigMap{}, 0, cache.Indexers{})
		run := func(context.Context, *corev1.ConfigMap) error { return nil }
		byName := func(context.Context, cache.ObjectName) error { return nil }
		owns := &kube.Controller[*corev1.ConfigMap]{Name: "x", Informer: informer, Reconcile: run}
		kube.Owns[*corev1.Secret](owns, nil, ownedByConfigMap)
		for want, c := range map[string]*kube.Controller[*corev1.ConfigMap]{
			"Controller.Informer is required":  {Name: "x", Reconcile: run},
			"Controller.Reconcile is required": {Name: "x", Informer: informer},
			"Controller.ByName takes":          {Name: "x", Informer: informer, Reconcile: run, ByName: byName},
			"Owns of *v1.Secret needs":         owns,
		} {
			if _, err := c.Parts(); !errors.Is(err, reconcile.ErrTerminal) {
				t.Errorf("Parts: %v, want a terminal error", err)
			}
			if err := c.Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || !strings.HasPrefix(err.Error(), "kube: controller x: "+want) {
				t.Errorf("Run: %v, want %s", err, want)
			}
		}

		// An informer of another kind.
		s := newShop(t)
		kube.Watches(s.c, cache.NewSharedInformer(s.pods, &corev1.Pod{}, 0), func(*corev1.Node) iter.Seq[cache.ObjectName] { return nil })
		s.pods.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{"of": "a"}}})
		stop := s.run()
		synctest.Wait()
		if err := stop(); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "there is a *v1.Pod, want a *v1.Node") {
			t.Errorf("Run: %v, want that the kind is another", err)
		}
	})
}

// TestControllerLogs has the Reconciler log to the Logger of the Group around.
func TestControllerLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.verdict = reconcile.Terminal(errors.New("it is broken"))
		s.configs.Add(config("a", "1", "A"))
		l := newLines("it is broken", func() {})
		group := supervise.Group{Logger: slog.New(l)}
		group.Add("informers", s.c.Informers())
		group.Add("configs", s.c)
		stop := begin(t, &group)
		s.expect("at first", "a map[v:1] owns 0")
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"it is broken", "reconciler=configs", "item=shop/a"} {
			if text := l.String(); !strings.Contains(text, want) {
				t.Errorf("the Group has logged %q, want %q in it", text, want)
			}
		}
	})
}

// TestControllerByName has Only keep an object from ByName, also when something that it
// owns changes, until it is being deleted.
func TestControllerByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.c.Reconcile, s.c.Gone = nil, nil
		s.c.Only = func(cm *corev1.ConfigMap) bool { return cm.Data["v"] != "out" }
		s.c.ByName = func(ctx context.Context, name cache.ObjectName) error {
			obj, err := s.c.Get(ctx, name)
			s.said = append(s.said, fmt.Sprintf("%s, gone: %t, deleted: %t", name.Name, apierrors.IsNotFound(err), err == nil && obj.DeletionTimestamp != nil))
			return nil
		}
		in, out := config("in", "1", "A"), config("out", "out", "B")
		s.configs.Add(in)
		s.configs.Add(out)
		s.secrets.Add(secret(t, "s", in))
		s.secrets.Add(secret(t, "t", out))
		stop := s.run()
		s.expect("at first", "in, gone: false, deleted: false")
		s.secrets.Add(secret(t, "u", out))
		s.expect("one more")
		out = out.DeepCopy()
		out.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		s.configs.Modify(out)
		s.expect("being deleted", "out, gone: false, deleted: true")
		s.configs.Delete(out)
		s.expect("gone", "out, gone: true, deleted: false")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
