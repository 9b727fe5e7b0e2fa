// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter

import (
	"fmt"
	"iter"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Object returns the object that an informer's handler or store hands out: the
// object itself, or the last known one of a tombstone
// ([cache.DeletedFinalStateUnknown]). If the tombstone has none, the result has
// a name and a namespace and nothing else. Anything else is an error.
func Object(v any) (metav1.Object, error) {
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

// Self returns the object itself, for those who map it further on with
// [reconcile.Map]. A queue of objects would hold each version of one as an item
// of its own; it is the names that belong into queues.
func Self(obj metav1.Object) iter.Seq[metav1.Object] { return one(obj) }

// Key makes of a function that returns one item, or none, what [Source].Keys
// and [reconcile.Map] want.
func Key[T any](key func(obj metav1.Object) (item T, ok bool)) func(metav1.Object) iter.Seq[T] {
	return func(obj metav1.Object) iter.Seq[T] {
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
// error that apierrors.IsNotFound knows; one that is there and no O is another
// error. The object belongs to all: it is not to be changed, only a deep copy of it.
func Get[O any](informer cache.SharedInformer, name cache.ObjectName) (obj O, err error) {
	v, ok, err := informer.GetStore().GetByKey(name.String())
	if err != nil {
		return obj, err
	}
	if !ok {
		return obj, apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", obj)}, name.String())
	}
	if obj, ok = v.(O); !ok {
		return obj, fmt.Errorf("kubeadapter: %s is a %T, want a %T", name, v, obj)
	}
	return obj, nil
}

// Index has an informer find its objects by the items that keys makes of them, such
// as those of an owner by [OwnedBy.Keys], and returns the function that finds them.
// Its errors are that an object is no O. The name is that of the index, of which an
// informer has one. The objects belong to all, as those of [Get].
func Index[O any, T comparable](informer cache.SharedIndexInformer, name string, keys func(metav1.Object) iter.Seq[T]) (find func(item T) ([]O, error), err error) {
	err = informer.AddIndexers(cache.Indexers{name: func(v any) (texts []string, err error) {
		obj, err := Object(v)
		if err == nil {
			for item := range keys(obj) {
				texts = append(texts, fmt.Sprint(item))
			}
		}
		return texts, err
	}})
	if err != nil {
		return nil, fmt.Errorf("kubeadapter: the index %s: %w", name, err)
	}
	return func(item T) ([]O, error) {
		found, err := informer.GetIndexer().ByIndex(name, fmt.Sprint(item))
		objs := make([]O, len(found))
		for i, v := range found {
			var ok bool
			if objs[i], ok = v.(O); !ok {
				return nil, fmt.Errorf("kubeadapter: of %v is a %T, want a %T", item, v, objs[i])
			}
		}
		return objs, err
	}, nil
}
