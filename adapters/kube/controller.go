// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/supervise"
)

// A Controller is the usual case: a reconcile function for the objects of one
// kind, which is called when one of them changes, or something that it [Owns] or
// [Watches].
//
//	bucket := &kube.Controller[*Bucket]{Name: "buckets", Informer: buckets, Reconcile: r.Reconcile}
//	r.jobs = kube.Owns[*batchv1.Job](bucket, jobs, kube.OwnedBy{APIVersion: "example.com/v1", Kind: "Bucket"})
//	group.Add("informers", bucket.Informers())
//	group.Add("buckets", bucket) // or elect.Elect(config, bucket)
//
// It is a [reconcile.Runner]. Its Run makes the [Parts], which are the same that one
// makes by hand, and runs them until ctx is done; the next Run makes new ones. So each
// term of a leader has a queue of its own, and a process that waits has none.
//
// Objects are handed out as deep copies, so they may be changed. No run begins before
// the caches are whole, and none that would see less than what [Owned.Create] of an
// earlier one wrote.
//
// Informer and Reconcile (or ByName) are required; the zero value of every other
// field is a good default. Fields are set, and Owns and Watches called, before the
// first use; the methods may be called from any goroutine after that.
type Controller[O Object] struct {
	Name     string               // for logs, metrics and errors
	Informer cache.SharedInformer // of the kind; see [Controller.Informers]

	// Reconcile makes the actual state what obj asks for. It is what
	// [reconcile.Reconciler].Reconcile is, and returns what that may return.
	Reconcile func(ctx context.Context, obj O) error

	// Gone is called for a name that has no object, or one that Only does not let
	// through. Nil means that there is nothing to do: what the object owns, Kubernetes
	// removes.
	Gone func(ctx context.Context, name cache.ObjectName) error

	// ByName takes the place of Reconcile and Gone, as the Reconcile of a
	// finalizer.Guard whose Get is that of the Controller. It is called for a name that
	// has no object, but not for an object that Only does not let through.
	ByName func(ctx context.Context, name cache.ObjectName) error

	// Only and Changed are as those of a [Source]. Nil means all; then a run that
	// writes the status has one run more follow it, which finds nothing to do. With
	// ByName, Only is not asked about an object that is being deleted: it may have a
	// finalizer from the time before it was kept out.
	Only    func(obj O) bool
	Changed func(old, new O) bool

	Workers int // how many runs go on at once; 0 means 1

	// With, if it is not nil, is called in each Run with its parts, before they run:
	// to set what is left, as OnResult or Timeout of the Reconciler. In a term of
	// elect.Elect, a Queue that it sets in the Reconciler goes through elect.Held: runs of
	// any other do not end with the lease.
	With func(*Parts)

	others []other               // what it Owns and Watches
	err    error                 // of Owns
	runs   atomic.Pointer[Parts] // nil while it does not run
	ended  atomic.Pointer[error] // what the last Run returned
}

// An other is another kind that a Controller looks at.
type other struct {
	kind     string
	informer cache.SharedInformer
	keys     func(metav1.Object) iter.Seq[cache.ObjectName]
	seen     func(cache.ObjectName) error // nil for what it does not write
}

// Parts are what a Controller runs. They may be run as well in a Group of one's own.
type Parts struct {
	// Queue has the names of objects. Its Background is 20: what is listed first, and
	// resyncs, leave room for events.
	Queue *reconcile.Queue[cache.ObjectName]

	// Sources feed the queue: that of the kind first, whose Now is set, then those of
	// what it owns and watches.
	Sources []*Source[cache.ObjectName]

	// Reconciler works on the queue. Its Retry is that of [Retry].
	Reconciler *reconcile.Reconciler[cache.ObjectName]

	// Around, if it is not nil, returns what is run in place of the Reconciler, as the
	// method of an events.Recorder does. It is nil unless With sets it.
	Around func(reconcile.Runner) reconcile.Runner

	synced atomic.Bool
	going  sync.Map // of each run, a *going
}

