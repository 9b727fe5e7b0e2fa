// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// This file does what two controllers of a cluster do: the garbage collector, and that of
// namespaces.

// collectAfter is how long they take to see a change. No controller asks at that time.
const collectAfter = 997*time.Millisecond + 13*time.Microsecond

func (s *Server) collectLater() {
	if s.collecting || s.NoCollector {
		return
	}
	s.collecting = true
	time.AfterFunc(collectAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.collecting = false
		for s.collectOnce() {
		}
	})
}

// kinds returns all in a fixed order.
func (s *Server) kinds() []*Kind {
	var all []*Kind
	for k, t := range s.tables {
		if len(t.records) > 0 {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *Kind) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// collectOnce does what is to be done, and reports whether there may be more.
func (s *Server) collectOnce() (more bool) {
	dependents := map[types.UID][]*record{}
	var all []*record
	for _, k := range s.kinds() {
		t := s.tables[k]
		for _, name := range slices.Sorted(maps.Keys(t.records)) {
			r := t.records[name]
			all = append(all, r)
			for _, owner := range r.object.GetOwnerReferences() {
				dependents[owner.UID] = append(dependents[owner.UID], r)
			}
		}
	}
	foreground := metav1.DeletePropagationForeground
	for _, r := range all {
		o := r.object
		if s.tables[r.kind].records[r.key()] != r {
			more = true // changed since: the next round sees it
			continue
		}
		owners := o.GetOwnerReferences()
		if len(owners) > 0 && o.GetDeletionTimestamp() == nil {
			left, waits, unclear := 0, false, false
			var lost []types.UID // absent, or they wait
			for _, ref := range owners {
				switch up := s.owner(o, ref); {
				case up == nil:
					unclear = unclear || s.unclear(o, ref)
					lost = append(lost, ref.UID)
				case waiting(up.object):
					waits = true
					lost = append(lost, ref.UID)
				default:
					left++
				}
			}
			switch {
			case unclear:
			case left == 0:
				options := backgroundDeletion()
				if waits && len(dependents[o.GetUID()]) > 0 {
					options.PropagationPolicy = &foreground
				}
				_, _, _ = s.remove(r.kind, r, options)
				more = true
			case len(lost) > 0:
				s.disown(r, lost...)
				more = true
			}
			continue
		}
		if o.GetDeletionTimestamp() == nil {
			continue
		}
		switch finalizers := o.GetFinalizers(); {
		case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
			for _, d := range dependents[o.GetUID()] {
				s.disown(d, o.GetUID())
			}
			s.unmark(r, metav1.FinalizerOrphanDependents)
			more = true
		case waiting(o):
			blocked := slices.ContainsFunc(dependents[o.GetUID()], func(d *record) bool {
				return slices.ContainsFunc(d.object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
					return ref.UID == o.GetUID() && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
				})
			})
			if !blocked {
				s.unmark(r, metav1.FinalizerDeleteDependents)
				more = true
			}
		}
		if r.kind.builtIn && r.kind.Kind == "Namespace" {
			more = s.empty(r) || more
		}
	}
	return more
}

// owner returns the owner of an object that a reference names, or nil if there is none: one
// of another kind or name is none, nor is one in another namespace.
func (s *Server) owner(o *unstructured.Unstructured, ref metav1.OwnerReference) *record {
	up := s.ids[ref.UID]
	if up == nil || up.kind.Kind != ref.Kind || up.kind.Group != groupOf(ref) || up.object.GetName() != ref.Name ||
		!up.kind.Cluster && up.object.GetNamespace() != o.GetNamespace() {
		return nil
	}
	return up
}

// unclear reports whether a collector cannot look up an owner, and leaves the object alone:
// no such kind is served, or the owner has a namespace and the object has none.
func (s *Server) unclear(o *unstructured.Unstructured, ref metav1.OwnerReference) bool {
	for gv, kinds := range s.groups {
		for _, k := range kinds {
			if gv.Group == groupOf(ref) && k.Kind == ref.Kind {
				return !k.Cluster && o.GetNamespace() == ""
			}
		}
	}
	return true
}

func groupOf(ref metav1.OwnerReference) string {
	group, _, found := strings.Cut(ref.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// waiting reports whether an object is deleted once its dependents are.
func waiting(o *unstructured.Unstructured) bool {
	return o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

func backgroundDeletion() *metav1.DeleteOptions {
	policy := metav1.DeletePropagationBackground
	return &metav1.DeleteOptions{PropagationPolicy: &policy}
}

// current returns an object as it is now, or nil if it is gone.
func (s *Server) current(r *record) *record { return s.ids[r.object.GetUID()] }

// unmark takes a finalizer away.
func (s *Server) unmark(r *record, finalizer string) {
	if r = s.current(r); r == nil {
		return
	}
	o := r.object.DeepCopy()
	list := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == finalizer })
	if o.SetFinalizers(list); len(list) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "finalizers")
		s.drop(r.kind, o, r.managed)
		return
	}
	s.put(r.kind, o, r.managed)
}

// disown takes owners away.
func (s *Server) disown(r *record, owners ...types.UID) {
	if r = s.current(r); r == nil {
		return
	}
	o := r.object.DeepCopy()
	list := slices.DeleteFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return slices.Contains(owners, ref.UID) })
	if o.SetOwnerReferences(list); len(list) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "ownerReferences")
	}
	s.put(r.kind, o, r.managed)
}

// empty deletes what is in a namespace, and then that.
func (s *Server) empty(ns *record) (more bool) {
	left := false
	for _, k := range s.kinds() {
		for _, r := range s.tables[k].find(filter{namespace: ns.object.GetName()}) {
			if k.Cluster {
				continue
			}
			left = true
			if r.object.GetDeletionTimestamp() == nil {
				_, _, _ = s.remove(k, r, backgroundDeletion())
				more = true
			}
		}
	}
	if !left && len(ns.object.GetFinalizers()) == 0 {
		s.drop(ns.kind, ns.object, ns.managed)
	}
	return more
}
