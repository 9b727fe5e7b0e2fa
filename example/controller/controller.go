// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller keeps the assets of a cloud in their desired state. It is the
// part to copy from: Reconcile, and what it needs.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
)

// A Cloud is the remote API, as [cloud.Fake] has it.
type Cloud interface {
	Get(ctx context.Context, id cloud.ID) (cloud.Asset, error)
	List(ctx context.Context, ids ...cloud.ID) ([]cloud.Asset, error)
	Create(ctx context.Context, id cloud.ID, spec cloud.Spec) (cloud.Asset, error)
	Update(ctx context.Context, id cloud.ID, spec cloud.Spec, version int64) error
	Delete(ctx context.Context, id cloud.ID) error
	Events(ctx context.Context) iter.Seq2[cloud.Event, error]
}

// A Controller keeps the assets of a cloud in their desired state. All fields are
// required, and must not be changed once it runs. All methods may be called from any
// goroutine.
//
// Buckets and keys share one queue and one Reconcile, because they depend on each
// other: a bucket on its key, and a key that is to be deleted on the buckets that still
// use it.
type Controller struct {
	Cloud Cloud

	// Desired returns the desired state of an asset, as it was listed last.
	Desired func(id cloud.ID) (spec cloud.Spec, desired bool)

	// Lookup reports whether an asset is desired now, by asking the source of the
	// desired state again. It is called before an asset is deleted.
	Lookup func(ctx context.Context, id cloud.ID) (desired bool, err error)

	Recheck  time.Duration // how often to check an asset that is in sync
	Patience time.Duration // how long to wait for an event before checking

	refs reconcile.Refs[cloud.ID, cloud.ID] // which assets depend on what

	mu      sync.Mutex         // guards the field below
	refused map[cloud.ID]error // the assets that are not retried, and why
}

// Reconcile does the next step for one asset, if there is one to do. It reads the
// actual state and does not depend on the event that caused the run: so it does the
// right thing after a lost event, an answer that never came, or a kill -9.
//
// After a step it asks to run again at once, to check whether the step worked. Only a
// check that finds nothing to do ends with the asset in sync.
func (c *Controller) Reconcile(ctx context.Context, id cloud.ID) error {
	desired, ok := c.Desired(id)
	c.refs.Set(id, needs(desired)...)

	actual, err := c.Cloud.Get(ctx, id)
	missing := errors.Is(err, cloud.ErrNotFound)
	switch {
	case missing && ok:
		return c.create(ctx, id, desired)
	case missing:
		return nil // neither desired nor there: the queue drops it
	case err != nil:
		return c.classify(id, err)
	case !ok:
		return c.delete(ctx, id)
	case actual.State == cloud.Creating:
		return c.await(actual)
	case actual.State == cloud.Failed:
		return c.clear(ctx, actual)
	case actual.Spec != desired:
		return c.update(ctx, actual, desired)
	}
	return reconcile.RecheckWithin(c.Recheck) // in sync
}

func (c *Controller) create(ctx context.Context, id cloud.ID, desired cloud.Spec) error {
	actual, err := c.Cloud.Create(ctx, id, desired)
	if err != nil {
		return c.classify(id, fmt.Errorf("creating: %w", err))
	}
	return c.await(actual)
}

// await waits for the end of a creation. The event that the asset is ready runs it
// sooner.
func (c *Controller) await(actual cloud.Asset) error {
	return fmt.Errorf("creating by %s: %w", actual.Operation, reconcile.RequeueWithin(c.Patience))
}

// clear deletes what is left of a creation that failed. The back-off is the pause
// before the next try.
func (c *Controller) clear(ctx context.Context, actual cloud.Asset) error {
	if err := c.Cloud.Delete(ctx, actual.ID); err != nil {
		return c.classify(actual.ID, err)
	}
	return fmt.Errorf("%s failed: %s", actual.Operation, actual.Reason)
}

func (c *Controller) update(ctx context.Context, actual cloud.Asset, desired cloud.Spec) error {
	// With the version, so that a change by another client since the check above is
	// not overwritten: the cloud refuses, and the next run checks again.
	if err := c.Cloud.Update(ctx, actual.ID, desired, actual.Version); err != nil {
		return c.classify(actual.ID, fmt.Errorf("updating: %w", err))
	}
	return fmt.Errorf("updating: %w", reconcile.RequeueWithin(0))
}

