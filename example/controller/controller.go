// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller keeps the assets of a cloud in their desired state. A Set lists,
// compares and deletes safely. This file has the functions of the Set, and four things
// that a Set does not have: assets that depend on each other, creations that take time,
// events, and a pause while the cloud is down.
package controller

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/refs"
)

// A Cloud is the remote API, as [cloud.Fake] has it.
type Cloud interface {
	Get(ctx context.Context, id cloud.ID) (cloud.Asset, error)
	Page(ctx context.Context, after cloud.ID) (page []cloud.Asset, more bool, err error)
	Create(ctx context.Context, id cloud.ID, spec cloud.Spec) (cloud.Asset, error)
	Update(ctx context.Context, id cloud.ID, spec cloud.Spec, version int64) error
	Delete(ctx context.Context, id cloud.ID) error
	Events(ctx context.Context) iter.Seq2[cloud.Event, error]
}

// A Controller keeps the assets of a cloud in their desired state. All fields are
// required, and must not be changed once it runs. All methods may be called from any
// goroutine.
//
// Buckets and keys share one Set, because they depend on each other: a bucket on its key,
// and a key that is to be deleted on the buckets that still use it.
type Controller struct {
	Cloud    Cloud
	Patience time.Duration // how long to wait for an event before checking

	refs refs.Refs[cloud.ID, cloud.ID] // which assets depend on what

	mu         sync.Mutex         // guards the fields below
	notRetried map[cloud.ID]error // the assets that are not retried, and why
	refused    int                // reads in a row with an answer that concerns all assets
}

// A Set is a set of assets.
type Set = keep.Set[cloud.ID, cloud.Spec, cloud.Asset]

// Set returns the Set of all assets. It needs the functions for the desired state, and a
// Period. A change of an asset concerns the assets that depend on it, too.
func (c *Controller) Set(queue reconcile.Enqueuer[cloud.ID]) *Set {
	return &Set{
		Queue:  reconcile.Map(queue, c.WithDependants),
		Actual: c.list,
		InSync: func(desired cloud.Spec, actual cloud.Asset) bool {
			return actual.Spec == desired && actual.State == cloud.Ready
		},
		Ensure: c.ensure,
		Delete: c.delete,
	}
}

// list lists all assets. We are the only ones who use the cloud: otherwise it would leave
// out those that have no mark of ours.
func (c *Controller) list(ctx context.Context) (map[cloud.ID]cloud.Asset, error) {
	all := map[cloud.ID]cloud.Asset{}
	var last cloud.ID
	for more := true; more; {
		var page []cloud.Asset
		var err error
		if page, more, err = c.page(ctx, last); err != nil {
			return nil, err
		}
		for _, a := range page {
			all[a.ID], last = a, a.ID
		}
	}
	return all, nil
}

// page lists one page. It tries each page but the first up to five times in four seconds,
// because one page that fails would make the listing fail. If the first one fails, the Set
// lists again, at the latest after its Period.
func (c *Controller) page(ctx context.Context, after cloud.ID) (page []cloud.Asset, more bool, err error) {
	for try := 1; ; try++ {
		page, more, err = c.Cloud.Page(ctx, after)
		c.noteRead(err)
		if err == nil || after == (cloud.ID{}) || try == 5 {
			return page, more, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, false, err
		}
	}
}

// ensure does the next step for one asset, if there is one to do. It reads the actual
// state and does not depend on the listing that caused the run: so it does the right
// thing after a lost event, an answer that never came, or a kill -9.
//
// After a step it asks to run again at once, to check whether the step worked. Only a
// check that finds nothing to do ends with the asset in sync.
func (c *Controller) ensure(ctx context.Context, id cloud.ID, desired cloud.Spec) error {
	c.refs.Set(id, needs(desired)...)
	actual, err := c.Cloud.Get(ctx, id)
	c.noteRead(err)
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		return c.create(ctx, id, desired)
	case err != nil:
		return c.classify(id, err)
	case actual.State == cloud.Creating:
		return c.await(actual)
	case actual.State == cloud.Failed:
		return c.clear(ctx, actual)
	case actual.Spec != desired:
		return c.update(ctx, actual, desired)
	}
	return nil // in sync
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

// delete deletes an asset that is not desired.
func (c *Controller) delete(ctx context.Context, id cloud.ID, _ cloud.Asset) error {
	c.refs.Set(id)
	if err := c.Cloud.Delete(ctx, id); err != nil {
		return c.classify(id, fmt.Errorf("deleting: %w", err))
	}
	return nil
}

// classify decides what an error of the cloud means for the next run. An error that is
// not listed here is retried with back-off.
func (c *Controller) classify(id cloud.ID, err error) error {
	var answer *cloud.Error
	switch {
	case !errors.As(err, &answer):
		return err
	case answer.RetryAfter > 0:
		return fmt.Errorf("throttled, %w: %w", err, reconcile.RequeueAfter(min(answer.RetryAfter, maxPause)))
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
		if err := c.notRetried[other]; err != nil {
			return reconcile.Terminal(fmt.Errorf("it depends on %s, which failed: %w", other, err))
		}
	}
	// The change may have come just before refs was set: so it does not wait for ever.
	return fmt.Errorf("waiting for %s: %w", others[0], reconcile.RequeueWithin(c.Patience))
}

// OnResult is called after each run. It notes which assets are not retried.
func (c *Controller) OnResult(r reconcile.Result[cloud.ID]) {
	if r.Outcome == reconcile.OutcomeAborted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.notRetried, r.Item)
	if r.Outcome.Failed() && r.Outcome != reconcile.OutcomeRetrying {
		if c.notRetried == nil {
			c.notRetried = map[cloud.ID]error{}
		}
		c.notRetried[r.Item] = r.Err
	}
}

// maxPause is the longest time for which the cloud is not called. One call a minute does
// no harm, and a wrong Retry-After of a day stops nothing for a day.
const maxPause = time.Minute

// pauseOf returns for how long no run may call the cloud, because of an answer that
// concerns all assets: the cloud has too much to do, is down, or does not know us.
func pauseOf(err error) time.Duration {
	var answer *cloud.Error
	if !errors.As(err, &answer) {
		return 0
	}
	switch answer.Code {
	case 401, 403:
		return maxPause
	case 429, 503:
		if answer.RetryAfter > 0 {
			return min(answer.RetryAfter, maxPause)
		}
		return 10 * time.Second
	}
	return 0
}

// noteRead counts the reads and listings in a row that were refused. Answers to writes do
// not count: they may concern a quota, or one kind of call.
func (c *Controller) noteRead(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused++
	if pauseOf(err) == 0 {
		c.refused = 0
	}
}

// Pause is the Pause of a gate. After five refused reads in a row, no run may call the
// cloud for a while. After that one run tries it. A single refused call pauses nothing.
func (c *Controller) Pause(err error) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused < 5 {
		return 0
	}
	return pauseOf(err)
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
