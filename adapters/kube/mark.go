// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// A Mark names the owner of an object by labels and annotations: for owners that
// owner references cannot name, because they are in another namespace or not in
// Kubernetes at all. Key is required; without KindName there are no kinds.
//
// Set writes both. The annotations have the owner as it is, the labels are there
// to be selected by: a label cannot have every text, so one that is too long or
// has other characters is shortened to a hash. Keys reads either, so that
// objects that somebody else marked are found as well.
type Mark struct {
	Key string // name of the label and the annotation with the owner: "example.com/owner"

	KindName string // name of those with the kind of the owner: "example.com/owner-kind"
	Kind     string // of the owners meant; other kinds are not matched
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
func (m Mark) Names(obj metav1.Object) iter.Seq[types.NamespacedName] {
	namespace, name, ok := strings.Cut(m.Owner(obj), "/")
	if !ok {
		namespace, name = "", namespace
	}
	if name == "" || strings.Contains(name, "/") || ok && namespace == "" {
		return none[types.NamespacedName]
	}
	return one(types.NamespacedName{Namespace: namespace, Name: name})
}

// Owner returns the owner that obj is marked with, or "".
func (m Mark) Owner(obj metav1.Object) string {
	if m.KindName != "" && !m.has(obj, m.KindName, m.Kind) {
		return ""
	}
	if owner := obj.GetAnnotations()[m.Key]; owner != "" {
		return owner
	}
	owner := obj.GetLabels()[m.Key]
	if strings.HasPrefix(owner, hashed) {
		return "" // nobody can tell whose it is
	}
	return owner
}

// has reports whether obj has an annotation, or else a label, of that value.
func (m Mark) has(obj metav1.Object, name, value string) bool {
	if got, ok := obj.GetAnnotations()[name]; ok {
		return got == value
	}
	return obj.GetLabels()[name] == labelValue(value)
}

// Set marks obj as owned by owner. It changes obj alone; the caller creates or
// updates it. It returns an error, and leaves obj as it was, if a field or owner
// is not valid, and one that wraps [ErrOwned] if obj is marked with another
// owner.
func (m Mark) Set(obj metav1.Object, owner string) error {
	if err := m.check(); err != nil {
		return err
	}
	if owner == "" {
		return errors.New("kubeadapter: Mark.Set needs an owner, got an empty text")
	}
	if had := cmp.Or(obj.GetAnnotations()[m.Key], obj.GetLabels()[m.Key]); had != "" &&
		(!m.has(obj, m.Key, owner) || m.KindName != "" && !m.has(obj, m.KindName, m.Kind)) {
		return fmt.Errorf("kubeadapter: cannot mark %s as owned by %q: %w: %q", nameOf(obj), owner, ErrOwned, had)
	}
	annotations, labels := with(obj.GetAnnotations()), with(obj.GetLabels())
	annotations[m.Key], labels[m.Key] = owner, labelValue(owner)
	if m.KindName != "" {
		annotations[m.KindName], labels[m.KindName] = m.Kind, labelValue(m.Kind)
	}
	obj.SetAnnotations(annotations)
	obj.SetLabels(labels)
	return nil
}

// Selector returns a label selector for all objects that Set marked with owner,
// or, if owner is "", for those of all owners of the kind.
func (m Mark) Selector(owner string) (string, error) {
	if err := m.check(); err != nil {
		return "", err
	}
	selector := m.Key
	if owner != "" {
		selector += "=" + labelValue(owner)
	}
	if m.KindName != "" {
		selector += "," + m.KindName + "=" + labelValue(m.Kind)
	}
	return selector, nil
}

func (m Mark) check() error {
	if bad := validation.IsQualifiedName(m.Key); len(bad) > 0 {
		return fmt.Errorf("kubeadapter: Mark.Key %q is no name of a label: %s", m.Key, bad[0])
	}
	if m.KindName == "" {
		if m.Kind != "" {
			return fmt.Errorf("kubeadapter: Mark.Kind is %q, and needs Mark.KindName", m.Kind)
		}
		return nil
	}
	if bad := validation.IsQualifiedName(m.KindName); len(bad) > 0 {
		return fmt.Errorf("kubeadapter: Mark.KindName %q is no name of a label: %s", m.KindName, bad[0])
	}
	if m.Kind == "" || m.KindName == m.Key {
		return errors.New("kubeadapter: Mark.KindName needs a Mark.Kind, and another name than Mark.Key")
	}
	return nil
}

// hashed is what the label of an owner begins with that is no label's value.
const hashed = "sha256-"

func labelValue(s string) string {
	if len(validation.IsValidLabelValue(s)) == 0 && !strings.HasPrefix(s, hashed) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashed + hex.EncodeToString(sum[:20])
}

// with returns a copy of m that can be written to.
func with(m map[string]string) map[string]string {
	c := make(map[string]string, len(m)+2)
	maps.Copy(c, m)
	return c
}
