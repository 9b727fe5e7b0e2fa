// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
)

// A Mark names the owner of an object by labels and annotations: for owners that
// owner references cannot name, because they are in another namespace or not in
// Kubernetes at all. Key is required; owners of another kind have another Key.
//
// Set writes both. The annotations have the owner as it is, the labels are there
// to be selected by: a label cannot have every text, and is empty for an owner
// that is too long for one or has other characters. Keys reads either, so that
// objects that somebody else marked are found as well.
type Mark struct {
	Key string // name of the label and the annotation with the owner: "example.com/owner"
}

// Keys returns the owner that obj is marked with, or none. It is for
// [Source].Keys and [reconcile.Map].
func (m Mark) Keys(obj metav1.Object) iter.Seq[string] {
	if owner := m.Owner(obj); owner != "" {
		return one(owner)
	}
	return none[string]
}

// Names is Keys for owners that are named by namespace and name, with a slash
// between them if there is a namespace. An owner that is no such name is none.
func (m Mark) Names(obj metav1.Object) iter.Seq[cache.ObjectName] {
	name, err := cache.ParseObjectName(m.Owner(obj))
	if err != nil || name.Name == "" || name.String() != m.Owner(obj) {
		return none[cache.ObjectName]
	}
	return one(name)
}

// Owner returns the owner that obj is marked with, or "".
func (m Mark) Owner(obj metav1.Object) string {
	return cmp.Or(obj.GetAnnotations()[m.Key], obj.GetLabels()[m.Key])
}

// Set marks obj as owned by owner. It changes obj alone; the caller creates or
// updates it. It leaves obj as it was and returns an error that wraps [ErrOwned] if obj is
// marked with another owner, and a [reconcile.Terminal] one if owner is empty or Key is not
// valid.
func (m Mark) Set(obj metav1.Object, owner string) error {
	if err := m.check(); err != nil {
		return err
	}
	if owner == "" {
		return reconcile.Terminal(errors.New("kube: Mark.Set needs an owner, got an empty text"))
	}
	if had := m.Owner(obj); had != "" && had != owner {
		return fmt.Errorf("kube: cannot mark %s as owned by %q: %w: %q", nameOf(obj), owner, ErrOwned, had)
	}
	annotations, labels := with(obj.GetAnnotations()), with(obj.GetLabels())
	annotations[m.Key], labels[m.Key] = owner, ""
	if isLabel(owner) {
		labels[m.Key] = owner
	}
	obj.SetAnnotations(annotations)
	obj.SetLabels(labels)
	return nil
}

// Selector returns a label selector for all objects that Set marked with owner,
// or, if owner is "", for those of all owners. An owner that no label
// can have is a [reconcile.Terminal] error: those of all are to be selected then, and told apart by
// [Mark.Owner].
func (m Mark) Selector(owner string) (string, error) {
	if err := m.check(); err != nil {
		return "", err
	}
	selector := m.Key
	if owner != "" {
		if !isLabel(owner) {
			return "", reconcile.Terminal(fmt.Errorf("kube: no label can have the owner %q, so there is no selector of it", owner))
		}
		selector += "=" + owner
	}
	return selector, nil
}

func (m Mark) check() error {
	if bad := validation.IsQualifiedName(m.Key); len(bad) > 0 {
		return reconcile.Terminal(fmt.Errorf("kube: Mark.Key %q is no name of a label: %s", m.Key, bad[0]))
	}
	return nil
}

func isLabel(s string) bool { return len(validation.IsValidLabelValue(s)) == 0 }

// with returns a copy of m that can be written to.
func with(m map[string]string) map[string]string {
	c := make(map[string]string, len(m)+2)
	maps.Copy(c, m)
	return c
}
