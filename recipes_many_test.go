// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Feeders run on every replica and keep the queue warm; only the one that was
// elected reconciles.
func TestRecipeLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		events := make(chan string, 1)
		events <- "vm"
		elected := func(ctx context.Context) error {
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		var g reconcile.Group
		g.Add("events", reconcile.Feed(q, reconcile.FromChan(events)))
		g.Add("vms", reconcile.After(elected, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				happened.note("%s", item)
				return nil
			},
		}))
		time.AfterFunc(time.Second, func() {
			if n := q.Len(); n != 1 {
				t.Errorf("before the election %d items are ready, want 1", n)
			}
		})
		run(t, &g, time.Hour)

		happened.check(t, "1m0s vm")
	})
}

// Processes share the work when each keeps what it owns.
func TestRecipeShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := []string{"ant", "bee", "crow", "dog"}
		var got []string
		for shard := range 2 {
			q := reconcile.NewQueue[string]()
			mine := reconcile.Filter(q, func(item string) bool { return int(item[0])%2 == shard })
			for _, item := range events {
				mine.Enqueue(item)
			}
			for item := range q.All() {
				got = append(got, fmt.Sprintf("%d: %s", shard, item))
			}
		}
		if want := []string{"0: bee", "0: dog", "1: ant", "1: crow"}; !slices.Equal(got, want) {
			t.Errorf("shards %v, want %v", got, want)
		}
	})
}

// A change from one owner to another is an event for both; an owner that is
// named twice runs once.
func TestRecipeOldAndNew(t *testing.T) {
	type change struct{ Old, New string } // owners
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		owners := reconcile.Map(q, func(c change) iter.Seq[string] {
			return slices.Values([]string{c.Old, c.New})
		})
		owners.Enqueue(change{"alice", "bob"})
		owners.Enqueue(change{"bob", "bob"})

		var got []string
		for owner := range q.All() {
			got = append(got, owner)
		}
		if want := []string{"alice", "bob"}; !slices.Equal(got, want) {
			t.Errorf("owners enqueued: %v, want %v", got, want)
		}
	})
}

// Any number of sources feed one queue: here a watch for each of two kinds of
// things that belong to an item, and a poll that brings what no watch told of.
func TestRecipeManySources(t *testing.T) {
	type disk struct{ VM string }
	type address struct{ VM string }
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		disks, addresses := make(chan disk), make(chan address)

		var g reconcile.Group
		g.Add("disks", reconcile.Feed(
			reconcile.Map(q, func(d disk) iter.Seq[string] { return slices.Values([]string{d.VM}) }),
			reconcile.FromChan(disks)))
		g.Add("addresses", reconcile.Feed(
			reconcile.Map(q, func(a address) iter.Seq[string] { return slices.Values([]string{a.VM}) }),
			reconcile.FromChan(addresses)))
		g.Add("list", &reconcile.Poller[string]{
			Queue:    q,
			Period:   10 * time.Minute,
			GetItems: func(context.Context) ([]string, error) { return []string{"vm"}, nil },
		})
		g.Add("vms", &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, vm string) error {
				happened.note("%s", vm)
				return nil
			},
		})
		time.AfterFunc(1*time.Minute, func() { disks <- disk{"vm"} })
		time.AfterFunc(2*time.Minute, func() { addresses <- address{"vm"} })
		run(t, &g, 15*time.Minute)

		happened.check(t, "0s vm", "1m0s vm", "2m0s vm", "10m0s vm")
	})
}
