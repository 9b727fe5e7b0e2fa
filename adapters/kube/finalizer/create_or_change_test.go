// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
)

// A Gadget is an object whose status says which generation was handled last.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	} `json:"status"`
}

func (g *Gadget) DeepCopyObject() runtime.Object { return custom.DeepCopy(g) }

// byCase tells a new, a changed and a known object apart, after a restart too.
// Each is called as that case until it has returned nil.
func byCase(gadgets *custom.Client[*Gadget], create, change, look func(context.Context, *Gadget) error) func(context.Context, *Gadget) error {
	return func(ctx context.Context, gadget *Gadget) error {
		f := change
		switch gadget.Status.ObservedGeneration {
		case 0:
			f = create
		case gadget.Generation:
			f = look
		}
		if err := f(ctx, gadget); err != nil {
			return err
		}
		_, err := conditions.WriteStatus(ctx, gadgets.In(gadget.Namespace), gadget, func(g *Gadget) {
			g.Status.ObservedGeneration = gadget.Generation
		})
		return err
	}
}

// TestByCase has separate functions for what is new, changed and known: by the
// generation, so that a change of the status or a label is none.
func TestByCase(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		gadgets, err := custom.NewClient[Gadget](s.Admin(), s.Define(t, "Cluster", "finalizer.example.com", "Gadget"), "Gadget")
		if err != nil {
			t.Fatal(err)
		}
		client := gadgets.In("")
		var calls []string
		var fail error
		note := func(call string) func(context.Context, *Gadget) error {
			return func(context.Context, *Gadget) error {
				calls = append(calls, call)
				return fail
			}
		}
		kubectl := func(args ...string) { s.Kubectl(t, append(args, "gadgets.finalizer.example.com", "a")...) }
		for i, step := range []struct {
			do   func()
			fail error
			want string
		}{
			{func() {
				s.KubectlInput(t, "{apiVersion: finalizer.example.com/v1, kind: Gadget, metadata: {name: a}, spec: {size: 1}}", "create", "-f", "-")
			}, errTest, "create"},
			{func() {}, nil, "create"},
			{func() {}, nil, "look"},
			{func() { kubectl("patch", "--subresource=status", "--type=merge", "-p", `{"status":{"seen":1}}`) }, nil, "look"},
			{func() { kubectl("patch", "--type=merge", "-p", `{"metadata":{"labels":{"x":"y"}}}`) }, nil, "look"},
			{func() { kubectl("patch", "--type=merge", "-p", `{"spec":{"size":2}}`) }, errTest, "change"},
			{func() {}, nil, "change"},
			{func() {}, errTest, "look"},
			{func() { kubectl("delete", "--wait=false") }, nil, "clean"},
		} {
			step.do()
			calls, fail = nil, step.fail
			g := &finalizer.Guard[string, *Gadget]{ // a new one knows nothing
				Name: finalizer.NameOf("example.com", "finalizer.example.com", "Gadget"),
				Get: func(ctx context.Context, name string) (*Gadget, error) {
					return client.Get(ctx, name, metav1.GetOptions{})
				},
				Client: func(string) kube.Client[*Gadget] { return client },
				Ensure: byCase(gadgets, note("create"), note("change"), note("look")),
				Clean:  note("clean"),
			}
			if err := g.Reconcile(t.Context(), "a"); !errors.Is(err, step.fail) {
				t.Fatalf("step %d: %v, want %v", i, err, step.fail)
			}
			if got := strings.Join(calls, " "); got != step.want {
				t.Errorf("step %d: calls %q, want %q", i, got, step.want)
			}
		}
		if out := s.Kubectl(t, "get", "gadgets.finalizer.example.com", "-o", "name"); out != "" {
			t.Errorf("it is still there:\n%s", out)
		}
	})
}
