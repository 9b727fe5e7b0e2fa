// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/url"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/supervise"
)

// TestFeed has kubectl create, change and delete an object, and each kind of
// informer tell of it.
func TestFeed(t *testing.T) {
	for _, kind := range []struct {
		name     string
		informer func(*rest.Config, string) cache.SharedIndexInformer
	}{
		{"typed", func(c *rest.Config, ns string) cache.SharedIndexInformer { return typedInformer(t, c, ns, 0) }},
		{"dynamic", func(c *rest.Config, ns string) cache.SharedIndexInformer {
			return dynamicInformer(t, c, ns, configMaps)
		}},
		{"metadata", func(c *rest.Config, ns string) cache.SharedIndexInformer {
			return metadataInformer(t, c, ns, configMaps)
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			apitest.Run(t, func(t *testing.T, s *apitest.Server) {
				ns := s.Namespace(t)
				s.Kubectl(t, "create", "configmap", "before", "-n", ns)
				source := names(kind.informer(s.Admin(), ns))
				source.Now = true
				h := feed(t, source)
				h.wait(t, "enqueue "+ns+"/before")
				for _, step := range []struct{ do, want string }{
					{"create configmap a", "enqueue " + ns + "/a"},
					{"label configmap a x=y", "enqueue " + ns + "/a"},
					{"delete configmap a", "now " + ns + "/a"},
				} {
					s.Kubectl(t, append(strings.Fields(step.do), "-n", ns)...)
					if got := h.wait(t, step.want); len(got) != 1 {
						t.Errorf("kubectl %s: %q, want %q alone", step.do, got, step.want)
					}
				}
			})
		})
	}
}

