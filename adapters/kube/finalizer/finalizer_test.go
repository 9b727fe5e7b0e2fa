// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/internal/kubetest"
)

var errTest = errors.New("no luck")

// TestFinalizerComesFirst looks at the server from within Ensure and Clean.
func TestFinalizerComesFirst(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	g := newGuard(client, w)
	g.Ensure = func(ctx context.Context, cm *corev1.ConfigMap) error {
		wantFinalizers(t, client, cm.Name, other, ours)
		if len(cm.Finalizers) != 2 {
			t.Errorf("Ensure was given the finalizers %q, want them as they are on the server", cm.Finalizers)
		}
		return w.ensure("ensure")(ctx, cm)
	}
	g.Clean = func(ctx context.Context, cm *corev1.ConfigMap) error {
		wantFinalizers(t, client, cm.Name, other, ours)
		return w.clean(ctx, cm)
	}
	create(t, client, "a", "x", other)
	run(t, g, "a")
	wantCalls(t, w, "ensure")
	remove(t, client, "a")
	run(t, g, "a")
	wantCalls(t, w, "clean")
	wantFinalizers(t, client, "a", other)
	run(t, g, "a") // being deleted, and not with ours: left alone
	wantCalls(t, w, "")
	wantFinalizers(t, client, "a", other)
	setFinalizers(t, client, "a")
	run(t, g, "a")
	wantCalls(t, w, "gone")
}

// TestCases goes through what can become of an object, with separate functions.
// A step that restarts makes a Guard that remembers nothing.
func TestCases(t *testing.T) {
	s := kubetest.Shared(t)
	type step struct {
		do         string // what happens before the run, or instead of it
		fail       string // the call that fails
		calls      string
		finalizers string // after the run; "-" if the object is gone
	}
	for name, steps := range map[string][]step{
		"life": {
			{"create", "", "new", ours},
			{"", "", "known", ours}, // the event of our own patch, or a resync
			{"write", "", "changed", ours},
			{"", "", "known", ours},
			{"delete", "", "clean", "-"},
			{"", "", "gone", "-"},
		},
		"new fails, and is tried again": {
			{"create", "new", "new", pending},
			{"", "new", "new", pending},
			{"", "", "new", ours},
			{"", "", "known", ours},
		},
		"new fails, and is tried again after a restart": {
			{"create", "new", "new", pending},
			{"restart", "", "new", ours},
		},
		"changed while new fails": {
			{"create", "new", "new", pending},
			{"write", "", "new", ours},
			{"", "", "known", ours},
		},
		"deleted while new fails": {
			{"create", "new", "new", pending},
			{"delete", "", "clean", "-"},
		},
		"deleted while new fails, seen after a restart": {
			{"create", "new", "new", pending},
			{"delete restart", "", "clean", "-"},
		},
		"known after a restart": {
			{"create", "", "new", ours},
			{"restart", "", "known", ours},
			{"write", "", "changed", ours},
		},
		"changed during a restart": {
			{"create", "", "new", ours},
			{"write restart", "", "known", ours},
			{"", "", "known", ours},
		},
		"changed fails, and is tried again": {
			{"create", "", "new", ours},
			{"write", "changed", "changed", ours},
			{"", "", "changed", ours},
			{"", "", "known", ours},
		},
		"known fails": {
			{"create", "", "new", ours},
			{"restart", "known", "known", ours},
			{"", "", "known", ours},
		},
		"deleted during a restart": {
			{"create", "", "new", ours},
			{"delete restart", "", "clean", "-"},
		},
		"clean fails, and is tried again": {
			{"create", "", "new", ours},
			{"delete", "clean", "clean", ours},
			{"", "clean", "clean", ours},
			{"restart", "", "clean", "-"},
		},
		"our finalizer was taken away": {
			{"create", "", "new", ours},
			{"strip", "", "new", ours},
		},
		"deleted before it was seen": {
			{"create delete", "", "gone", "-"},
		},
		"others hold it": {
			{"create other", "", "new", other + " " + ours},
			{"", "", "known", other + " " + ours},
			{"delete", "", "clean", other},
			{"", "", "", other},
			{"restart", "", "", other},
			{"release", "", "gone", "-"},
		},
		"others hold it, and it was never ours": {
			{"create other delete", "", "", other},
			{"", "", "", other},
		},
		"both of ours": {
			{"create both", "", "known", pending + " " + ours},
			{"delete", "", "clean", "-"},
		},
		"another one of the same name": {
			{"create", "", "new", ours},
			{"delete", "", "clean", "-"},
			{"create", "", "new", ours},
			{"delete", "", "clean", "-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, s.Admin(), s.Namespace(t))
			w := new(world)
			g := newCases(client, w)
			for i, step := range steps {
				for _, do := range strings.Fields(step.do) {
					switch do {
					case "create":
						create(t, client, "a", "1")
					case "other":
						setFinalizers(t, client, "a", other)
					case "both":
						setFinalizers(t, client, "a", pending, ours)
					case "write":
						write(t, client, "a", "2")
					case "delete":
						remove(t, client, "a")
					case "strip", "release":
						setFinalizers(t, client, "a")
					case "restart":
						g = newCases(client, w)
					}
				}
				w.fail = map[string]error{step.fail: errTest}
				if err := g.Reconcile(t.Context(), "a"); errors.Is(err, errTest) != (step.fail != "") || err != nil && step.fail == "" {
					t.Errorf("step %d: error %v", i, err)
				}
				if got := strings.Join(w.calls, " "); got != step.calls {
					t.Errorf("step %d, %q: calls %q, want %q", i, step.do, got, step.calls)
				}
				w.calls = nil
				got := "-"
				if cm, err := client.Get(t.Context(), "a", metav1.GetOptions{}); err == nil {
					got = strings.Join(cm.Finalizers, " ")
				}
				if got != step.finalizers {
					t.Errorf("step %d, %q: finalizers %q, want %q", i, step.do, got, step.finalizers)
				}
			}
		})
	}
}

