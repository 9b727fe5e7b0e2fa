// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/board"
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// An assetBoard holds what is wanted, and whether an asset cannot be.
type assetBoard = board.Board[cloud.ID, cloud.Spec]

// A controller makes the assets of a cloud what the board says is wanted. This
// file is the one to copy from: the rest of a service is its own affair.
//
// Buckets and keys share one queue and one Reconcile, because they depend on
// each other. What depends on what is in refs: a bucket on its key, and a key
// that is to go on the buckets that still use it.
type controller struct {
	cloud *cloud.Client
	board *assetBoard
	refs  reconcile.Refs[cloud.ID, cloud.ID]

	// wish looks up where the wishes are kept, not in what was read of them last,
	// whether an asset is wanted. It is asked before something is deleted.
	wish func(ctx context.Context, id cloud.ID) (wanted bool, err error)

	recheck  time.Duration // how often to look at an asset that is in sync
	patience time.Duration // how long to wait for an event before asking
}

// Reconcile does the next step for one asset, if there is one to do. It asks the
// cloud what is there, never what has happened: so it does the right thing
// after a lost event, an answer that never came, or a kill -9.
//
// After a step it asks to be run again at once, to look whether it worked. Only
// a look that finds nothing to do ends with "in sync".
func (c *controller) Reconcile(ctx context.Context, id cloud.ID) error {
	want, wanted := c.board.Wanted(id)
	c.refs.Set(id, needs(want)...)

	there, err := c.cloud.Get(ctx, id)
	missing := errors.Is(err, cloud.ErrNotFound)
	switch {
	case missing && wanted:
		return c.create(ctx, id, want)
	case missing:
		return nil // not wanted and not there: forget it
	case err != nil:
		return c.verdict(id, err)
	case !wanted:
		return c.remove(ctx, id)
	case there.State == cloud.Creating:
		return c.await(there)
	case there.State == cloud.Failed:
		return c.clear(ctx, there)
	case !same(there.Spec, want):
		return c.update(ctx, there, want)
	}
	return fmt.Errorf("%w: %w", board.InSync, reconcile.RecheckWithin(c.recheck))
}

func (c *controller) create(ctx context.Context, id cloud.ID, want cloud.Spec) error {
	there, err := c.cloud.Create(ctx, id, want)
	if err != nil {
		return c.verdict(id, fmt.Errorf("%w: %w", board.Creating, err))
	}
	reconcile.Logger(ctx).Info("creation has begun", "operation", there.Operation)
	return c.await(there)
}

// await waits for the end of a creation. The event that it is ready brings the
// asset back sooner.
func (c *controller) await(there cloud.Asset) error {
	return fmt.Errorf("%w, by %s: %w", board.Creating, there.Operation, reconcile.RequeueWithin(c.patience))
}

// clear removes what is left of a creation that failed. The back-off is the pause
// before the next try.
func (c *controller) clear(ctx context.Context, there cloud.Asset) error {
	if err := c.cloud.Delete(ctx, there.ID); err != nil {
		return c.verdict(there.ID, err)
	}
	return fmt.Errorf("%s failed: %s", there.Operation, there.Reason)
}

func (c *controller) update(ctx context.Context, there cloud.Asset, want cloud.Spec) error {
	// With the version, so that a change by another hand since the look above is
	// not overwritten unseen: the cloud refuses, and the next run looks again.
	if err := c.cloud.Update(ctx, there.ID, want, there.Version); err != nil {
		return c.verdict(there.ID, fmt.Errorf("%w: %w", board.Updating, err))
	}
	reconcile.Logger(ctx).Info("updated", "was", there.Spec, "is", want)
	return fmt.Errorf("%w: %w", board.Updating, reconcile.RequeueWithin(0))
}

// remove removes what nobody wants. Wishes that were read in a bad moment, from a file
// that was half written or a service that answered with an empty list, must not take
// everything away: so it looks the wish up once more.
func (c *controller) remove(ctx context.Context, id cloud.ID) error {
	switch wanted, err := c.wish(ctx, id); {
	case err != nil:
		return fmt.Errorf("%w: is it wanted? %w", board.Removing, err)
	case wanted:
		return fmt.Errorf("%w, it is wanted after all: %w", board.Waiting, reconcile.RequeueWithin(c.patience))
	}
	if err := c.cloud.Delete(ctx, id); err != nil {
		return c.verdict(id, fmt.Errorf("%w: %w", board.Removing, err))
	}
	reconcile.Logger(ctx).Info("removed")
	return fmt.Errorf("%w: %w", board.Removing, reconcile.RequeueWithin(0))
}