// Parts returns new parts, and a [reconcile.Terminal] error if a field is missing or what is
// owned has no index.
func (c *Controller[O]) Parts() (*Parts, error) {
	err := c.err
	switch {
	case c.Informer == nil:
		err = errors.New("Controller.Informer is required, and nil")
	case c.Reconcile == nil && c.ByName == nil:
		err = errors.New("Controller.Reconcile is required, and nil")
	case c.ByName != nil && (c.Reconcile != nil || c.Gone != nil):
		err = errors.New("Controller.ByName takes the place of Reconcile and Gone, and they are set too")
	}
	if err != nil {
		return nil, reconcile.Terminal(fmt.Errorf("%s: %w", c.what(), err))
	}
	source := &Source[cache.ObjectName]{Name: cmp.Or(c.Name, "controller"), Informer: c.Informer, Keys: Name, Now: true}
	if c.Only != nil {
		source.Only = func(obj metav1.Object) bool { return c.lets(mustCopy[O](obj)) }
	}
	if c.Changed != nil {
		source.Changed = func(old, new metav1.Object) bool { return c.Changed(mustCopy[O](old), mustCopy[O](new)) }
	}
	p := &Parts{Queue: reconcile.NewQueue[cache.ObjectName](), Sources: []*Source[cache.ObjectName]{source}}
	p.Queue.Background = 20
	for _, o := range c.others {
		p.Sources = append(p.Sources, &Source[cache.ObjectName]{
			Name: fmt.Sprintf("%s of %s", o.kind, source.Name), Informer: o.informer, Keys: o.keys,
		})
	}
	p.Reconciler = &reconcile.Reconciler[cache.ObjectName]{
		Name: c.Name, Queue: p.Queue, Reconcile: c.reconcile, Workers: c.Workers, Retry: Retry(nil),
	}
	return p, nil
}

// Run runs the parts until ctx is done. A field that is missing is a
// [reconcile.Terminal] error. In a term of elect.Elect, runs end when the lease is
// lost, unless With has set another Queue of the Reconciler. It may be called again after
// it has returned.
func (c *Controller[O]) Run(ctx context.Context) error {
	p, err := c.Parts()
	if err != nil {
		c.ended.Store(&err)
		return err
	}
	p.Reconciler.Queue = held.Within(ctx, p.Queue) // before With, for metrics that look at it
	if c.With != nil {
		c.With(p)
	}
	p.Reconciler.Reconcile = p.timed(p.Reconciler.Reconcile)
	if !c.runs.CompareAndSwap(nil, p) {
		return reconcile.Terminal(fmt.Errorf("%s: Controller.Run goes on already", c.what()))
	}
	defer c.runs.Store(nil)
	err = p.Run(ctx)
	c.ended.Store(&err)
	return err
}

// Run runs the parts until ctx is done: each Source feeds the Queue, and when all have
// synced the Reconciler runs. A Reconciler without a Logger gets the [reconcile.Logger]
// of ctx.
func (p *Parts) Run(ctx context.Context) error {
	if p.Reconciler.Logger == nil {
		p.Reconciler.Logger = reconcile.Logger(ctx)
	}
	var group supervise.Group
	all := make([]interface {
		Synced(ctx context.Context) error
	}, len(p.Sources))
	for i, s := range p.Sources {
		all[i] = s
		group.Add("feed "+s.Name, reconcile.Feed(p.Queue, s.Feed))
	}
	var workers reconcile.Runner = p.Reconciler
	if p.Around != nil {
		workers = p.Around(workers)
	}
	group.Add("workers", supervise.After(func(ctx context.Context) error {
		err := AllSynced(all...)(ctx)
		p.synced.Store(err == nil)
		return err
	}, workers))
	return group.Run(ctx)
}

// Informers returns a Runner that runs the informers, each by [Run], and so may be one
// of many. It is a member of the Group around the Controller, not of a term: a process
// that waits has whole caches.
func (c *Controller[O]) Informers() reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		var group supervise.Group
		seen := make(map[cache.SharedInformer]bool)
		for _, informer := range c.informers() {
			if !seen[informer] {
				seen[informer] = true
				group.Add("informer", Run(informer))
			}
		}
		return group.Run(ctx)
	})
}