// TestConflict has another controller change the object between the reading of
// it and the writing, as a cache that lags does too.
func TestConflict(t *testing.T) {
	s := kubetest.Shared(t)
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, client configMaps)
		calls     string
		want      []string
	}{
		"another finalizer": {
			func(t *testing.T, client configMaps) { setFinalizers(t, client, "a", other) },
			"ensure",
			[]string{other, ours},
		},
		"other content": {
			func(t *testing.T, client configMaps) { write(t, client, "a", "2") },
			"ensure",
			[]string{ours},
		},
		"deleted, and held by others": {
			func(t *testing.T, client configMaps) {
				setFinalizers(t, client, "a", other)
				remove(t, client, "a")
			},
			"",
			[]string{other},
		},
		"deleted": {
			func(t *testing.T, client configMaps) { remove(t, client, "a") },
			"gone", nil,
		},
		"another one of the same name": {
			func(t *testing.T, client configMaps) {
				remove(t, client, "a")
				create(t, client, "a", "2")
			},
			"ensure",
			[]string{ours},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, s.Admin(), s.Namespace(t))
			w := new(world)
			g := newGuard(client, w)
			stale := create(t, client, "a", "1")
			test.meanwhile(t, client)
			g.Get = func(context.Context, string) (*corev1.ConfigMap, error) { return stale, nil }
			run(t, g, "a")
			wantCalls(t, w, test.calls)
			if test.want == nil {
				if _, err := client.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("get: %v, want that it is gone", err)
				}
				return
			}
			wantFinalizers(t, client, "a", test.want...)
			if cm, _ := client.Get(t.Context(), "a", metav1.GetOptions{}); test.calls == "ensure" && w.files["a"] != cm.Data["text"] {
				t.Errorf("Ensure wrote %q, want %q: what the server has", w.files["a"], cm.Data["text"])
			}
		})
	}
}

// TestConflictAtRemoval has others change the list while ours is removed: Clean
// is not called again, and theirs stay.
func TestConflictAtRemoval(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	h := &hooks{configMaps: client}
	g := newGuard(h, w)
	create(t, client, "a", "1", other, "example.com/third")
	run(t, g, "a")
	remove(t, client, "a")
	h.before = func() error {
		h.before = nil
		setFinalizers(t, client, "a", "example.com/third", ours)
		return nil
	}
	run(t, g, "a")
	wantCalls(t, w, "ensure clean")
	wantFinalizers(t, client, "a", "example.com/third")
}

// TestConflictForEver gives up for now, with an error that says so.
func TestConflictForEver(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	tries := 0
	h := &hooks{configMaps: client}
	h.before = func() error {
		tries++
		write(t, client, "a", strings.Repeat("x", tries))
		return nil
	}
	g := newGuard(h, w)
	create(t, client, "a", "1")
	err := g.Reconcile(t.Context(), "a")
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "add finalizer "+ours+" to ") {
		t.Errorf("Reconcile: %v, want a conflict, and what was being done", err)
	}
	if tries != 5 {
		t.Errorf("%d tries, want 5", tries)
	}
	wantCalls(t, w, "")
}

// TestChangedDuringNew has the object change while New is at work: what New did
// not see, Changed does.
func TestChangedDuringNew(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	g := newCases(client, w)
	made := g.New
	g.New = func(ctx context.Context, cm *corev1.ConfigMap) error {
		write(t, client, "a", "2")
		return made(ctx, cm)
	}
	create(t, client, "a", "1")
	run(t, g, "a")
	wantCalls(t, w, "new changed")
	if w.files["a"] != "2" {
		t.Errorf("the file has %q, want 2", w.files["a"])
	}
	run(t, g, "a")
	wantCalls(t, w, "known")
}