// verdict turns a bad answer of the cloud into what the loop is to do about it.
// What is not listed here is tried again with back-off.
func (c *controller) verdict(id cloud.ID, err error) error {
	var answer *cloud.Error
	switch {
	case !errors.As(err, &answer):
		return err
	case answer.RetryAfter > 0:
		return fmt.Errorf("%w, %w: %w", board.Throttled, err, reconcile.RequeueAfter(answer.RetryAfter))
	case len(answer.Blocking) > 0:
		return c.wait(id, answer.Blocking)
	case answer.Final():
		return reconcile.Terminal(answer)
	}
	return err
}

// pause says for how long nobody asks the cloud anything, because of what a run
// returned: it has too much to do, or is not there for anybody. After that one run
// looks whether it is there again.
func pause(err error) time.Duration {
	var answer *cloud.Error
	switch {
	case !errors.As(err, &answer):
		return 0
	case answer.Status == 429, answer.Status == 503:
		return cmp.Or(answer.RetryAfter, 10*time.Second)
	}
	return 0
}

// wait makes an asset wait for others: it runs again when one of them changes.
// What would wait for something that cannot be cannot be either.
func (c *controller) wait(id cloud.ID, others []cloud.ID) error {
	c.refs.Set(id, others...)
	for _, other := range others {
		if err := c.board.WhyNot(other); err != nil {
			return reconcile.Terminal(fmt.Errorf("it has to wait for %s, and that cannot be: %w", other, err))
		}
	}
	// The change may have come just before refs knew: so not for ever.
	return fmt.Errorf("%w for %s: %w", board.Waiting, others[0], reconcile.RequeueWithin(c.patience))
}

// result is told how each run ended.
func (c *controller) result(r reconcile.Result[cloud.ID]) {
	c.board.Result(r, slices.Collect(c.refs.Of(r.Item))...)
}

// list returns all that is there, also what is not wanted: Reconcile is asked
// about it, and removes it. The board compares.
func (c *controller) list(ctx context.Context) ([]cloud.ID, error) {
	keys, errKeys := c.cloud.List(ctx, cloud.Key)
	buckets, errBuckets := c.cloud.List(ctx, cloud.Bucket)
	all, err := slices.Concat(keys, buckets), errors.Join(errKeys, errBuckets)
	ids := make([]cloud.ID, len(all))
	for i, a := range all {
		ids[i] = a.ID
	}
	c.board.Listed(ids, func(i int, want cloud.Spec) bool { return same(all[i].Spec, want) }, err)
	return ids, err // what came counts, also if not all did
}

// feed passes on what the cloud says has changed, until the stream breaks.
// At the start of each stream it calls connected: what happened before it is
// not in the stream.
func (c *controller) feed(connected func()) reconcile.Feeder[cloud.ID] {
	return func(ctx context.Context, q reconcile.Enqueuer[cloud.ID]) error {
		for event, err := range c.cloud.Events(ctx) {
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

// withDependants yields an asset that changed, and those that depend on it.
func (c *controller) withDependants(id cloud.ID) iter.Seq[cloud.ID] {
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

// needs lists what an asset cannot be without.
func needs(spec cloud.Spec) []cloud.ID {
	if spec.Key == "" {
		return nil
	}
	return []cloud.ID{{Kind: cloud.Key, Name: spec.Key}}
}

// newBoard returns a board on which keys come before buckets.
func newBoard(queue *reconcile.Queue[cloud.ID]) *assetBoard {
	return board.New(queue, same, func(a, b cloud.ID) int {
		return cmp.Or(strings.Compare(b.Kind, a.Kind), strings.Compare(a.Name, b.Name))
	})
}

func same(a, b cloud.Spec) bool {
	return a.Region == b.Region && a.Size == b.Size && a.Key == b.Key && maps.Equal(a.Labels, b.Labels)
}
