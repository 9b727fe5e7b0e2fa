// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"os"
	"slices"
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

// The versions of a group come in the order of a server: the newest stable one is first, and
// preferred.
func TestVersionsOfAGroup(t *testing.T) {
	var kinds []*kubesim.Kind
	for _, version := range []string{"v1alpha1", "v2", "v1beta1", "v10"} {
		kinds = append(kinds, &kubesim.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: version, Kind: "Of" + version}, Resource: "of" + version})
	}
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(kubesim.NewServer(kinds...).Config(nil)).ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		if g.Name != "example.org" {
			continue
		}
		var versions []string
		for _, v := range g.Versions {
			versions = append(versions, v.Version)
		}
		if want := []string{"v10", "v2", "v1beta1", "v1alpha1"}; !slices.Equal(versions, want) || g.PreferredVersion.Version != "v10" {
			t.Errorf("the versions are %q, and %q is preferred, want %q", versions, g.PreferredVersion.Version, want)
		}
		return
	}
	t.Errorf("the group is not among %v", groups)
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