// TestKeysOfAnyType makes items of a type of its own, two of one object and none
// of another.
func TestKeysOfAnyType(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		type port struct {
			host   types.UID
			number byte
		}

		ns := s.Namespace(t)
		client := typed(t, s.Admin())
		source := &kube.Source[port]{
			Informer: typedInformer(t, s.Admin(), ns, 0),
			Keys: func(obj metav1.Object) iter.Seq[port] {
				if obj.GetName() == "nothing" {
					return nil
				}
				return slices.Values([]port{{"a", obj.(*corev1.ConfigMap).BinaryData["n"][0]}, {"b", 7}})
			},
		}
		create(t, client, configMap(ns, "nothing"))
		cm := configMap(ns, "two")
		cm.BinaryData = map[string][]byte{"n": {5}}
		create(t, client, cm)
		h := feed(t, source)
		if got, want := h.wait(t, "enqueue {b 7}"), []string{"enqueue {a 5}", "enqueue {b 7}"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestKey skips what the function cannot make an item of.
func TestKey(t *testing.T) {
	keys := kube.Key(func(obj metav1.Object) (int, bool) { return len(obj.GetName()), obj.GetName() != "" })
	if got := slices.Collect(keys(configMap("", "abc"))); !slices.Equal(got, []int{3}) {
		t.Errorf("of abc: %v, want 3", got)
	}
	if got := slices.Collect(keys(configMap("", ""))); got != nil {
		t.Errorf("of nothing: %v, want none", got)
	}
}

// TestUpdateMapsOldAndNew has an object go from one owner to another: both are
// told, and of an update that both have in common only once.
func TestUpdateMapsOldAndNew(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		source := &kube.Source[string]{
			Informer: typedInformer(t, s.Admin(), ns, 0),
			Keys: func(obj metav1.Object) iter.Seq[string] {
				return slices.Values(strings.Split(obj.GetLabels()["owners"], "."))
			},
		}
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		s.Kubectl(t, "label", "configmap", "a", "owners=x.y", "-n", ns)
		h := feed(t, source)
		h.wait(t, "enqueue y")
		s.Kubectl(t, "label", "configmap", "a", "owners=y.z", "--overwrite", "-n", ns)
		s.Kubectl(t, "label", "configmap", "a", "owners=end", "--overwrite", "-n", ns)
		got := h.wait(t, "enqueue end")
		if want := []string{"enqueue y", "enqueue z", "enqueue x", "enqueue end"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestResyncIsOffered sees an object again that did not change.
func TestResyncIsOffered(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		source := names(typedInformer(t, s.Admin(), ns, time.Second))
		source.Changed = func(_, _ metav1.Object) bool { return false }
		h := feed(t, source)
		if got, want := h.wait(t, "offer "+ns+"/a"), []string{"enqueue " + ns + "/a", "offer " + ns + "/a"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestHandlerIsRemoved ends a feeder: nothing comes any more, while another one
// of the same informer goes on.
func TestHandlerIsRemoved(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		informer := typedInformer(t, s.Admin(), ns, 0)
		goesOn := feed(t, names(informer))

		var mu sync.Mutex // guards last
		var last string   // object that Keys saw
		source := &kube.Source[name]{Informer: informer, Keys: func(obj metav1.Object) iter.Seq[name] {
			mu.Lock()
			defer mu.Unlock()
			last = obj.GetName()
			return kube.Name(obj)
		}}
		h := newHeard[name]()
		stop := kubetest.Run(t, reconcile.Feed(h, source.Feed))
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		h.wait(t, "enqueue "+ns+"/a")
		synced(t, source)
		stop()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := source.Synced(over); !errors.Is(err, context.Canceled) {
			t.Errorf("Synced after Feed returned: %v, want that it waits for the next", err)
		}

		s.Kubectl(t, "create", "configmap", "b", "-n", ns)
		goesOn.wait(t, "enqueue "+ns+"/b")
		// The informer tells all handlers of b before any of c.
		s.Kubectl(t, "create", "configmap", "c", "-n", ns)
		goesOn.wait(t, "enqueue "+ns+"/c")
		mu.Lock()
		if last != "a" {
			t.Errorf("Keys was called for %s after Feed returned", last)
		}
		mu.Unlock()

		// It can feed again, and begins with all there is.
		kubetest.Run(t, reconcile.Feed(h, source.Feed))
		h.wait(t, "enqueue "+ns+"/c")
	})
}

// TestLateListIsAnEvent adds a feeder while an item is in flight whose run did
// not see what the feeder knows. An Offer would be ignored, and the run after it
// would never come.
func TestLateListIsAnEvent(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		queue := reconcile.NewQueue[name]()
		begun, goOn := make(chan struct{}, 10), make(chan struct{})
		queue.Enqueue(name{Namespace: ns, Name: "a"})
		kubetest.Run(t, &reconcile.Reconciler[name]{Queue: queue, Reconcile: func(context.Context, name) error {
			begun <- struct{}{}
			<-goOn
			return nil
		}})
		<-begun
		source := names(typedInformer(t, s.Admin(), ns, 0))
		kubetest.Run(t, kube.Run(source.Informer))
		kubetest.Run(t, reconcile.Feed(queue, source.Feed))
		synced(t, source)
		close(goOn)
		select {
		case <-begun:
		case <-time.After(patience):
			t.Error("the item was not run again")
		}
	})
}

// TestSynced starts a reconciler when all that is there was passed on. Before,
// it says what it waits for.
func TestSynced(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		for _, n := range []string{"a", "b", "c"} {
			s.Kubectl(t, "create", "configmap", n, "-n", ns)
		}
		queue := reconcile.NewQueue[name]()
		source := names(typedInformer(t, s.Admin(), ns, 0))
		known := make(chan int, 10)
		var group supervise.Group
		group.Add("runs", supervise.After(kube.AllSynced(source), &reconcile.Reconciler[name]{
			Queue: queue,
			Reconcile: func(context.Context, name) error {
				s := queue.Stats()
				known <- s.Ready + s.InFlight
				return nil
			},
		}))
		group.Add("names", reconcile.Feed(queue, source.Feed))
		group.Add("informer", kube.Run(source.Informer))
		kubetest.Run(t, &group)
		// The namespace has a ConfigMap of its own only if a controller makes it;
		// this server has none.
		if got := <-known; got != 3 {
			t.Errorf("the first run saw %d items, want 3", got)
		}

		if err := kube.AllSynced()(t.Context()); err != nil {
			t.Errorf("AllSynced of nothing: %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cancel(enough)
		if err := names(source.Informer).Synced(ctx); !errors.Is(err, enough) {
			t.Errorf("Synced with a ctx that is done: %v, want its cause", err)
		}
	})
}

// TestFailuresAreLoggedRarely has every list fail for an hour, then the server be
// back for another, and then the same failures again.
func TestFailuresAreLoggedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures atomic.Int32
		var broken atomic.Bool
		list := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				if broken.Load() {
					failures.Add(1)
					return nil, errors.New("broken")
				}
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				if broken.Load() {
					return nil, errors.New("broken")
				}
				w := watch.NewFake()
				time.AfterFunc(time.Minute, w.Stop)
				return w, nil
			},
		}
		var log record.Text
		group := supervise.Group{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		group.Add("informer", kube.Run(cache.NewSharedInformer(list, &corev1.ConfigMap{}, 0)))
		broken.Store(true)
		kubetest.Run(t, &group)
		seen := 0
		for hour, min := range []int{60, 0, 60} {
			broken.Store(hour != 1)
			failures.Store(0)
			time.Sleep(time.Hour)
			synctest.Wait()
			got := log.String()[seen:]
			seen += len(got)
			failed, lines := int(failures.Load()), strings.Count(got, "level=WARN")
			if failed < min || min > 0 && (lines < 2 || lines > 9) || min == 0 && lines > 0 {
				t.Errorf("in hour %d: %d warnings of %d failures, want a few of many, and none in the hour without:\n%s", hour, lines, failed, got)
			}
		}
	})
}

