// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestOwnerKeys maps owner references to names: of the kind and group meant,
// in any version, the controller or all, each once.
func TestOwnerKeys(t *testing.T) {
	yes, no := true, false
	ref := func(apiVersion, kind, name string, controller *bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: controller}
	}
	set := kube.OwnedBy{APIVersion: "apps/v1", Kind: "ReplicaSet"}
	all, cluster, core := set, set, kube.OwnedBy{APIVersion: "v1", Kind: "Node", Cluster: true, All: true}
	all.All, cluster.Cluster = true, true
	for _, test := range []struct {
		what string
		by   kube.OwnedBy
		refs []metav1.OwnerReference
		want []string
	}{
		{"no owner", set, nil, nil},
		{"the controller", set, []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "a", &yes)}, []string{"n/a"}},
		{"of another version", set, []metav1.OwnerReference{ref("apps/v2beta1", "ReplicaSet", "a", &yes)}, []string{"n/a"}},
		{"of another group", set, []metav1.OwnerReference{ref("example.com/v1", "ReplicaSet", "a", &yes)}, nil},
		{"of another kind", set, []metav1.OwnerReference{ref("apps/v1", "StatefulSet", "a", &yes)}, nil},
		{"not controllers", set, []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "a", nil), ref("apps/v1", "ReplicaSet", "b", &no)}, nil},
		{"all", all, []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "a", nil), ref("apps/v1", "ReplicaSet", "b", &yes), ref("apps/v1", "Other", "c", nil)}, []string{"n/a", "n/b"}},
		{"twice", all, []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "a", nil), ref("apps/v2", "ReplicaSet", "a", nil)}, []string{"n/a"}},
		{"in no namespace", cluster, []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "a", &yes)}, []string{"a"}},
		{"of the core group", core, []metav1.OwnerReference{ref("v1", "Node", "a", nil), ref("x/v1", "Node", "b", nil)}, []string{"a"}},
		{"in a namespace, of an object in none", set, []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", "a", &yes)}, nil},
		{"the zero value", kube.OwnedBy{}, []metav1.OwnerReference{ref("", "", "a", &yes)}, nil},
	} {
		cm := configMap("n", "child")
		cm.OwnerReferences = test.refs
		if strings.HasSuffix(test.what, "of an object in none") {
			cm.Namespace = ""
		}
		var got []string
		for n := range test.by.Keys(cm) {
			got = append(got, n.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
}

// TestOwnerSet has the API server accept what Set writes, for an owner in the
// namespace and one in none, and a source of the children tell of the owners.
func TestOwnerSet(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		client := typed(t, s.Admin())
		byMap := kube.OwnedBy{APIVersion: "v1", Kind: "ConfigMap"}
		byNamespace := kube.OwnedBy{APIVersion: "v1", Kind: "Namespace", Cluster: true, All: true}
		owner := create(t, client, configMap(ns, "owner"))
		space, err := client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		informer := typedInformer(t, s.Admin(), ns, 0)
		// Of objects themselves, mapped further on.
		source := &kube.Source[metav1.Object]{Informer: informer, Keys: itself}
		owners := newHeard[name]()
		kubetest.Run(t, kube.Run(informer))
		kubetest.Run(t, reconcile.Feed(reconcile.Map(owners, byMap.Keys), source.Feed))
		spaces := newHeard[name]()
		kubetest.Run(t, reconcile.Feed(spaces, (&kube.Source[name]{Informer: informer, Keys: byNamespace.Keys}).Feed))
		synced(t, source)

		child := configMap(ns, "child")
		if err := byMap.Set(child, owner); err != nil {
			t.Fatal(err)
		}
		if err := byNamespace.Set(child, space); err != nil {
			t.Fatal(err)
		}
		if err := byMap.Set(child, owner); err != nil || len(child.OwnerReferences) != 2 {
			t.Errorf("set again: %v, %d references, want 2", err, len(child.OwnerReferences))
		}
		child = create(t, client, child)
		if c := metav1.GetControllerOf(child); c == nil || c.UID != owner.UID || c.BlockOwnerDeletion == nil {
			t.Errorf("the controller of child is %v, want %s", c, owner.UID)
		}
		owners.wait(t, "enqueue "+ns+"/owner")
		spaces.wait(t, "enqueue "+ns)
		s.Kubectl(t, "delete", "configmap", "child", "-n", ns)
		if got := owners.wait(t, "enqueue "+ns+"/owner"); len(got) != 1 {
			t.Errorf("got %q, want the owner once", got)
		}
	})
}

