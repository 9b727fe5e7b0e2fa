// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
)

var errTest = errors.New("no luck")

// TestFinalizerComesFirst looks at the server from within Ensure and Clean.
func TestFinalizerComesFirst(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
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
	})
}

// TestFailedCleanAsksNoPolicy has the error of Clean come back as it is: what follows is the
// decision of the Reconciler's own policy.
func TestFailedCleanAsksNoPolicy(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		client := clientOf(t, s.Admin(), s.Namespace(t))
		w := &world{fail: map[string]error{"clean": errTest}}
		g := newGuard(client, w)
		create(t, client, "a", "x")
		run(t, g, "a")
		remove(t, client, "a")
		if err := g.Reconcile(t.Context(), "a"); !errors.Is(err, errTest) {
			t.Errorf("Reconcile = %v, want the error of Clean", err)
		}
	})
}

// TestCases goes through what can become of an object. A step that restarts makes
// a Guard that remembers nothing.
func TestCases(t *testing.T) {
	type step struct {
		do         string // what happens before the run, or instead of it
		fail       string // the call that fails; or which plans, if " requeue" or " recheck" follows
		calls      string
		finalizers string // after the run; "-" if the object is gone
	}
	for name, steps := range map[string][]step{
		"life": {
			{"create", "", "ensure", ours},
			{"", "", "ensure", ours}, // the event of our own patch, or a resync
			{"write", "", "ensure", ours},
			{"delete", "", "clean", "-"},
			{"", "", "gone", "-"},
		},
		"ensure fails, and is tried again": {
			{"create", "ensure", "ensure", ours},
			{"restart", "", "ensure", ours},
		},
		"deleted while ensure fails": {
			{"create", "ensure", "ensure", ours},
			{"delete", "", "clean", "-"},
		},
		"deleted while ensure fails, seen after a restart": {
			{"create", "ensure", "ensure", ours},
			{"delete restart", "", "clean", "-"},
		},
		"known after a restart": {
			{"create", "", "ensure", ours},
			{"write restart", "", "ensure", ours},
		},
		"plans": {
			{"create", "ensure requeue", "ensure", ours},
			{"", "ensure recheck", "ensure", ours},
			{"delete", "clean requeue", "clean", ours},
			{"", "clean recheck", "clean", "-"},
		},
		"deleted during a restart": {
			{"create", "", "ensure", ours},
			{"delete restart", "", "clean", "-"},
		},
		"clean fails, and is tried again": {
			{"create", "", "ensure", ours},
			{"delete", "clean", "clean", ours},
			{"", "clean", "clean", ours},
			{"restart", "", "clean", "-"},
		},
		"our finalizer was taken away": {
			{"create", "", "ensure", ours},
			{"strip", "", "ensure", ours},
		},
		"deleted before it was seen": {
			{"create delete", "", "gone", "-"},
		},
		"others hold it": {
			{"create other", "", "ensure", other + " " + ours},
			{"delete", "", "clean", other},
			{"", "", "", other},
			{"restart", "", "", other},
			{"release", "", "gone", "-"},
		},
		"others hold it, and it was never ours": {
			{"create other delete", "", "", other},
			{"", "", "", other},
		},
		"another one of the same name": {
			{"create", "", "ensure", ours},
			{"delete", "", "clean", "-"},
			{"create", "", "ensure", ours},
			{"delete", "", "clean", "-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			apitest.Run(t, func(t *testing.T, s *apitest.Server) {
				client := clientOf(t, s.Admin(), s.Namespace(t))
				w := new(world)
				g := newGuard(client, w)
				for i, step := range steps {
					for _, do := range strings.Fields(step.do) {
						switch do {
						case "create":
							create(t, client, "a", "1")
						case "other":
							setFinalizers(t, client, "a", other)
						case "write":
							write(t, client, "a", "2")
						case "delete":
							remove(t, client, "a")
						case "strip", "release":
							setFinalizers(t, client, "a")
						case "restart":
							g = newGuard(client, w)
						}
					}
					call, how, _ := strings.Cut(step.fail, " ")
					want := map[string]error{
						"":        errTest,
						"requeue": reconcile.RequeueWithin(time.Hour),
						"recheck": reconcile.RecheckWithin(time.Hour),
					}[how]
					w.fail = map[string]error{call: want}
					if step.fail == "" || step.fail == "clean recheck" { // there is nothing left to look at
						want = nil
					}
					if err := g.Reconcile(t.Context(), "a"); err != want {
						t.Errorf("step %d: error %v, want %v", i, err, want)
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
		})
	}
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
		"no more than 63":          func(g *guard) { g.Name = "example.com/" + strings.Repeat("x", 64) },
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
