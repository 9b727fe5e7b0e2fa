// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// This file keeps the objects and what happened to them. All of it is guarded by
// Server.mu.

// A record is one version of an object. It is not changed.
type record struct {
	kind    *Kind
	object  *unstructured.Unstructured
	version int64
	managed []metav1.ManagedFieldsEntry // owners of fields, once something was applied
	body    []byte                      // the object as JSON; see text
	listed  []byte                      // the same as in a list
	partial []byte                      // its metadata alone
	brief   string                      // what State says of it
}

// key is how objects of one kind are sorted.
func key(namespace, name string) string { return namespace + "/" + name }

func (r *record) key() string { return key(r.object.GetNamespace(), r.object.GetName()) }

// text returns the object as JSON. Whoever calls it holds Server.mu.
func (r *record) text() []byte {
	if r.body == nil {
		r.body = encode(r.withManagedFields())
	}
	return r.body
}

// item returns the object as it is in lists: of the kinds that Kubernetes has, its kind is
// that of the list.
func (r *record) item() []byte {
	if !r.kind.builtIn {
		return r.text()
	}
	if r.listed == nil {
		o := maps.Clone(r.withManagedFields())
		delete(o, "apiVersion")
		delete(o, "kind")
		r.listed = encode(o)
	}
	return r.listed
}

// metadata returns a PartialObjectMetadata as JSON.
func (r *record) metadata() []byte {
	if r.partial == nil {
		r.partial = encode(map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": r.withManagedFields()["metadata"]})
	}
	return r.partial
}

// withManagedFields returns the object with the owners of its fields, once something was applied.
func (r *record) withManagedFields() map[string]any {
	if len(r.managed) == 0 {
		return r.object.Object
	}
	o := r.object.DeepCopy()
	o.SetManagedFields(r.managed)
	return o.Object
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("kubesim: an object that is no JSON: %v", err))
	}
	return text
}

// A change is one event: an object came (old is nil), changed, or went (now is the last
// version, with that of the deletion).
type change struct {
	version  int64
	old, now *record
	gone     bool
}

// A table has the objects of one kind.
type table struct {
	records  map[string]*record
	changes  []change // all since compacted
	watchers []*watcher
}

func (s *Server) table(k *Kind) *table {
	t := s.tables[k]
	if t == nil {
		t = &table{records: map[string]*record{}}
		s.tables[k] = t
	}
	return t
}

// put stores an object as a new version, and tells of it.
func (s *Server) put(k *Kind, o *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry) *record {
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	r := &record{kind: k, object: o, version: s.version, managed: managed}
	t := s.table(k)
	old := t.records[r.key()]
	t.records[r.key()] = r
	s.ids[o.GetUID()] = r
	if slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return s.owner(o, owner) == nil }) {
		s.collectLater()
	}
	s.tell(t, change{version: s.version, old: old, now: r})
	return r
}

// drop removes an object, of which o is the last state, with the owners of its fields.
func (s *Server) drop(k *Kind, o *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry) *record {
	s.version++
	t := s.table(k)
	old := t.records[key(o.GetNamespace(), o.GetName())]
	delete(t.records, old.key())
	delete(s.ids, o.GetUID())
	o = o.DeepCopy()
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	r := &record{kind: k, object: o, version: s.version, managed: managed}
	s.tell(t, change{version: s.version, old: old, now: r, gone: true})
	s.collectLater()
	return r
}

func (s *Server) tell(t *table, c change) {
	t.changes = append(t.changes, c)
	t.watchers = slices.DeleteFunc(t.watchers, func(w *watcher) bool { return !w.send(c) })
}

// A filter is which objects of a kind a request is about.
type filter struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (f filter) matches(r *record) bool {
	o := r.object
	if f.namespace != "" && o.GetNamespace() != f.namespace {
		return false
	}
	if f.labels != nil && !f.labels.Empty() && !f.labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	return f.fields == nil || f.fields.Empty() || f.fields.Matches(fieldsOf{r})
}

// fieldsOf lets a selector see the fields of an object.
type fieldsOf struct{ *record }

func (f fieldsOf) Has(path string) bool { return true }

func (f fieldsOf) Get(path string) string {
	if path == "reason" && f.kind.Kind == "Event" || path == "type" {
		v, _ := f.object.Object[path].(string)
		return v
	}
	v, found, _ := unstructured.NestedFieldNoCopy(f.object.Object, strings.Split(path, ".")...)
	if !found {
		return map[string]string{"spec.unschedulable": "false", "spec.hostNetwork": "false", "status.successful": "0", "status.replicas": "0"}[path]
	}
	return fmt.Sprint(v)
}

// selectable are the fields that objects of a kind can be selected by, besides their
// names. They are those of the version 1.36.
var selectable = map[string][]string{
	"pods":                   {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"},
	"nodes":                  {"spec.unschedulable"},
	"namespaces":             {"status.phase"},
	"secrets":                {"type"},
	"services":               {"spec.clusterIP", "spec.type"},
	"replicationcontrollers": {"status.replicas"},
	"replicasets.apps":       {"status.replicas"},
	"jobs.batch":             {"status.successful"},
	"certificatesigningrequests.certificates.k8s.io": {"spec.signerName"},
	"events":                         {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"},
	"resourceslices.resource.k8s.io": {"spec.nodeName", "spec.driver"},
}

func (k *Kind) selectable(field string) bool {
	if field == "metadata.name" || field == "metadata.namespace" && !k.Cluster {
		return true
	}
	if k.custom != nil {
		return slices.Contains(k.custom.fields, field)
	}
	return slices.Contains(selectable[k.String()], field)
}

// find returns the objects that match, sorted as a server does.
func (t *table) find(f filter) []*record {
	var all []*record
	for _, k := range slices.Sorted(maps.Keys(t.records)) {
		if r := t.records[k]; f.matches(r) {
			all = append(all, r)
		}
	}
	return all
}

// at returns the table as it was at a version, which is not compacted.
func (t *table) at(version int64) *table {
	was := &table{records: maps.Clone(t.records)}
	for _, c := range slices.Backward(t.changes) {
		if c.version <= version {
			break
		}
		if c.old == nil {
			delete(was.records, c.now.key())
		} else {
			was.records[c.old.key()] = c.old
		}
	}
	return was
}

// Compact forgets what happened: watches and lists from earlier versions are refused
// as too old, with the code 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactLocked()
}

func (s *Server) compactLocked() {
	s.compacted = s.version
	for _, t := range s.tables {
		t.changes = nil
	}
}