func (c *Controller[O]) informers() []cache.SharedInformer {
	informers := []cache.SharedInformer{c.Informer}
	for _, o := range c.others {
		informers = append(informers, o.informer)
	}
	return informers
}

// Get returns a copy of what the cache has of an object. One that is not there is an
// error that apierrors.IsNotFound knows. It does not block.
func (c *Controller[O]) Get(_ context.Context, name cache.ObjectName) (O, error) {
	return Get[O](c.Informer, name)
}

func (c *Controller[O]) reconcile(ctx context.Context, name cache.ObjectName) error {
	for _, o := range c.others {
		if o.seen == nil {
			continue
		}
		if err := o.seen(name); err != nil {
			return err
		}
	}
	if c.ByName != nil && c.Only == nil {
		return c.ByName(ctx, name)
	}
	obj, err := c.Get(ctx, name)
	isOut := err == nil && c.Only != nil && !c.lets(obj.DeepCopyObject().(O))
	switch {
	case c.ByName != nil && isOut:
		return nil
	case c.ByName != nil:
		return c.ByName(ctx, name)
	case apierrors.IsNotFound(err) || isOut:
		if c.Gone != nil {
			return c.Gone(ctx, name)
		}
		return nil
	case err != nil:
		return err
	}
	return c.Reconcile(ctx, obj)
}

// lets reports whether there are runs for obj, which it may change.
func (c *Controller[O]) lets(obj O) bool {
	return c.ByName != nil && obj.GetDeletionTimestamp() != nil || c.Only(obj)
}

func (c *Controller[O]) what() string { return "kube: controller " + cmp.Or(c.Name, "without a name") }

// Watches has c look at the objects of another kind: what happens to one is an event
// of the items that keys makes of it.
func Watches[P, O Object](c *Controller[O], informer cache.SharedInformer, keys func(obj P) iter.Seq[cache.ObjectName]) {
	c.others = append(c.others, other{kindOf[P](), informer, func(obj metav1.Object) iter.Seq[cache.ObjectName] {
		if _, nameOnly := obj.(*gone); nameOnly {
			return none[cache.ObjectName]
		}
		return keys(mustCopy[P](obj))
	}, nil})
}

func kindOf[O Object]() string {
	var none O
	return fmt.Sprintf("%T", none)
}

// An Owned finds and makes the objects of a kind that those of a [Controller] own. Its
// methods may be called from any goroutine.
type Owned[P Object] struct {
	by     OwnedBy
	store  cache.SharedIndexInformer
	find   func(owner cache.ObjectName) ([]P, error)
	writes writes[cache.ObjectName]
	spaces atomic.Pointer[bool] // whether the objects are in namespaces; nil while that is not known
}

// indexes makes the names of indexes different from each other.
var indexes atomic.Int64

// Owns has c look at the objects of another kind that its own own, as by says: what
// happens to one is an event of its owner. The informer gets an index for [Owned.Of].
func Owns[P, O Object](c *Controller[O], informer cache.SharedIndexInformer, by OwnedBy) *Owned[P] {
	o := &Owned[P]{by: by, store: informer, writes: writes[cache.ObjectName]{Informer: informer}}
	if informer == nil {
		c.err = errors.Join(c.err, fmt.Errorf("Owns of %s needs an informer, got nil", kindOf[P]()))
		return o
	}
	find, err := Index[P](informer, fmt.Sprintf("kube.Owns %d", indexes.Add(1)), by.Keys)
	o.find, c.err = find, errors.Join(c.err, err)
	c.others = append(c.others, other{kindOf[P](), informer, by.Keys, o.writes.Seen})
	return o
}

