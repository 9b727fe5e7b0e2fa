// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package custom makes typed clients and informers of custom resources, without
// generated code.
//
//	type Bucket struct {
//		metav1.TypeMeta   `json:",inline"`
//		metav1.ObjectMeta `json:"metadata"`
//		Spec              BucketSpec   `json:"spec"`
//		Status            BucketStatus `json:"status,omitzero"`
//	}
//
//	func (b *Bucket) DeepCopyObject() runtime.Object { return custom.DeepCopy(b) }
//
//	buckets, err := custom.NewClient[Bucket](config, gvr, "Bucket")
package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile/adapters/kube"
)

// A List is what the server answers when it is asked for all objects of a kind.
type List[O kube.Object] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []O `json:"items"`
}

// DeepCopyObject returns a deep copy.
func (l *List[O]) DeepCopyObject() runtime.Object {
	out := &List[O]{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for _, o := range l.Items {
		out.Items = append(out.Items, o.DeepCopyObject().(O))
	}
	return out
}

// DeepCopy returns a deep copy of what in is as JSON, which is all that the API
// server knows of an object. It is for the method DeepCopyObject. It panics if in
// cannot be JSON, as one with a channel in it.
func DeepCopy[T any](in *T) *T {
	out := new(T)
	data, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		panic(fmt.Sprintf("custom: DeepCopy of a %T: %v", in, err))
	}
	return out
}

// A Client has clients and informers of the objects of one kind. Its methods may
// be called from any goroutine.
type Client[O kube.Object] struct {
	rest       rest.Interface
	resource   string
	parameters runtime.ParameterCodec
	create     func() O
}

// NewClient returns a client of the objects of a kind, whose Go type is T: a struct
// with TypeMeta and ObjectMeta in it, and a method DeepCopyObject; see [DeepCopy]. It
// asks the server nothing: a kind that is not there is an error of each request.
// All objects that come from the server have their kind in TypeMeta.
// Config is not changed; its content type is not used, because custom resources
// are JSON.
func NewClient[T any, O interface {
	*T
	kube.Object
}](config *rest.Config, gvr schema.GroupVersionResource, kind string,
) (*Client[O], error) {
	create := func() O { return new(T) }
	gv, scheme := gvr.GroupVersion(), runtime.NewScheme()
	scheme.AddKnownTypeWithName(gv.WithKind(kind), create())
	scheme.AddKnownTypeWithName(gv.WithKind(kind+"List"), new(List[O]))
	metav1.AddToGroupVersion(scheme, gv)
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, ""
	config.NegotiatedSerializer = withKinds{serializer.NewCodecFactory(scheme).WithoutConversion()}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("custom: a client of %s: %w", gvr.GroupResource(), err)
	}
	return &Client[O]{rest: client, resource: gvr.Resource, parameters: runtime.NewParameterCodec(scheme), create: create}, nil
}

// withKinds keeps the TypeMeta of what is decoded, which client-go's typed clients
// clear: events are about an object of a kind, and no global scheme has this one.
type withKinds struct{ runtime.NegotiatedSerializer }

// DecoderToVersion returns the decoder as it is.
func (withKinds) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder {
	return d
}

// In returns the client for a namespace, with the methods that a typed client of
// client-go has; "" means all namespaces, or none if the kind has none.
func (c *Client[O]) In(namespace string) *gentype.ClientWithList[O, *List[O]] {
	return gentype.NewClientWithList[O, *List[O]](c.resource, c.rest, c.parameters, namespace, c.create, func() *List[O] { return new(List[O]) })
}

// Informer returns a new informer of the objects in a namespace or, if that is
// "", of all. Each resync period, if that is not 0, every object is offered again.
// Each tweak changes the options, such as selectors, of each list, and of each
// watch, whose Watch is true.
func (c *Client[O]) Informer(namespace string, resync time.Duration, tweak ...func(*metav1.ListOptions)) cache.SharedIndexInformer {
	client := c.In(namespace)
	tweaked := func(opts metav1.ListOptions) metav1.ListOptions {
		for _, f := range tweak {
			f(&opts)
		}
		return opts
	}
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, tweaked(opts))
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return client.Watch(ctx, tweaked(opts))
		},
	}, c.create(), resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}