// TestOwnerSetErrors asks for references that would not be valid; the object
// stays as it was.
func TestOwnerSetErrors(t *testing.T) {
	by := kube.OwnedBy{APIVersion: "v1", Kind: "ConfigMap"}
	cluster := by
	cluster.Cluster = true
	owner := configMap("n", "owner")
	owner.UID = "1"
	elsewhere := configMap("m", "owner")
	elsewhere.UID = "2"
	nowhere := configMap("", "owner")
	nowhere.UID = "3"
	taken := configMap("n", "taken")
	if err := by.Set(taken, owner); err != nil {
		t.Fatal(err)
	}
	second := configMap("n", "second")
	second.UID = "4"
	for _, test := range []struct {
		by         kube.OwnedBy
		obj, owner metav1.Object
		want       string
	}{
		{kube.OwnedBy{Kind: "ConfigMap"}, configMap("n", "a"), owner, `OwnedBy.APIVersion and OwnedBy.Kind are required, and "" and "ConfigMap"`},
		{by, configMap("n", "a"), configMap("n", "b"), "no UID"},
		{by, configMap("n", "a"), elsewhere, "in another namespace"},
		{by, configMap("n", "a"), nowhere, "OwnedBy.Cluster is not set"},
		{cluster, configMap("n", "a"), owner, "OwnedBy.Cluster is set"},
		{by, taken, second, "ConfigMap n/second cannot own n/taken: it has another owner: ConfigMap owner"},
	} {
		before := fmt.Sprint(test.obj.GetOwnerReferences())
		err := test.by.Set(test.obj, test.owner)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Set: %v, want %q", err, test.want)
		}
		if owned := test.obj == metav1.Object(taken); errors.Is(err, kube.ErrOwned) != owned || errors.Is(err, reconcile.ErrTerminal) == owned {
			t.Errorf("Set: %v, want ErrOwned: %t, or else a terminal error", err, owned)
		}
		if after := fmt.Sprint(test.obj.GetOwnerReferences()); after != before {
			t.Errorf("Set changed the object to %s", after)
		}
	}
	all := by
	all.All = true
	if err := all.Set(taken, second); err != nil || len(taken.OwnerReferences) != 2 {
		t.Errorf("a second owner that does not claim control: %v", err)
	}
}

// TestMark has kubectl and the API server take what Set writes, and a source
// tell of the owner, who is not in Kubernetes.
func TestMark(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		client := typed(t, s.Admin())
		mark := kube.Mark{Key: "example.com/owner"}
		source := &kube.Source[string]{Informer: typedInformer(t, s.Admin(), ns, 0), Keys: mark.Keys}
		h := feed(t, source)

		const long = "arn:of/a zone that has a long name, and letters that no label has: ÄÖÜ"
		for i, owner := range []string{"plain", long, "ns/name"} {
			cm := configMap(ns, fmt.Sprintf("child%d", i))
			if err := mark.Set(cm, owner); err != nil {
				t.Fatal(err)
			}
			if err := mark.Set(cm, owner); err != nil {
				t.Errorf("set again: %v", err)
			}
			create(t, client, cm)
			h.wait(t, "enqueue "+owner)
			selector, err := mark.Selector(owner)
			if owner != "plain" {
				if err == nil {
					t.Errorf("Selector of %q: %q, want an error, as no label has it", owner, selector)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := s.Kubectl(t, "get", "configmaps", "-n", ns, "-o", "name", "-l", selector), "configmap/"+cm.Name+"\n"; got != want {
				t.Errorf("kubectl get -l %s: %q, want %q", selector, got, want)
			}
		}
		s.Kubectl(t, "create", "configmap", "other", "-n", ns)
		selector, err := mark.Selector("")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Kubectl(t, "get", "configmaps", "-n", ns, "-o", "name", "-l", selector); strings.Count(got, "\n") != 3 {
			t.Errorf("kubectl get -l %s: %q, want 3", selector, got)
		}

		// Marked by somebody else, by labels or annotations alone.
		s.Kubectl(t, "label", "configmap", "other", "example.com/owner=hand", "-n", ns)
		h.wait(t, "enqueue hand")
		s.Kubectl(t, "label", "configmap", "other", "example.com/owner=gone", "--overwrite", "-n", ns)
		h.wait(t, "enqueue hand") // it left
		s.Kubectl(t, "annotate", "configmap", "other", "example.com/owner=noted", "-n", ns)
		h.wait(t, "enqueue noted")
	})
}

func TestMarkNames(t *testing.T) {
	mark := kube.Mark{Key: "owner"}
	for owner, want := range map[string][]name{
		"a": {{Name: "a"}}, "n/a": {{Namespace: "n", Name: "a"}}, "n/a/b": nil, "/a": nil, "n/": nil, "": nil,
	} {
		cm := configMap("n", "child")
		cm.Annotations = map[string]string{"owner": owner}
		if got := slices.Collect(mark.Names(cm)); !slices.Equal(got, want) {
			t.Errorf("Names of %q: %v, want %v", owner, got, want)
		}
	}
}