// Of returns copies of the objects of an owner that the cache has; not those of
// another one of its name. It returns an error when [Source.List] does. It does not block.
func (o *Owned[P]) Of(owner metav1.Object) ([]P, error) {
	if err := whole(o.store); err != nil {
		return nil, fmt.Errorf("%s of an owner: %w", kindOf[P](), err)
	}
	objs, err := o.find(cache.MetaObjectToName(owner))
	if err != nil {
		return nil, err
	}
	var owned []P
	for _, obj := range objs {
		for _, ref := range obj.GetOwnerReferences() {
			if ref.UID == owner.GetUID() {
				owned = append(owned, obj)
				break
			}
		}
	}
	return owned, nil
}

// Get returns a copy of an object of this kind that the cache has, whoever owns it. Also
// while the informer cannot read, it returns the object that was read last: see [Source.Ready].
func (o *Owned[P]) Get(namespace, name string) (P, error) {
	return Get[P](o.store, cache.NewObjectName(namespace, name))
}

// A Creator creates the objects of one kind in one namespace, as typed clients do.
type Creator[P Object] interface {
	Create(ctx context.Context, obj P, opts metav1.CreateOptions) (P, error)
}

// Create creates obj as owned by owner: it writes the reference, as [OwnedBy.Set] does,
// and the namespace of the owner if it has none. The Controller does not run the owner
// again until the cache has what was made.
//
// An owner in a namespace cannot own an object of a kind without namespaces: that is a
// [reconcile.Terminal] error. If neither the cache nor an earlier Create has shown that
// the kind has none, the object is made and, by the client's method Delete, removed again.
func (o *Owned[P]) Create(ctx context.Context, client Creator[P], owner metav1.Object, obj P) (P, error) {
	if owner.GetNamespace() != "" && !o.namespaced() {
		return obj, o.noNamespace(owner, obj)
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(owner.GetNamespace())
	}
	if err := o.by.Set(obj, owner); err != nil {
		return obj, err
	}
	created, err := client.Create(ctx, obj, metav1.CreateOptions{})
	if err != nil {
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "blockOwnerDeletion") {
			err = fmt.Errorf("the right to update the finalizers of %s is missing: %w", o.by.Kind, err)
		}
		return created, err
	}
	if owner.GetNamespace() != "" && created.GetNamespace() == "" {
		o.spaces.Store(new(bool))
		return created, errors.Join(o.noNamespace(owner, created), remove(ctx, client, created))
	}
	o.Wrote(owner, created)
	return created, nil
}

// namespaced reports whether the objects are in namespaces, or that is not known.
func (o *Owned[P]) namespaced() bool {
	if o.spaces.Load() == nil {
		for _, key := range o.store.GetStore().ListKeys() {
			namespaced := strings.Contains(key, "/")
			o.spaces.Store(&namespaced)
			break
		}
	}
	namespaced := o.spaces.Load()
	return namespaced == nil || *namespaced
}

func (o *Owned[P]) noNamespace(owner, obj metav1.Object) error {
	return reconcile.Terminal(fmt.Errorf("kube: %s %s cannot own %s, a %s: its kind has no namespaces, and the owner is in one; a Mark can name such an owner",
		o.by.Kind, nameOf(owner), obj.GetName(), kindOf[P]()))
}

// remove deletes an object that was just made.
func remove[P Object](ctx context.Context, client Creator[P], obj P) error {
	d, ok := client.(interface {
		Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	})
	if !ok {
		return reconcile.Terminal(fmt.Errorf("kube: %s was made and is still there: a %T has no method Delete", obj.GetName(), client))
	}
	uid := obj.GetUID()
	if err := d.Delete(ctx, obj.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		return reconcile.Terminal(fmt.Errorf("kube: %s was made and is still there: %w", obj.GetName(), err))
	}
	return nil
}

// Wrote has the Controller wait with the next run of owner until the cache has obj, as
// the API server returned it after another write; [Owned.Create] does so itself.
func (o *Owned[P]) Wrote(owner metav1.Object, obj P) {
	o.writes.Add(cache.MetaObjectToName(owner), obj)
}

// mustCopy returns a copy of an object of an informer. An informer of another kind ends
// the feeder that calls it, with an error.
func mustCopy[O Object](obj metav1.Object) O {
	o, err := copyOf[O](nameOf(obj), obj)
	if err != nil {
		panic(err)
	}
	return o
}