// TestBadSource gives Feed what it cannot work with.
func TestBadSource(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		informer := typedInformer(t, s.Admin(), "default", 0)
		h := newHeard[name]()
		mapped := reconcile.Filter(h, func(name) bool { return true })
		for _, test := range []struct {
			source *kube.Source[name]
			q      reconcile.Enqueuer[name]
			want   string
		}{
			{&kube.Source[name]{Keys: kube.Name}, h, "Source.Informer is required, and nil"},
			{&kube.Source[name]{Informer: informer}, h, "Source.Keys is required, and nil"},
			{&kube.Source[name]{Informer: informer, Keys: kube.Name}, nil, "needs a queue, got nil"},
			{&kube.Source[name]{Informer: informer, Keys: kube.Name, SyncTimeout: -1}, h, "Source.SyncTimeout is -1ns, want 0 or more"},
			{&kube.Source[name]{Informer: informer, Keys: kube.Name, Now: true}, mapped, "Source.Now needs a queue with EnqueueNow, got reconcile.filter"},
		} {
			err := test.source.Feed(t.Context(), test.q)
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, reconcile.ErrTerminal) {
				t.Errorf("Feed: %v, want a terminal error with %q", err, test.want)
			}
			_, err = test.source.List(t.Context())
			if missing := strings.HasSuffix(test.want, "required, and nil"); missing != errors.Is(err, reconcile.ErrTerminal) {
				t.Errorf("List: %v, want a terminal error if a field is missing: %t", err, missing)
			}
		}

		source := names(informer)
		kubetest.Run(t, reconcile.Feed(h, source.Feed))
		kubetest.Run(t, kube.Run(informer))
		synced(t, source)
		if err := source.Feed(t.Context(), h); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "running already") {
			t.Errorf("Feed twice at once: %v", err)
		}
		if err := kube.Run(nil).Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("Run of nil: %v, want a terminal error", err)
		}
	})
}

// TestTwoSources has two sources of one informer, each with a Run of it, in one
// Group: both are fed, and end well. After that the informer runs no more.
func TestTwoSources(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		informer := typedInformer(t, s.Admin(), ns, 0)
		var group supervise.Group
		h := []*heard[name]{newHeard[name](), newHeard[name]()}
		for _, h := range h {
			source := names(informer)
			group.Add("informer", kube.Run(informer))
			group.Add("feed", reconcile.Feed(h, source.Feed))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- group.Run(ctx) }()
		for _, h := range h {
			h.wait(t, "enqueue "+ns+"/a")
		}
		s.Kubectl(t, "create", "configmap", "b", "-n", ns)
		for _, h := range h {
			h.wait(t, "enqueue "+ns+"/b")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the group: %v", err)
		}
		if err := kube.Run(informer).Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "runs only once") {
			t.Errorf("Run after the end: %v, want a terminal error that says so", err)
		}
	})
}

// TestStoppedInformer ends an informer under its feeder, and feeds from one that
// has ended.
func TestStoppedInformer(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		source := names(typedInformer(t, s.Admin(), "default", 0))
		stop := kubetest.Run(t, kube.Run(source.Informer))
		ended := make(chan error, 1)
		go func() { ended <- source.Feed(context.Background(), newHeard[name]()) }()
		synced(t, source)
		stop()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "the informer has stopped") {
				t.Errorf("Feed: %v, want that the informer has stopped", err)
			}
		case <-time.After(patience):
			t.Fatal("Feed goes on without its informer")
		}
		if err := source.Feed(t.Context(), newHeard[name]()); err == nil || !strings.Contains(err.Error(), "stopped already") {
			t.Errorf("Feed after that: %v, want that the informer has stopped", err)
		}
		if err := source.Feed(t.Context(), newHeard[name]()); !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("Feed after that: %v, want a terminal error", err)
		}
	})
}