// delete deletes an asset that is not desired. A source that was read in a bad moment,
// such as a service that answered with an empty list, must not delete everything: so it
// is asked once more.
func (c *Controller) delete(ctx context.Context, id cloud.ID) error {
	switch desired, err := c.Lookup(ctx, id); {
	case err != nil:
		return fmt.Errorf("deleting: is it desired? %w", err)
	case desired:
		return fmt.Errorf("waiting, because it is desired after all: %w", reconcile.RequeueWithin(c.Patience))
	}
	if err := c.Cloud.Delete(ctx, id); err != nil {
		return c.classify(id, fmt.Errorf("deleting: %w", err))
	}
	return fmt.Errorf("deleting: %w", reconcile.RequeueWithin(0))
}

// classify decides what an error of the cloud means for the next run. An error that is
// not listed here is retried with back-off.
func (c *Controller) classify(id cloud.ID, err error) error {
	var answer *cloud.Error
	switch {
	case !errors.As(err, &answer):
		return err
	case answer.RetryAfter > 0:
		return fmt.Errorf("throttled, %w: %w", err, reconcile.RequeueAfter(answer.RetryAfter))
	case len(answer.Blocking) > 0:
		return c.wait(id, answer.Blocking)
	case answer.Final():
		return reconcile.Terminal(answer)
	}
	return err
}

// wait makes an asset wait for others: it runs again when one of them changes. An asset
// that waits for one that is not retried is not retried either.
func (c *Controller) wait(id cloud.ID, others []cloud.ID) error {
	c.refs.Set(id, others...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range others {
		if err := c.refused[other]; err != nil {
			return reconcile.Terminal(fmt.Errorf("it depends on %s, which failed: %w", other, err))
		}
	}
	// The change may have come just before refs was set: so it does not wait for ever.
	return fmt.Errorf("waiting for %s: %w", others[0], reconcile.RequeueWithin(c.Patience))
}

// OnResult is called after each run. It notes which assets are not retried.
func (c *Controller) OnResult(r reconcile.Result[cloud.ID]) {
	if r.Outcome == reconcile.Aborted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.refused, r.Item)
	if r.Outcome.Failed() && r.Outcome != reconcile.Retrying {
		if c.refused == nil {
			c.refused = map[cloud.ID]error{}
		}
		c.refused[r.Item] = r.Err
	}
}

// Pause returns for how long no run may call the cloud, because of the error of a run:
// the cloud has too much to do, or is down. After that one run tries it.
func Pause(err error) time.Duration {
	var answer *cloud.Error
	if errors.As(err, &answer) && (answer.Code == 429 || answer.Code == 503) {
		return cmp.Or(answer.RetryAfter, 10*time.Second)
	}
	return 0
}

// List returns the versions of all assets, also of those that are not desired:
// Reconcile deletes them.
func (c *Controller) List(ctx context.Context) (map[cloud.ID]int64, error) {
	assets, err := c.Cloud.List(ctx)
	versions := make(map[cloud.ID]int64, len(assets))
	for _, a := range assets {
		versions[a.ID] = a.Version
	}
	return versions, err
}

// Events returns a feeder that enqueues the assets that change, until the stream of
// events ends. At the beginning of each stream it calls connected, because the stream
// does not have the changes before that.
func (c *Controller) Events(connected func()) reconcile.Feeder[cloud.ID] {
	return func(ctx context.Context, q reconcile.Enqueuer[cloud.ID]) error {
		for event, err := range c.Cloud.Events(ctx) {
			switch {
			case err != nil:
				return err
			case event.Asset == cloud.ID{}:
				connected()
			default:
				q.Enqueue(event.Asset)
			}
		}
		return nil
	}
}

// WithDependants yields an asset that has changed, and those that depend on it.
func (c *Controller) WithDependants(id cloud.ID) iter.Seq[cloud.ID] {
	return func(yield func(cloud.ID) bool) {
		if !yield(id) {
			return
		}
		for dependant := range c.refs.Of(id) {
			if !yield(dependant) {
				return
			}
		}
	}
}

// needs lists the assets that must be ready before one with this spec.
func needs(spec cloud.Spec) []cloud.ID {
	if spec.Key == "" {
		return nil
	}
	return []cloud.ID{{Kind: cloud.Key, Name: spec.Key}}
}
