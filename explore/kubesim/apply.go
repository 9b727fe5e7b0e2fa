// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// An applier merges what is applied into objects of one kind. The owners of their fields
// are kept from the first time that something is applied to an object on: what it had
// before belongs to nobody who could be asked, as on a server for objects that are older
// than it.
type applier struct {
	main, status *managedfields.FieldManager
}

func newApplier(k *Kind) (*applier, error) {
	var converter managedfields.TypeConverter
	switch {
	case k.builtIn:
		converter = applyconfigurations.NewTypeConverter(k.scheme)
	case k.custom != nil:
		s := k.custom.structural.ToKubeOpenAPI()
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		s.Properties["apiVersion"], s.Properties["kind"], s.Properties["metadata"] = *spec.StringProperty(), *spec.StringProperty(), metaSchema()
		s.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}})
		var err error
		if converter, err = managedfields.NewTypeConverter(map[string]*spec.Schema{"object": s}, k.custom.preserve); err != nil {
			return nil, err
		}
	default:
		converter = managedfields.NewDeducedTypeConverter()
	}
	reset := map[fieldpath.APIVersion]fieldpath.Filter{}
	a := &applier{}
	make := func(sub string, paths ...fieldpath.Path) (*managedfields.FieldManager, error) {
		reset[fieldpath.APIVersion(k.GroupVersion().String())] = fieldpath.NewExcludeSetFilter(fieldpath.NewSet(paths...))
		return managedfields.NewDefaultCRDFieldManager(converter, same{}, same{}, same{}, k.GroupVersionKind, k.GroupVersion(), sub, reset)
	}
	var err error
	var theirs []fieldpath.Path
	if k.Status {
		theirs = append(theirs, fieldpath.MakePathOrDie("status"))
	}
	if a.main, err = make("", theirs...); err != nil {
		return nil, err
	}
	reset = map[fieldpath.APIVersion]fieldpath.Filter{}
	if a.status, err = make("status", fieldpath.MakePathOrDie("spec")); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *applier) of(sub string) *managedfields.FieldManager {
	if sub == "status" {
		return a.status
	}
	return a.main
}

// metaSchema is how metadata is merged.
func metaSchema() spec.Schema {
	texts := *spec.MapProperty(spec.StringProperty())
	set := *spec.ArrayProperty(spec.StringProperty())
	set.AddExtension("x-kubernetes-list-type", "set")
	owner := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: map[string]spec.Schema{}}}
	for _, name := range []string{"apiVersion", "kind", "name", "uid"} {
		owner.Properties[name] = *spec.StringProperty()
	}
	owner.Properties["controller"], owner.Properties["blockOwnerDeletion"] = *spec.BooleanProperty(), *spec.BooleanProperty()
	owner.AddExtension("x-kubernetes-map-type", "atomic")
	owners := *spec.ArrayProperty(owner)
	owners.AddExtension("x-kubernetes-list-type", "map")
	owners.AddExtension("x-kubernetes-list-map-keys", []any{"uid"})
	s := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: map[string]spec.Schema{
		"labels": texts, "annotations": texts, "finalizers": set, "ownerReferences": owners,
	}}}
	entry := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	entry.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	s.Properties["managedFields"] = *spec.ArrayProperty(entry)
	for _, name := range []string{"name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "selfLink"} {
		s.Properties[name] = *spec.StringProperty()
	}
	s.Properties["generation"], s.Properties["deletionGracePeriodSeconds"] = *spec.Int64Property(), *spec.Int64Property()
	return s
}

// same is all that a server with one version of each kind has to convert.
type same struct{}

func (same) Default(runtime.Object)    {}
func (same) Convert(_, _, _ any) error { return fmt.Errorf("kubesim: there is one version") }
func (same) ConvertToVersion(o runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return o, nil
}

func (same) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (same) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	return o, nil
}

// owned keeps the owners of fields up to date when an object is written otherwise.
func (k *Kind) owned(old, o *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry, manager, sub string) ([]metav1.ManagedFieldsEntry, error) {
	a, err := k.applies()
	if err != nil {
		return nil, err
	}
	was, is := old.DeepCopy(), o.DeepCopy()
	was.SetManagedFields(managed)
	is.SetManagedFields(managed)
	out, err := a.of(sub).Update(was, is, manager)
	if err != nil {
		return nil, err
	}
	return out.(*unstructured.Unstructured).GetManagedFields(), nil
}