// TestPanicInKeys ends the feeder, not the process, and so does a Goexit. Restarted, it loses nothing.
func TestPanicInKeys(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		faults := []func(){func() { panic("of a user") }, goruntime.Goexit}
		source := &kube.Source[name]{
			Informer: typedInformer(t, s.Admin(), ns, 0),
			Keys: func(obj metav1.Object) iter.Seq[name] {
				if len(faults) > 0 {
					fault := faults[0]
					faults = faults[1:]
					fault()
				}
				return kube.Name(obj)
			},
		}
		kubetest.Run(t, kube.Run(source.Informer))
		h := newHeard[name]()
		for _, want := range []string{"of a user", "runtime.Goexit called"} {
			var panicErr *reconcile.PanicError
			if err := source.Feed(t.Context(), h); !errors.As(err, &panicErr) || panicErr.Value != want {
				t.Fatalf("Feed: %v, want a PanicError", err)
			}
		}
		kubetest.Run(t, reconcile.Feed(h, source.Feed))
		h.wait(t, "enqueue "+ns+"/a")
	})
}

// TestSyncedErrorNamesTheReason has what a newcomer forgets, and a server that client-go
// tries again and again without a word.
func TestSyncedErrorNamesTheReason(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://server", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		run, feed bool
		err       error // of each list and watch
		lines     int   // in a minute
		want      string
	}{
		"no Run":             {false, true, nil, 5, "add Run(informer) to the group"},
		"no Feed":            {true, false, nil, 0, "add Feed(queue, source.Feed) to the group"},
		"connection refused": {true, true, refused, 5, "connection refused"},
		"429":                {true, true, apierrors.NewTooManyRequests("slow down", 1), 5, "slow down"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := &cache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, c.err
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						return watch.NewFake(), c.err
					},
				}
				source := names(cache.NewSharedInformer(list, &corev1.ConfigMap{}, 0))
				var log record.Text
				group := supervise.Group{Logger: slog.New(slog.NewTextHandler(&log, nil))}
				if c.run {
					group.Add("informer", kube.Run(source.Informer))
				}
				if c.feed {
					group.Add("feed", reconcile.Feed(newHeard[cache.ObjectName](), source.Feed))
				}
				group.Add("runs", supervise.After(source.Synced, reconcile.RunFunc(func(context.Context) error { return nil })))
				ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
				defer cancel()
				err := group.Run(ctx)
				got := log.String()
				if c.lines == 0 {
					if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("the group returned %v, want a terminal error with %q", err, c.want)
					}
					return
				}
				if err != nil {
					t.Errorf("the group returned %v", err)
				}
				lines := 0
				for line := range strings.Lines(got) {
					if strings.Contains(line, "source has not synced") && strings.Contains(line, c.want) {
						lines++
					}
				}
				if lines != c.lines {
					t.Errorf("%d lines in a minute say %q, want %d:\n%s", lines, c.want, c.lines, got)
				}
			})
		})
	}
}

// TestFeedThatBeginsLater has a Feed that waits for something else first. With a
// SyncTimeout it is not taken for one that was forgotten.
func TestFeedThatBeginsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if o.SendInitialEvents != nil { // an old server, which is listed
					return nil, apierrors.NewBadRequest("no such field")
				}
				return watch.NewFake(), nil
			},
		}
		source := names(cache.NewSharedInformer(list, &corev1.ConfigMap{}, 0))
		source.SyncTimeout = time.Minute
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		later := func(context.Context) error { time.Sleep(15 * time.Second); return nil }
		group := supervise.Group{Logger: slog.New(slog.DiscardHandler)}
		group.Add("informer", kube.Run(source.Informer))
		group.Add("feed", supervise.After(later, reconcile.Feed(newHeard[cache.ObjectName](), source.Feed)))
		group.Add("runs", supervise.After(source.Synced, reconcile.RunFunc(func(context.Context) error {
			if d := time.Since(begin); d < 15*time.Second || d > 20*time.Second {
				t.Errorf("the runs begin after %v, want some seconds after the feed did at 15s", d)
			}
			cancel()
			return nil
		})))
		if err := group.Run(ctx); err != nil || time.Since(begin) == time.Hour {
			t.Errorf("the group returned %v after %v", err, time.Since(begin))
		}
	})
}
