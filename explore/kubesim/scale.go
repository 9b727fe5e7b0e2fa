// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// scaleKind is that of the subresource. Its objects are made of others.
var scaleKind = func() *Kind {
	k := &Kind{GroupVersionKind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), Resource: "scale"}
	typed(k, scheme.Scheme)
	return k
}()

// scale serves the subresource.
func (s *Server) scale(q *request) (int, []byte, error) {
	if q.method == http.MethodPatch {
		if _, err := q.patchOptions(); err != nil {
			return 0, nil, err
		}
		if q.media == string(types.ApplyYAMLPatchType) {
			return 0, nil, unsupported("kubesim: a scale cannot be applied")
		}
	}
	old, err := s.get(q)
	if err != nil {
		return 0, nil, err
	}
	text := encode(q.kind.scaleOf(old.object))
	in := &request{kind: scaleKind, query: q.query, space: q.space, name: q.name}
	switch q.method {
	case http.MethodGet:
		return http.StatusOK, text, nil
	case http.MethodPut:
		text = q.body
	case http.MethodPatch:
		if text, err = scaleKind.merge(types.PatchType(q.media), text, q.body); err != nil {
			return 0, nil, err
		}
	default:
		return 0, nil, apierrors.NewMethodNotSupported(q.kind.resource(), strings.ToLower(q.method))
	}
	scale, err := in.decode(text)
	if err != nil {
		return 0, nil, err
	}
	if err := in.matches(scale); err != nil {
		return 0, nil, err
	}
	replicas, _, _ := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	if replicas < 0 {
		return 0, nil, apierrors.NewInvalid(schema.GroupKind{Group: "autoscaling", Kind: "Scale"}, q.name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), replicas, "must be greater than or equal to 0"),
		})
	}
	o := old.object.DeepCopy()
	o.SetResourceVersion(scale.GetResourceVersion())
	if id := scale.GetUID(); id != "" {
		o.SetUID(id)
	}
	if err := unstructured.SetNestedField(o.Object, replicas, paths(q.kind.Scale.Spec)...); err != nil {
		return 0, nil, apierrors.NewInternalError(err)
	}
	main := *q
	main.sub = ""
	r, err := s.update(&main, old, o, nil, true)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, encode(q.kind.scaleOf(r.object)), nil
}

func paths(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// scaleOf returns the Scale of an object.
func (k *Kind) scaleOf(o *unstructured.Unstructured) *autoscalingv1.Scale {
	number := func(path string) int32 {
		n, _, _ := unstructured.NestedFieldNoCopy(o.Object, paths(path)...)
		v := reflect.ValueOf(n)
		if v.CanInt() {
			return int32(v.Int())
		}
		return 0
	}
	is := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{Kind: "Scale", APIVersion: "autoscaling/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(),
			ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: number(k.Scale.Spec)},
		Status: autoscalingv1.ScaleStatus{Replicas: number(k.Scale.Status)},
	}
	if k.Scale.Selector != "" {
		text, _, _ := unstructured.NestedString(o.Object, paths(k.Scale.Selector)...)
		is.Status.Selector = text
	}
	if k.builtIn {
		is.Status.Selector = selectorOf(o)
	}
	return is
}

// selectorOf returns that of a workload, as text.
func selectorOf(o *unstructured.Unstructured) string {
	content, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
	if o.GetKind() == "ReplicationController" {
		content = map[string]any{"matchLabels": content}
	}
	var selector metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &selector); err != nil {
		return fmt.Sprint(err)
	}
	s, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return fmt.Sprint(err)
	}
	return s.String()
}
