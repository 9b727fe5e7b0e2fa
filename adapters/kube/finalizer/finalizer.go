// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package finalizer wraps a reconcile function so that what it made outside of
// Kubernetes is taken away before its object vanishes.
//
// A [Guard] adds a finalizer before the first outside effect, and removes it
// after a clean-up that succeeded. It never touches the finalizers of others.
//
// The package imports no client: typed, dynamic and metadata clients all fit
// [kube.Client].
package finalizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/absent"
)

// A Guard is a reconcile function for objects with a finalizer: its Reconcile
// is what a [reconcile.Reconciler] calls. Items are of type T, and their
// objects of type O, a pointer.
//
//	object                            what is called
//	not there                         Gone; before it Clean, if it vanished without
//	being deleted, not with ours      nothing: it is left alone
//	being deleted, with ours          Clean; then our finalizer is removed
//	any other, not yet with ours      our finalizer is added; then Ensure
//	any other                         Ensure
//
// It keeps three rules. No function is called for an object that could vanish
// without Clean. Our finalizer is removed only after Clean succeeded. A
// finalizer that is not ours stays, also when somebody else changes the list at
// the same time: the list is written together with the resource version it was
// read in, and a conflict is tried again with what the server has.
//
// A function has succeeded when it returned nil or [reconcile.RecheckWithin]. With
// any other plan it has not: RequeueWithin says that there is work left.
//
// The process may end at any point. What is called again after that is Ensure
// or Clean, so both are idempotent. In one process, Clean is not called again
// for an object once it succeeded, even if the finalizer could not be removed.
//
// Get may read a cache that lags. After a take-over it may show an object that is
// gone, cleaned by the process before; then Ensure makes outside what nobody wants.
// So Clean is called for an object that Ensure was called for, and that vanished
// without it, unless another one with its name has our finalizer by then: what is
// outside may be what another process made for that one. A process that ends before
// its cache has caught up leaves that to nobody: to rule it out, begin a term with a
// cache that was filled in it.
//
// The zero Guard is not usable: Name, Get, Client, Ensure and Clean are required.
// The fields are not to be changed once Reconcile was called; it may be called from
// many goroutines, though not for one item at a time.
type Guard[T comparable, O metav1.Object] struct {
	// Name is our finalizer: a domain, a slash and a name, such as
	// example.com/bucket. See [NameOf].
	Name string

	// Get returns the object of an item, perhaps from a cache. If there is none,
	// it returns an error that apierrors.IsNotFound knows. A 404 of a kind or a version
	// that the API server does not serve is a failure: it says nothing of the object.
	Get func(ctx context.Context, item T) (O, error)

	// Client returns the client for the object of an item.
	Client func(item T) kube.Client[O]

	// Ensure makes outside what the object asks for. It is given the object with
	// our finalizer, and does not change it.
	Ensure func(ctx context.Context, obj O) error

	// Clean takes away what Ensure may have made, all of it or a part.
	Clean func(ctx context.Context, obj O) error

	// Gone is called for an item that has no object. It may be nil.
	Gone func(ctx context.Context, item T) error

	cleaned sync.Map // of an item, the UID of the object that Clean has succeeded for
	ensured sync.Map // of an item, the made[O] that Ensure was called for last, until Clean has succeeded for it
}

// A made is an object that Ensure was called for.
type made[O metav1.Object] struct {
	obj  O
	heir types.UID // of the object that has its place now, if we have added our finalizer to that
}

// NameOf returns a name for the finalizer of a controller, which is known by
// its domain, on objects of a kind: example.com/bucket.storage.example.com for
// the kind Bucket of the group storage.example.com, and example.com/configmap
// for one of the group "".
func NameOf(domain, group, kind string) string {
	name := domain + "/" + strings.ToLower(kind)
	if group != "" {
		name += "." + group
	}
	return name
}

// attempts is how often Reconcile tries again, at once, what ended in a
// conflict; after that the retry policy decides.
const attempts = 5

// Reconcile brings an item to where its object wants it. It returns what the
// function that it called returned; when the object is cleaned and our finalizer
// removed, nil. A field of the Guard that is missing or
// wrong is a [reconcile.Terminal] error.
func (g *Guard[T, O]) Reconcile(ctx context.Context, item T) error {
	if err := g.check(); err != nil {
		return reconcile.Terminal(err)
	}
	obj, err := g.Get(ctx, item)
	for attempt := 1; ; attempt++ {
		switch {
		case absent.Object(err):
			if attempt == 1 { // else the cache may still show it for a while
				g.cleaned.Delete(item)
			}
			old, ok := g.ensured.Load(item)
			if ok && attempt == 1 { // there may be another by now, which a Clean would harm
				obj, err = g.Client(item).Get(ctx, old.(made[O]).obj.GetName(), metav1.GetOptions{})
				continue
			}
			if done, err := g.cleanVanished(ctx, item, ""); !done {
				return err
			}
			if g.Gone != nil {
				return g.Gone(ctx, item)
			}
			return nil
		case err != nil:
			return fmt.Errorf("get the object: %w", absent.Explain(err))
		}
		if any(obj) == nil || reflect.ValueOf(obj).IsNil() || obj.GetUID() == "" {
			return reconcile.Terminal(fmt.Errorf("finalizer: Get returned no object for %v, and no error; want an object with a UID, or a NotFound error", item))
		}
		err = g.handle(ctx, item, obj)
		var refused *patchError
		if !errors.As(err, &refused) || attempt == attempts || !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
		// Somebody else was faster, or the object came from a cache that lags.
		obj, err = g.Client(item).Get(ctx, obj.GetName(), metav1.GetOptions{})
	}
}

