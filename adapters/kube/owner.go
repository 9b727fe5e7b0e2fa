// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
)

// ErrOwned says that an object is somebody else's: it has another controller,
// or the mark of another owner.
var ErrOwned = errors.New("it has another owner")

// OwnedBy is a kind of owner, as owner references name it. Its Keys maps an
// object to its owner's name, its Set writes the reference. The zero value has
// no kind, and matches nothing.
type OwnedBy struct {
	APIVersion string // such as "apps/v1"; any version of the group matches
	Kind       string // such as "Deployment"

	// All has Keys return all owners of the kind, not only the controller, and
	// Set write a reference that does not claim control.
	All bool

	// Cluster says that owners of this kind are in no namespace.
	Cluster bool
}

// Keys returns the names of the owners of obj: the one that is its controller,
// or all, each once. It returns none if obj has no owner of the kind, or is in no
// namespace and the kind of the owner has namespaces. It is for
// [Source].Keys and [reconcile.Map].
func (o OwnedBy) Keys(obj metav1.Object) iter.Seq[cache.ObjectName] {
	var names []cache.ObjectName
	for _, ref := range obj.GetOwnerReferences() {
		if ref.Kind != o.Kind || o.Kind == "" || group(ref.APIVersion) != group(o.APIVersion) {
			continue
		}
		if !o.All && (ref.Controller == nil || !*ref.Controller) {
			continue
		}
		name := cache.ObjectName{Name: ref.Name}
		if !o.Cluster {
			name.Namespace = obj.GetNamespace()
		}
		if !o.Cluster && name.Namespace == "" {
			continue // an object in no namespace cannot name one that is in one
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return slices.Values(names)
}

// Set writes into obj that owner, which is of this kind, owns it: as its
// controller, or with All as one of several owners. What it wrote before about
// the same owner is replaced, everything else is kept. It changes obj alone; the
// caller creates or updates it.
//
// It returns an error that wraps [ErrOwned] if obj has another controller
// already, and a [reconcile.Terminal] error if the reference would not be valid: without kind
// or UID, or from an object to an owner in a different namespace. Then obj is as
// it was.
func (o OwnedBy) Set(obj, owner metav1.Object) error {
	fail := func(format string, args ...any) error {
		return reconcile.Terminal(fmt.Errorf("kube: %s %s cannot own %s: "+format, append([]any{o.Kind, nameOf(owner), nameOf(obj)}, args...)...))
	}
	switch {
	case o.APIVersion == "" || o.Kind == "":
		return fail("OwnedBy.APIVersion and OwnedBy.Kind are required, and %q and %q", o.APIVersion, o.Kind)
	case owner.GetUID() == "" || owner.GetName() == "":
		return fail("it has no UID or no name; it must come from the API server")
	case o.Cluster && owner.GetNamespace() != "":
		return fail("OwnedBy.Cluster is set, and it is in a namespace")
	case !o.Cluster && owner.GetNamespace() == "":
		return fail("it is in no namespace, and OwnedBy.Cluster is not set")
	case !o.Cluster && owner.GetNamespace() != obj.GetNamespace():
		return fail("it is in another namespace; a Mark can name such an owner")
	}
	ref := metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: owner.GetName(), UID: owner.GetUID()}
	if !o.All {
		if c := metav1.GetControllerOf(obj); c != nil && c.UID != ref.UID {
			return fmt.Errorf("kube: %s %s cannot own %s: %w: %s %s", o.Kind, nameOf(owner), nameOf(obj), ErrOwned, c.Kind, c.Name)
		}
		yes := true
		ref.Controller, ref.BlockOwnerDeletion = &yes, &yes
	}
	refs := slices.Clone(obj.GetOwnerReferences())
	if i := slices.IndexFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == ref.UID }); i >= 0 {
		refs[i] = ref
	} else {
		refs = append(refs, ref)
	}
	obj.SetOwnerReferences(refs)
	return nil
}

// group returns the group of an API version; that of "v1" is "".
func group(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}

func nameOf(obj metav1.Object) string { return cache.MetaObjectToName(obj).String() }