// TestMarkOwner reads marks from labels and annotations.
func TestMarkOwner(t *testing.T) {
	mark := kube.Mark{Key: "owner"}
	type set = map[string]string
	for _, test := range []struct {
		labels, annotations set
		want                string
	}{
		{set{"owner": "a"}, nil, "a"},
		{nil, set{"owner": "a"}, "a"},
		{set{"owner": "a"}, set{"owner": "b"}, "b"},
		{set{"owner": ""}, set{"owner": "a/b"}, "a/b"},
		{nil, nil, ""},
	} {
		cm := configMap("n", "a")
		cm.Labels, cm.Annotations = test.labels, test.annotations
		if got := mark.Owner(cm); got != test.want {
			t.Errorf("owner of labels %v, annotations %v: %q, want %q", test.labels, test.annotations, got, test.want)
		}
	}
}

func TestMarkErrors(t *testing.T) {
	zone := kube.Mark{Key: "owner"}
	for _, test := range []struct {
		mark  kube.Mark
		owner string
		want  string
	}{
		{kube.Mark{}, "x", `Mark.Key "" is no name of a label`},
		{kube.Mark{Key: "a b"}, "x", `Mark.Key "a b" is no name of a label`},
		{zone, "", "needs an owner"},
	} {
		if err := test.mark.Set(configMap("n", "a"), test.owner); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Set: %v, want a terminal error with %q", err, test.want)
		}
		if test.owner != "" {
			if _, err := test.mark.Selector("x"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Selector: %v, want %q", err, test.want)
			}
		}
	}
	cm := configMap("n", "a")
	if err := zone.Set(cm, "ours"); err != nil {
		t.Fatal(err)
	}
	if err := zone.Set(cm, "theirs"); !errors.Is(err, kube.ErrOwned) || zone.Owner(cm) != "ours" {
		t.Errorf("Set over another owner: %v, want ErrOwned", err)
	}
	byLabel := configMap("n", "a")
	byLabel.Labels = map[string]string{"owner": "theirs"}
	if err := zone.Set(byLabel, "ours"); !errors.Is(err, kube.ErrOwned) {
		t.Errorf("Set over a label of another owner: %v, want ErrOwned", err)
	}
}

// TestOrphans sweeps what has lost its owner: a Poller finds it in the caches,
// and not before both have synced.
func TestOrphans(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		mark := kube.Mark{Key: "owner"}
		owners := names(dynamicInformer(t, s.Admin(), ns, configMaps))
		owners.Only = func(obj metav1.Object) bool { return obj.GetAnnotations()["owner"] == "" }
		children := &kube.Source[name]{
			Name: "children", Informer: typedInformer(t, s.Admin(), ns, 0),
			Keys: func(obj metav1.Object) iter.Seq[name] {
				return func(yield func(name) bool) {
					for owner := range mark.Keys(obj) {
						yield(name{Namespace: obj.GetNamespace(), Name: owner})
					}
				}
			},
		}
		s.Kubectl(t, "create", "configmap", "owner", "-n", ns)
		for i, owner := range []string{"owner", "gone", "gone"} {
			child := fmt.Sprintf("child%d", i)
			s.Kubectl(t, "create", "configmap", child, "-n", ns)
			s.Kubectl(t, "label", "configmap", child, "owner="+owner, "-n", ns)
		}
		orphans := kube.Orphans(children, owners)
		if got, err := orphans(t.Context()); err == nil || !strings.Contains(err.Error(), "children: a cache is not whole") {
			t.Errorf("before the children have synced: %v, %v", got, err)
		}
		feed(t, children)
		if got, err := orphans(t.Context()); err == nil || !strings.Contains(err.Error(), "names: a cache is not whole") {
			t.Errorf("before the owners have synced: %v, %v", got, err)
		}
		h := feed(t, owners)
		if got, err := orphans(t.Context()); err != nil || !slices.Equal(got, []name{{Namespace: ns, Name: "gone"}}) {
			t.Errorf("orphans: %v, %v, want gone, once", got, err)
		}

		swept := newHeard[name]()
		poller := &reconcile.Poller[name]{Queue: swept, GetItems: orphans, Period: time.Hour}
		kubetest.Run(t, poller)
		swept.wait(t, "offer "+ns+"/gone")
		s.Kubectl(t, "delete", "configmap", "owner", "-n", ns)
		for range 2 { // once when it came, once when it went
			h.wait(t, "enqueue "+ns+"/owner")
		}
		poller.Trigger()
		swept.wait(t, "offer "+ns+"/owner")

		if _, err := new(kube.Source[name]).List(context.Background()); err == nil {
			t.Error("List of a source without an informer: no error")
		}
	})
}

func itself(obj metav1.Object) iter.Seq[metav1.Object] { return slices.Values([]metav1.Object{obj}) }
