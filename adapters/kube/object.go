// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"iter"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
)

// objectOf returns the object that an informer's handler or store hands out: the
// object itself, or the last known one of a tombstone
// ([cache.DeletedFinalStateUnknown]). If the tombstone has none, the result has
// a name and a namespace and nothing else. Anything else is an error.
func objectOf(v any) (metav1.Object, error) {
	if t, ok := v.(*cache.DeletedFinalStateUnknown); ok && t != nil {
		v = *t
	}
	t, tombstone := v.(cache.DeletedFinalStateUnknown)
	if tombstone {
		v = t.Obj
	}
	// The methods of a nil pointer are there, and panic.
	if p := reflect.ValueOf(v); p.Kind() != reflect.Pointer || !p.IsNil() {
		if obj, err := meta.Accessor(v); err == nil {
			return obj, nil
		}
	}
	if tombstone && t.Key != "" {
		namespace, name, err := cache.SplitMetaNamespaceKey(t.Key)
		if err == nil {
			return &gone{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, nil
		}
	}
	return nil, fmt.Errorf("%T is no Kubernetes object, want one with metadata or a tombstone of one", v)
}

// gone is a deleted object that only its name is known of.
type gone struct{ metav1.ObjectMeta }

// Name returns the name of an object, for [Source].Keys and [reconcile.Map]. The
// namespace of an object that is in none is empty.
func Name(obj metav1.Object) iter.Seq[cache.ObjectName] {
	return one(cache.MetaObjectToName(obj))
}

// Key makes of a function that returns one item, or none, what [Source].Keys,
// [Watches] and [reconcile.Map] want.
func Key[O metav1.Object, T any](key func(obj O) (item T, ok bool)) func(O) iter.Seq[T] {
	return func(obj O) iter.Seq[T] {
		if item, ok := key(obj); ok {
			return one(item)
		}
		return none[T]
	}
}

func one[T any](item T) iter.Seq[T] {
	return func(yield func(T) bool) { yield(item) }
}

func none[T any](func(T) bool) {}

// Get returns an object of the store of an informer. One that is not there is an
// error that apierrors.IsNotFound knows; one that is there and no O is a
// [reconcile.Terminal] error. It is a deep copy, so it may be changed.
func Get[O Object](informer cache.SharedInformer, name cache.ObjectName) (obj O, err error) {
	v, ok, err := informer.GetStore().GetByKey(name.String())
	if err != nil {
		return obj, err
	}
	if !ok {
		return obj, apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", obj)}, name.String())
	}
	return copyOf[O](name, v)
}

// Index has an informer find its objects by the items that keys makes of them, such
// as those of an owner by [OwnedBy.Keys], and returns the function that finds them.
// Its errors are that an object is no O. The name is that of the index, of which an
// informer has one. The objects are deep copies, as those of [Get].
func Index[O Object, T comparable](informer cache.SharedIndexInformer, name string, keys func(metav1.Object) iter.Seq[T]) (find func(item T) ([]O, error), err error) {
	err = informer.AddIndexers(cache.Indexers{name: func(v any) (texts []string, err error) {
		obj, err := objectOf(v)
		if err == nil {
			for item := range keys(obj) {
				texts = append(texts, fmt.Sprint(item))
			}
		}
		return texts, err
	}})
	if err != nil {
		return nil, fmt.Errorf("kube: the index %s: %w", name, err)
	}
	return func(item T) ([]O, error) {
		found, err := informer.GetIndexer().ByIndex(name, fmt.Sprint(item))
		objs := make([]O, len(found))
		for i, v := range found {
			if objs[i], err = copyOf[O](item, v); err != nil {
				return nil, err
			}
		}
		return objs, err
	}, nil
}

// copyOf returns a deep copy of what a store has of an item.
func copyOf[O Object](item, v any) (obj O, err error) {
	o, ok := v.(O)
	if !ok {
		return obj, reconcile.Terminal(fmt.Errorf("kube: of %v there is a %T, want a %T", item, v, obj))
	}
	return o.DeepCopyObject().(O), nil
}
