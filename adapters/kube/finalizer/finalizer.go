// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package finalizer wraps a reconcile function so that what it made outside of
// Kubernetes is taken away before its object vanishes.
//
// A [Guard] adds a finalizer before the first outside effect, and removes it
// after a clean-up that succeeded. It never touches the finalizers of others.
//
// The package imports no client: typed, dynamic and metadata clients all fit
// [object.Client].
package finalizer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/outcome"
	"github.com/reconkernel/reconcile/adapters/kube/object"
)

// A Guard is a reconcile function for objects with a finalizer: its Reconcile
// is what a [reconcile.Reconciler] calls. Items are of type T, and their
// objects of type O, a pointer.
//
//	object                            what is called
//	not there                         Gone
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
// # Separate functions
//
// Most callers set Ensure and Clean alone. Who wants to tell the cases apart
// sets New, Known or Changed; the one that fits is called instead of Ensure.
//
// New is called until it has succeeded once, also over restarts: up to then
// the object has the finalizer Name-pending, and from then on Name. Changed is
// called when this process has handled another version of the object, and
// until it succeeded. Known is called otherwise: for the first sight of an
// object in this process, and when there is nothing new about it, as after a
// resync. A version is the generation, or the resource version if the kind has
// no generations. A Guard that has one of the three remembers a few words for
// each item; without them it remembers nothing but what it has just cleaned.
//
// The zero Guard is not usable: Name, Get, Client, Clean, and Ensure or New are
// required. The fields are not to be changed once Reconcile was called; it may
// be called from many goroutines, though not for one item at a time.
type Guard[T comparable, O metav1.Object] struct {
	// Name is our finalizer: a domain, a slash and a name, such as
	// example.com/bucket. See [NameOf].
	Name string

	// Get returns the object of an item, perhaps from a cache. If there is none,
	// it returns an error that apierrors.IsNotFound knows.
	Get func(ctx context.Context, item T) (O, error)

	// Client returns the client for the object of an item.
	Client func(item T) object.Client[O]

	// Ensure makes outside what the object asks for. It is given the object with
	// our finalizer, and does not change it.
	Ensure func(ctx context.Context, obj O) error

	// Clean takes away what Ensure, or New, may have made, all of it or a part.
	Clean func(ctx context.Context, obj O) error

	// Gone is called for an item that has no object. It may be nil.
	Gone func(ctx context.Context, item T) error

	New, Known, Changed func(ctx context.Context, obj O) error // nil means Ensure

	mu       sync.Mutex // guards what follows
	memories map[T]memory
}

// A memory is what a Guard knows of the object of an item.
type memory struct {
	uid     types.UID
	version string // handled last; "" if none
	created bool   // New succeeded
	recheck error  // what it returned: nil, or when to look again
	cleaned bool   // Clean succeeded
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
		case apierrors.IsNotFound(err):
			if attempt == 1 { // else the cache may still show it for a while
				g.forget(item)
			}
			if g.Gone != nil {
				return g.Gone(ctx, item)
			}
			return nil
		case err != nil:
			return fmt.Errorf("get the object: %w", err)
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
	m := g.recall(item, obj.GetUID())
	has := func(name string) bool { return slices.Contains(obj.GetFinalizers(), name) }
	switch {
	case obj.GetDeletionTimestamp() != nil && !has(g.Name) && !has(g.pending()):
		return nil
	case obj.GetDeletionTimestamp() != nil:
		if !m.cleaned {
			if err := g.Clean(ctx, obj); outcome.Of(err) != reconcile.Succeeded {
				return err
			}
			m.cleaned = true
			g.remember(item, m)
		}
		_, err := g.finalize(ctx, item, obj, "")
		return err
	case m.cleaned:
		return nil // the cache lags far behind: this object is on its way out
	case has(g.Name):
		return g.known(ctx, item, obj, m)
	case g.New == nil:
		obj, err := g.finalize(ctx, item, obj, g.Name)
		if err != nil {
			return err
		}
		return g.call(ctx, item, obj, m, g.Ensure)
	}
	return g.create(ctx, item, obj, m)
}