// A patchError says that our finalizer could not be added or removed.
type patchError struct {
	what, object string
	err          error
}

func (e *patchError) Error() string { return fmt.Sprintf("%s %s: %v", e.what, e.object, e.err) }
func (e *patchError) Unwrap() error { return e.err }

// handle does what is to be done for obj.
func (g *Guard[T, O]) handle(ctx context.Context, item T, obj O) error {
	ours := slices.Contains(obj.GetFinalizers(), g.Name)
	deleted := obj.GetDeletionTimestamp() != nil
	if deleted {
		if done, err := g.cleanVanished(ctx, item, obj.GetUID()); !done {
			return err
		}
	}
	switch {
	case deleted && !ours:
		g.ensured.Delete(item) // somebody took our finalizer away, and wants no Clean
		return nil
	case deleted:
		if !g.isClean(item, obj) {
			if done, err := g.clean(ctx, item, obj); !done {
				return err
			}
			g.cleaned.Store(item, obj.GetUID())
		}
		_, err := g.finalize(ctx, item, obj, false)
		return err
	case g.isClean(item, obj):
		return nil // the cache lags far behind: this object is on its way out
	case !ours:
		var err error
		if obj, err = g.finalize(ctx, item, obj, true); err != nil {
			return err
		}
		if old, ok := g.ensured.Load(item); ok {
			g.ensured.Store(item, made[O]{old.(made[O]).obj, obj.GetUID()})
		}
	}
	if old, ok := g.ensured.Load(item); ok && old.(made[O]).heir == obj.GetUID() {
		if done, err := g.cleanVanished(ctx, item, obj.GetUID()); !done {
			return err
		}
	} // else another process may have called Ensure for obj: a Clean would take that away
	g.ensured.Store(item, made[O]{obj: obj})
	return g.Ensure(ctx, obj)
}

// cleanVanished calls Clean for the object that Ensure was called for, if another
// one, or none, has its place: the cache that showed it lagged behind a Clean of
// another process.
func (g *Guard[T, O]) cleanVanished(ctx context.Context, item T, now types.UID) (done bool, err error) {
	old, ok := g.ensured.Load(item)
	if !ok || old.(made[O]).obj.GetUID() == now {
		return true, nil
	}
	return g.clean(ctx, item, old.(made[O]).obj)
}

// clean calls Clean, and reports whether it has succeeded.
func (g *Guard[T, O]) clean(ctx context.Context, item T, obj O) (done bool, err error) {
	err = g.Clean(ctx, obj)
	if o, _ := reconcile.Classify(err, 1, reconcile.NoRetry); o != reconcile.OutcomeSucceeded {
		return false, err
	}
	g.ensured.Delete(item)
	return true, nil
}

// finalize adds our finalizer to obj, or removes it. It returns the object as it
// is then.
func (g *Guard[T, O]) finalize(ctx context.Context, item T, obj O, add bool) (O, error) {
	what, list := "remove finalizer "+g.Name+" from", []string{}
	for _, f := range obj.GetFinalizers() {
		if f != g.Name {
			list = append(list, f)
		}
	}
	if add {
		what, list = "add finalizer "+g.Name+" to", append(list, g.Name)
	}
	// The server refuses a merge patch with a resource version that is not the
	// current one, so the list is replaced only if nobody else has changed it.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": obj.GetResourceVersion(),
		"finalizers":      list,
	}})
	if err != nil {
		return obj, err
	}
	patched, err := g.Client(item).Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return obj, &patchError{what, objectName(obj), err}
	}
	return patched, nil
}

func (g *Guard[T, O]) check() error {
	switch {
	case g.Get == nil:
		return errors.New("finalizer: Guard.Get is required, and nil")
	case g.Client == nil:
		return errors.New("finalizer: Guard.Client is required, and nil")
	case g.Ensure == nil:
		return errors.New("finalizer: Guard.Ensure is required, and nil")
	case g.Clean == nil:
		return errors.New("finalizer: Guard.Clean is required, and nil")
	case !strings.Contains(g.Name, "/"):
		return fmt.Errorf("finalizer: Guard.Name is %q, want a domain, a slash and a name, such as example.com/bucket", g.Name)
	}
	if wrong := validation.IsQualifiedName(g.Name); len(wrong) > 0 {
		return fmt.Errorf("finalizer: Guard.Name is %q, want a name such as example.com/bucket: %s", g.Name, strings.Join(wrong, "; "))
	}
	return nil
}

func (g *Guard[T, O]) isClean(item T, obj O) bool {
	uid, ok := g.cleaned.Load(item)
	return ok && uid == obj.GetUID()
}

func objectName(obj metav1.Object) string {
	if namespace := obj.GetNamespace(); namespace != "" {
		return namespace + "/" + obj.GetName()
	}
	return obj.GetName()
}
