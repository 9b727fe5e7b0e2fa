// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestGenerationFilter lets no status and no label through, but the spec, an
// annotation to suspend, deletions that wait for a finalizer and those that do
// not.
func TestGenerationFilter(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		things := s.Define(t, "Namespaced", "feed.example.com", "Thing")
		source := names(dynamicInformer(t, s.Admin(), ns, things))
		source.Now = true
		source.Changed = func(old, new metav1.Object) bool {
			return kube.GenerationChanged(old, new) || kube.AnnotationsChanged(old, new, "suspend")
		}
		h := feed(t, source)
		s.KubectlInput(t, "{apiVersion: feed.example.com/v1, kind: Thing, metadata: {name: a, finalizers: [example.com/x]}, spec: {n: 1}}", "apply", "-n", ns, "-f", "-")
		h.wait(t, "enqueue "+ns+"/a")

		do := func(want []string, args ...string) {
			t.Helper()
			s.Kubectl(t, append(args, "-n", ns)...)
			// What comes after it shows that it is through.
			s.Kubectl(t, "annotate", "thing", "a", "suspend="+strings.Join(args[:1], "")+time.Now().Format("150405.000000000"), "--overwrite", "-n", ns)
			got := h.wait(t, "enqueue "+ns+"/a")
			if !slices.Equal(got[:len(got)-1], want) {
				t.Errorf("kubectl %s: %q, want %q", strings.Join(args, " "), got[:len(got)-1], want)
			}
		}
		do(nil, "patch", "thing", "a", "--subresource=status", "--type=merge", "-p", `{"status":{"ready":true}}`)
		do(nil, "label", "thing", "a", "x=y")
		do(nil, "annotate", "thing", "a", "note=none")
		do([]string{"now " + ns + "/a"}, "patch", "thing", "a", "--type=merge", "-p", `{"spec":{"n":2}}`)
		do([]string{"now " + ns + "/a"}, "delete", "thing", "a", "--wait=false")
		s.Kubectl(t, "label", "thing", "a", "x=z", "--overwrite", "-n", ns)
		h.wait(t, "enqueue "+ns+"/a") // it goes: all is told
		s.Kubectl(t, "patch", "thing", "a", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`, "-n", ns)
		h.wait(t, "now "+ns+"/a")
	})
}

// TestFilterPassesDeletionsReplacementsAndResyncs has a filter that refuses all updates, and its
// negation: deletions, replacements and resyncs come all the same.
func TestFilterPassesDeletionsReplacementsAndResyncs(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		for _, refuse := range []bool{true, false} {
			ns := s.Namespace(t)
			s.Kubectl(t, "create", "configmap", "a", "-n", ns)
			source := names(typedInformer(t, s.Admin(), ns, time.Second))
			source.Changed = func(_, _ metav1.Object) bool { return !refuse }
			h := feed(t, source)
			h.wait(t, "offer "+ns+"/a")
			s.Kubectl(t, "label", "configmap", "a", "x=y", "-n", ns)
			s.Kubectl(t, "create", "configmap", "b", "-n", ns)
			got := h.wait(t, "enqueue "+ns+"/b")
			if has := slices.Contains(got, "enqueue "+ns+"/a"); has == refuse {
				t.Errorf("with a filter that refuses updates (%v), the update of a: %v in %q", refuse, has, got)
			}
			s.Kubectl(t, "delete", "configmap", "a", "-n", ns)
			h.wait(t, "enqueue "+ns+"/a")
		}
	})
}

// TestOnly has an object enter and leave the selection of labels. It is told
// when it enters, when it leaves, and not while it is outside.
func TestOnly(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns, other := s.Namespace(t), s.Namespace(t)
		source := names(typedInformer(t, s.Admin(), "", 0))
		source.Now = true
		source.Only = func(obj metav1.Object) bool {
			app := obj.GetLabels()["app"]
			return obj.GetNamespace() == ns && (app == "web" || app == "db")
		}
		source.Changed = func(_, _ metav1.Object) bool { return false } // not asked at the border
		h := feed(t, source)
		s.Kubectl(t, "create", "configmap", "end", "-n", ns)
		for _, args := range [][]string{
			{"create", "configmap", "a", "-n", ns},
			{"label", "configmap", "a", "app=web", "-n", ns},
			{"label", "configmap", "a", "app=db", "--overwrite", "-n", ns}, // Changed refuses it
			{"label", "configmap", "a", "app=x", "--overwrite", "-n", ns},
			{"delete", "configmap", "a", "-n", ns},
			{"create", "configmap", "a", "-n", other},
			{"label", "configmap", "a", "app=web", "-n", other},
			{"delete", "configmap", "a", "-n", other},
			{"label", "configmap", "end", "app=web", "-n", ns},
			{"delete", "configmap", "end", "-n", ns},
		} {
			s.Kubectl(t, args...)
		}
		got := h.wait(t, "now "+ns+"/end")
		want := []string{"enqueue " + ns + "/a", "now " + ns + "/a", "enqueue " + ns + "/end", "now " + ns + "/end"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		items, err := source.List(t.Context())
		if err != nil || len(items) != 0 {
			t.Errorf("List: %v, %v, want none", items, err)
		}
	})
}

func TestChanges(t *testing.T) {
	meta := func(version string, generation int64, label, note string) metav1.Object {
		m := &metav1.ObjectMeta{ResourceVersion: version, Generation: generation}
		if label != "" {
			m.Labels = map[string]string{"l": label, "same": "same"}
		}
		if note != "" {
			m.Annotations = map[string]string{"n": note, "same": "same"}
		}
		return m
	}
	type pair struct{ old, new metav1.Object }
	same := pair{meta("1", 1, "x", "y"), meta("1", 1, "x", "y")}
	for _, test := range []struct {
		what     string
		changed  func(old, new metav1.Object) bool
		yes, not []pair
	}{
		{
			"GenerationChanged", kube.GenerationChanged,
			[]pair{{meta("1", 1, "", ""), meta("1", 2, "", "")}, {meta("1", 0, "", ""), meta("2", 0, "", "")}},
			[]pair{same, {meta("1", 1, "x", "y"), meta("2", 1, "z", "z")}},
		},
		{
			"VersionChanged", kube.VersionChanged,
			[]pair{{meta("1", 1, "", ""), meta("2", 1, "", "")}},
			[]pair{same, {meta("1", 1, "", ""), meta("1", 2, "", "")}},
		},
		{
			"AnnotationsChanged", func(old, new metav1.Object) bool { return kube.AnnotationsChanged(old, new) },
			[]pair{{meta("1", 1, "", "x"), meta("2", 1, "", "z")}},
			[]pair{same, {meta("1", 1, "x", "y"), meta("2", 2, "z", "y")}},
		},
		{
			"AnnotationsChanged n", func(old, new metav1.Object) bool { return kube.AnnotationsChanged(old, new, "n") },
			[]pair{{meta("1", 1, "", "x"), meta("2", 1, "", "z")}, {meta("1", 1, "", "x"), meta("2", 1, "", "")}},
			[]pair{same, {meta("1", 1, "x", "y"), meta("2", 2, "z", "y")}},
		},
	} {
		for i, p := range test.yes {
			if !test.changed(p.old, p.new) {
				t.Errorf("%s, pair %d: not changed, want changed", test.what, i)
			}
		}
		for i, p := range test.not {
			if test.changed(p.old, p.new) {
				t.Errorf("%s, pair %d: changed, want not", test.what, i)
			}
		}
	}
}

// TestReplaced tells a source of an object that was deleted and made again
// between two lists, which informers call an update.
func TestReplaced(t *testing.T) {
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID("1"), ResourceVersion: "1"}}
	renewed := old.DeepCopy()
	renewed.UID, renewed.ResourceVersion = "2", "2"
	informer := newStub()
	source := names(informer)
	source.Now = true
	source.Changed = func(_, _ metav1.Object) bool { return false }
	h, handler := informer.feed(t, source)
	handler.OnUpdate(old, renewed)
	if got, want := h.drain(), []string{"now a"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDeletionBegins tells a source of an object of a kind without generations
// that is to be deleted and waits for a finalizer.
func TestDeletionBegins(t *testing.T) {
	old := configMap("", "a")
	old.ResourceVersion = "1"
	going := old.DeepCopy()
	going.ResourceVersion, going.DeletionTimestamp = "2", &metav1.Time{Time: time.Now()}
	waits := going.DeepCopy()
	waits.ResourceVersion = "3"
	informer := newStub()
	source := names(informer)
	source.Now = true
	source.Changed = func(_, _ metav1.Object) bool { return false }
	h, handler := informer.feed(t, source)
	handler.OnUpdate(old, going)
	handler.OnUpdate(going, waits)
	if got, want := h.drain(), []string{"now a", "enqueue a"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTombstones tells a source of deletions that the informer did not see: of
// which it has the object, or only the name.
func TestTombstones(t *testing.T) {
	obj := configMap("n", "a")
	obj.Labels = map[string]string{"app": "web"}
	for _, test := range []struct {
		what string
		v    any
		want []string
	}{
		{"with the object", cache.DeletedFinalStateUnknown{Key: "n/a", Obj: obj}, []string{"enqueue n/a"}},
		{"as a pointer", &cache.DeletedFinalStateUnknown{Key: "n/a", Obj: obj}, []string{"enqueue n/a"}},
		{"with an object that does not matter", cache.DeletedFinalStateUnknown{Key: "n/b", Obj: configMap("n", "b")}, nil},
		{"with the name alone", cache.DeletedFinalStateUnknown{Key: "n/c"}, []string{"enqueue n/c"}},
		{"with a nil object", cache.DeletedFinalStateUnknown{Key: "n/c", Obj: (*corev1.ConfigMap)(nil)}, []string{"enqueue n/c"}},
		{"of an object in no namespace", cache.DeletedFinalStateUnknown{Key: "c"}, []string{"enqueue c"}},
	} {
		informer := newStub()
		source := names(informer)
		source.Only = func(obj metav1.Object) bool { return obj.GetLabels()["app"] == "web" }
		h, handler := informer.feed(t, source)
		handler.OnDelete(test.v)
		if got := h.drain(); !slices.Equal(got, test.want) {
			t.Errorf("a tombstone %s: %q, want %q", test.what, got, test.want)
		}
	}
}

func TestObject(t *testing.T) {
	for _, bad := range []any{nil, 7, "n/a", (*corev1.ConfigMap)(nil), cache.DeletedFinalStateUnknown{}, cache.DeletedFinalStateUnknown{Key: "a/b/c"}, (*cache.DeletedFinalStateUnknown)(nil)} {
		if obj, err := kube.ObjectOf(bad); err == nil || !strings.Contains(err.Error(), "is no Kubernetes object") {
			t.Errorf("Object(%#v): %v, %v, want an error", bad, obj, err)
		}
	}
	for _, good := range []any{
		configMap("n", "a"), &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}},
		cache.DeletedFinalStateUnknown{Key: "n/a"},
		cache.DeletedFinalStateUnknown{Key: "x", Obj: configMap("n", "a")},
	} {
		obj, err := kube.ObjectOf(good)
		if err != nil || obj.GetNamespace() != "n" || obj.GetName() != "a" {
			t.Errorf("Object(%#v): %v, %v, want n/a", good, obj, err)
		}
	}
}

// TestNoObject ends a feeder that is told of something that is no object.
func TestNoObject(t *testing.T) {
	for what, tell := range map[string]func(cache.ResourceEventHandler){
		"added":   func(h cache.ResourceEventHandler) { h.OnAdd("x", false) },
		"updated": func(h cache.ResourceEventHandler) { h.OnUpdate(configMap("n", "a"), 7) },
		"old":     func(h cache.ResourceEventHandler) { h.OnUpdate(7, configMap("n", "a")) },
		"deleted": func(h cache.ResourceEventHandler) { h.OnDelete(nil) },
	} {
		informer := newStub()
		ended := make(chan error, 1)
		go func() { ended <- names(informer).Feed(t.Context(), newHeard[name]()) }()
		handler := <-informer.handlers
		tell(handler)
		tell(handler) // ignored: it has ended, or is about to
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "is no Kubernetes object") {
			t.Errorf("Feed told of something %s: %v", what, err)
		}
	}
}

// A stub is an informer whose events the test makes.
type stub struct {
	cache.SharedInformer
	handlers chan cache.ResourceEventHandler
}

func newStub() *stub { return &stub{handlers: make(chan cache.ResourceEventHandler, 1)} }

func (s *stub) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.handlers <- h
	return registration{}, nil
}

func (*stub) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

type registration struct{}

func (registration) HasSynced() bool                     { return true }
func (registration) HasSyncedChecker() cache.DoneChecker { return done{} }

type done struct{}

func (done) Name() string { return "stub" }
func (done) Done() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// feed runs the source and returns its handler.
func (s *stub) feed(t *testing.T, source *kube.Source[name]) (*heard[name], cache.ResourceEventHandler) {
	t.Helper()
	h := newHeard[name]()
	return h, s.into(t, source, h)
}

// into runs the source into a queue, and returns its handler.
func (s *stub) into(t *testing.T, source *kube.Source[name], q reconcile.Enqueuer[name]) cache.ResourceEventHandler {
	t.Helper()
	kubetest.Run(t, reconcile.Feed(q, source.Feed))
	return <-s.handlers
}

// seen is an object of a version.
func seen(name string) *corev1.ConfigMap {
	cm := configMap("", name)
	cm.ResourceVersion = "1"
	return cm
}