// create handles an object that New was not yet done for.
func (g *Guard[T, O]) create(ctx context.Context, item T, obj O, m memory) error {
	if !slices.Contains(obj.GetFinalizers(), g.pending()) {
		m.created = false // whoever took our finalizer away wants to see it made
		var err error
		if obj, err = g.finalize(ctx, item, obj, g.pending()); err != nil {
			return err
		}
	}
	if !m.created {
		err := g.New(ctx, obj)
		if outcome.Of(err) != reconcile.Succeeded {
			return err
		}
		m.created, m.recheck = true, err
		m.version = version(obj)
		g.remember(item, m)
	}
	seen := m.version == version(obj)
	obj, err := g.finalize(ctx, item, obj, g.Name)
	if err != nil {
		return err
	}
	recheck := m.recheck
	m.recheck = nil
	if !seen { // it changed after New had seen it
		return cmp.Or(g.known(ctx, item, obj, m), recheck)
	}
	m.version = version(obj)
	g.remember(item, m)
	return recheck
}

// known handles an object that has our finalizer.
func (g *Guard[T, O]) known(ctx context.Context, item T, obj O, m memory) error {
	f := g.Known
	if m.version != "" && m.version != version(obj) {
		f = g.Changed
	}
	return g.call(ctx, item, obj, m, f)
}

// call calls f, or else Ensure, and takes note of the version it has handled.
func (g *Guard[T, O]) call(ctx context.Context, item T, obj O, m memory, f func(context.Context, O) error) error {
	if f == nil {
		f = g.Ensure
	}
	var err error
	if f != nil {
		if err = f(ctx, obj); outcome.Of(err) != reconcile.Succeeded {
			return err
		}
	}
	if g.New != nil || g.Known != nil || g.Changed != nil {
		m.version = version(obj)
		g.remember(item, m)
	}
	return err
}

// finalize gives obj the finalizer with the given name, if it is not empty, and
// takes away all others of ours. It returns the object as it is then.
func (g *Guard[T, O]) finalize(ctx context.Context, item T, obj O, name string) (O, error) {
	list := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return f == g.Name || f == g.pending()
	})
	what := "remove finalizer " + g.Name + " from"
	if name != "" {
		list = append(list, name)
		what = "add finalizer " + name + " to"
	}
	if list == nil {
		list = []string{}
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

func (g *Guard[T, O]) pending() string { return g.Name + "-pending" }

func (g *Guard[T, O]) check() error {
	switch {
	case g.Get == nil:
		return errors.New("finalizer: Guard.Get is required, and nil")
	case g.Client == nil:
		return errors.New("finalizer: Guard.Client is required, and nil")
	case g.Clean == nil:
		return errors.New("finalizer: Guard.Clean is required, and nil")
	case g.Ensure == nil && g.New == nil:
		return errors.New("finalizer: Guard.Ensure is required, and nil; or else New")
	}
	return checkName(g.Name)
}

// checkName returns an error if the server would not take a finalizer.
func checkName(name string) error {
	if !strings.Contains(name, "/") {
		return fmt.Errorf("finalizer: Guard.Name is %q, want a domain, a slash and a name, such as example.com/bucket", name)
	}
	if wrong := validation.IsQualifiedName(name + "-pending"); len(wrong) > 0 {
		return fmt.Errorf("finalizer: Guard.Name is %q, want a name such as example.com/bucket that can take the ending -pending: %s", name, strings.Join(wrong, "; "))
	}
	return nil
}

func (g *Guard[T, O]) recall(item T, uid types.UID) memory {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.memories[item]; m.uid == uid {
		return m
	}
	return memory{uid: uid}
}

func (g *Guard[T, O]) remember(item T, m memory) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.memories == nil {
		g.memories = make(map[T]memory)
	}
	g.memories[item] = m
}

func (g *Guard[T, O]) forget(item T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.memories, item)
}

// version returns what changes when the object asks for something else.
func version(obj metav1.Object) string {
	if generation := obj.GetGeneration(); generation != 0 {
		return strconv.FormatInt(generation, 10)
	}
	return obj.GetResourceVersion()
}

func objectName(obj metav1.Object) string {
	if namespace := obj.GetNamespace(); namespace != "" {
		return namespace + "/" + obj.GetName()
	}
	return obj.GetName()
}