// TestPatchFails breaks each request once: nothing is made before our finalizer
// is there, and a clean-up that succeeded is not done again.
func TestPatchFails(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	h := &hooks{configMaps: client}
	g := newCases(h, w)
	once := func() error {
		h.before = nil
		return errTest
	}
	fails := func(want string) {
		t.Helper()
		if err := g.Reconcile(t.Context(), "a"); !errors.Is(err, errTest) {
			t.Errorf("Reconcile: %v, want %v", err, errTest)
		}
		wantCalls(t, w, want)
	}
	create(t, client, "a", "1")
	h.before = once
	fails("")
	w.fail = map[string]error{"new": errTest}
	fails("new")
	w.fail = nil
	h.before = once
	fails("new") // done, but not noted
	run(t, g, "a")
	wantCalls(t, w, "") // not once more in this process
	wantFinalizers(t, client, "a", ours)
	remove(t, client, "a")
	h.before = once
	fails("clean")
	wantFinalizers(t, client, "a", ours)
	run(t, g, "a")
	wantCalls(t, w, "")
	run(t, g, "a")
	wantCalls(t, w, "gone")
}

// TestLaggingCache has a cache show the object as it was before our finalizer
// was removed: it is not cleaned again, and not made again.
func TestLaggingCache(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	g := newGuard(client, w)
	create(t, client, "a", "1")
	run(t, g, "a")
	alive, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove(t, client, "a")
	dying, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run(t, g, "a")
	wantCalls(t, w, "ensure clean")
	for _, stale := range []*corev1.ConfigMap{alive, dying, alive, dying} {
		g.Get = func(context.Context, string) (*corev1.ConfigMap, error) { return stale, nil }
		run(t, g, "a")
	}
	wantCalls(t, w, "gone gone") // as the server says of the dying ones
}

// TestForbidden has a user who may read and not patch: nothing is made.
func TestForbidden(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	admin := clientOf(t, s.Admin(), ns)
	create(t, admin, "a", "1")
	s.Kubectl(t, "create", "role", "reader", "-n", ns, "--verb=get", "--resource=configmaps")
	s.Kubectl(t, "create", "rolebinding", "reader", "-n", ns, "--role=reader", "--user=reader")
	client := clientOf(t, s.User("reader"), ns)
	kubetest.Eventually(t, func() error {
		_, err := client.Get(t.Context(), "a", metav1.GetOptions{})
		return err
	})
	w := new(world)
	err := newGuard(client, w).Reconcile(t.Context(), "a")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "add finalizer") {
		t.Errorf("Reconcile: %v, want forbidden, and what was being done", err)
	}
	wantCalls(t, w, "")
}

// TestBadFields sees an error for each field that is missing or wrong.
func TestBadFields(t *testing.T) {
	good := func() *guard { return newGuard(nil, new(world)) }
	for want, spoil := range map[string]func(*guard){
		"Guard.Get is required":    func(g *guard) { g.Get = nil },
		"Guard.Client is required": func(g *guard) { g.Client = nil },
		"Guard.Clean is required":  func(g *guard) { g.Clean = nil },
		"Guard.Ensure is required": func(g *guard) { g.Ensure = nil },
		`Guard.Name is ""`:         func(g *guard) { g.Name = "" },
		`Guard.Name is "file"`:     func(g *guard) { g.Name = "file" },
		"-pending":                 func(g *guard) { g.Name = "example.com/" + strings.Repeat("x", 60) },
		"returned no object": func(g *guard) {
			g.Get = func(context.Context, string) (*corev1.ConfigMap, error) { return nil, nil }
		},
		"get the object: no luck": func(g *guard) {
			g.Get = func(context.Context, string) (*corev1.ConfigMap, error) { return nil, errTest }
		},
	} {
		g := good()
		spoil(g)
		err := g.Reconcile(t.Context(), "a")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q in it", err, want)
		}
		if wrong := !errors.Is(err, errTest); errors.Is(err, reconcile.ErrTerminal) != wrong {
			t.Errorf("%v: terminal %v, want %v", err, !wrong, wrong)
		}
	}
}

func TestNameOf(t *testing.T) {
	for _, test := range [][4]string{
		{"example.com", "storage.example.com", "Bucket", "example.com/bucket.storage.example.com"},
		{"example.com", "", "ConfigMap", "example.com/configmap"},
	} {
		if got := finalizer.NameOf(test[0], test[1], test[2]); got != test[3] {
			t.Errorf("NameOf(%q, %q, %q) = %q, want %q", test[0], test[1], test[2], got, test[3])
		}
	}
}
