// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/restmapper"

	"github.com/reconkernel/reconcile/explore/kubesim"
)

// Mapper knows the same as a mapper of client-go that asks the server: kinds of lists, and
// kinds and resources without their version, of which the newest stable one counts.
func TestMapper(t *testing.T) {
	kinds := kubesim.CRDs(t, "testdata")
	s := kubesim.NewServer(kinds...)
	client := discovery.NewDiscoveryClientForConfigOrDie(s.Config(nil))
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		t.Fatal(err)
	}
	found := restmapper.NewDiscoveryRESTMapper(groups)
	asked := []schema.GroupKind{
		{Kind: "Pod"}, {Kind: "PodList"}, {Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "DeploymentList"}, {Group: "apps", Kind: "Nothing"},
	}
	for _, k := range kinds {
		asked = append(asked, k.GroupKind(), schema.GroupKind{Group: k.Group, Kind: k.Kind + "List"})
	}
	for _, gk := range asked {
		want, errWant := found.RESTMapping(gk)
		got, err := s.Mapper().RESTMapping(gk)
		if (err == nil) != (errWant == nil) {
			t.Errorf("%v: %v, want %v", gk, err, errWant)
		} else if err == nil && (got.GroupVersionKind != want.GroupVersionKind || got.Scope.Name() != want.Scope.Name()) {
			t.Errorf("%v: %v, %s, want %v, %s", gk, got.GroupVersionKind, got.Scope.Name(), want.GroupVersionKind, want.Scope.Name())
		}
	}
}

// A server has each kind of builtin.txt, but for those that this client-go lacks, as 0.34
// does MutatingAdmissionPolicy.
func TestBuiltInKinds(t *testing.T) {
	text, err := os.ReadFile("builtin.txt")
	if err != nil {
		t.Fatal(err)
	}
	mapper := kubesim.NewServer().Mapper()
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		kind := schema.FromAPIVersionAndKind(f[0], f[2])
		_, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil {
			continue
		}
		if !strings.HasPrefix(kind.Kind, "MutatingAdmissionPolicy") || scheme.Scheme.Recognizes(kind) {
			t.Error(err)
		}
	}
}
