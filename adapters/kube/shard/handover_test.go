// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/adapters/kube/shard"
)

// TestHandOver has members come and go: the others keep what they have, and get
// what is free, when its last run has ended.
func TestHandOver(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
		slow := func(ctx context.Context, _ int) error {
			time.Sleep(time.Second) // though its context ends
			return ctx.Err()
		}
		p := a.start("p", a.client(), slow)
		time.Sleep(time.Minute) // 200 runs of a second, 4 at a time
		a.shared(p)
		if _, n := a.ran(); n != items {
			t.Errorf("%d runs, want %d", n, items)
		}
		a.forget()
		q := a.start("q", a.client(), slow)
		for i := range items {
			p.queue.Enqueue(i) // runs go on when the items are handed over
		}
		time.Sleep(time.Minute)
		a.shared(p, q)
		if n, _ := a.ran(); n != items {
			t.Errorf("%d items had a run, want %d", n, items)
		}
		if n := len(p.shards.Members()); n != 2 {
			t.Errorf("%d members, want 2", n)
		}

		a.forget()
		before := make(map[int]bool)
		for i := range items {
			before[i] = p.shards.Owns(i)
		}
		r := a.start("r", a.client(), slow)
		time.Sleep(time.Minute)
		a.shared(p, q, r)
		for i := range items {
			if p.shards.Owns(i) && !before[i] {
				t.Errorf("p got %d, though only r came", i)
			}
		}
		a.mu.Lock()
		for i, who := range a.last {
			if who != "r" {
				t.Errorf("%s ran %d again, though only r came", who, i)
			}
		}
		a.mu.Unlock()

		theirs := 0
		for i := range items {
			if q.shards.Owns(i) {
				theirs++
			}
		}
		a.forget()
		q.stop()
		time.Sleep(10 * time.Second) // less than a Lease is good for: it was given up
		a.shared(p, r)
		time.Sleep(time.Minute)
		if n, _ := a.ran(); n != theirs || theirs == 0 {
			t.Errorf("%d items had a run after q has left, want the %d that it had", n, theirs)
		}
		p.stop()
		r.stop()
		list, err := a.client().Leases("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 3 {
			t.Errorf("%d Leases are left, want that of the set and of the last two: %v", len(list.Items), err)
		}
		for _, lease := range list.Items {
			if lease.Name != "set" && *lease.Spec.HolderIdentity != "" {
				t.Errorf("%s is held after all have left", lease.Name)
			}
		}
	})
}

// TestGrace lets runs go on for a while when their item is handed over.
func TestGrace(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
		a.workers = items
		var aborted atomic.Int64
		var ending atomic.Bool // the end of the group ends the runs that are left
		grace := func(s *shard.Shards[int]) { s.Grace = 30 * time.Second }
		p := a.start("p", a.client(), func(ctx context.Context, item int) error {
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				aborted.Add(1)
				if !errors.Is(context.Cause(ctx), reconcile.ErrLeaseLost) && !ending.Load() {
					t.Errorf("the context of %d ended: %v, want that the lease is lost", item, context.Cause(ctx))
				}
				return ctx.Err()
			}
		}, grace)
		time.Sleep(2 * time.Minute) // all had a run
		for item := range items {
			p.queue.Enqueue(item)
		}
		synctest.Wait()
		q := a.start("q", a.client(), nil)
		time.Sleep(25 * time.Second)
		a.idle(q, "while p has its grace")
		time.Sleep(15 * time.Second)
		a.shared(p, q)
		moved := int64(0)
		for item := range items {
			if q.shards.Owns(item) {
				moved++
			}
		}
		synctest.Wait()
		if n := aborted.Load(); n != moved || moved == 0 {
			t.Errorf("%d runs were aborted, want %d: those whose items went to q", n, moved)
		}
		ending.Store(true)
	})
}

// TestDeletedWhileHandedOver has objects deleted while their items have no owner:
// nobody is told. An object with a finalizer is still there, and comes with
// Gained; what a Poller of the outside finds is found after the hand-over too.
func TestDeletedWhileHandedOver(t *testing.T) {
	for _, test := range []struct {
		name                  string
		finalizer, poll, told bool
	}{
		{name: "neither"},
		{name: "finalizer", finalizer: true, told: true},
		{name: "poller", poll: true, told: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *arena) {
				a.workers = items
				p := a.start("p", a.client(), func(ctx context.Context, _ int) error {
					<-ctx.Done()
					time.Sleep(10 * time.Second)
					return nil
				})
				time.Sleep(time.Minute)
				q := a.start("q", a.client(), nil)
				time.Sleep(5 * time.Second)
				a.mu.Lock()
				deleted := make(map[int]bool)
				for item := range items {
					if !p.shards.Owns(item) {
						deleted[item] = true
					}
				}
				if !test.finalizer {
					a.gone = deleted
				}
				a.mu.Unlock()
				a.idle(q, "though p has not ended its runs")
				a.forget()
				for _, process := range []*process{p, q} {
					feed := reconcile.Filter(process.queue, process.shards.Owns)
					for item := range deleted {
						feed.Enqueue(item)
					}
					if test.poll {
						kubetest.Run(t, &reconcile.Poller[int]{
							Queue: feed, Period: time.Minute, Logger: quiet,
							GetItems: func(context.Context) ([]int, error) { return slices.Collect(maps.Keys(deleted)), nil },
						})
					}
				}
				time.Sleep(2 * time.Minute)
				a.shared(p, q)
				want := 0
				if test.told {
					want = len(deleted)
				}
				if got, _ := a.ran(); got != want || len(deleted) == 0 {
					t.Errorf("%d of %d deleted items had a run after that, want %d", got, len(deleted), want)
				}
			})
		})
	}
}

// TestMemberLeaves has a member leave that loses a request, or the answer to one: the
// others need not wait until its Lease has run out.
func TestMemberLeaves(t *testing.T) {
	lost := func(context.Context) error { return errBroken }
	hangs := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, test := range map[string]struct {
		before, after func(ctx context.Context) error // of the first update since it began to leave
		flight        bool                            // that update is on its way when it begins to leave
	}{
		"well":                            {},
		"request lost":                    {before: lost},
		"request hangs":                   {before: hangs},
		"answer lost":                     {after: lost},
		"answer hangs":                    {after: hangs},
		"renewal on its way, not written": {before: hangs, flight: true},
		"renewal on its way, written":     {after: hangs, flight: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *arena) {
				var armed atomic.Bool // the next update is the one
				flying := make(chan struct{})
				client := a.client()
				fault := func(f func(context.Context) error) func(context.Context, string) error {
					return func(ctx context.Context, verb string) error {
						if f == nil || verb != "update" || !armed.CompareAndSwap(true, false) {
							return nil
						}
						close(flying)
						return f(ctx)
					}
				}
				client.Before, client.After = fault(test.before), fault(test.after)
				p := a.start("p", client, nil)
				q := a.start("q", a.client(), nil)
				time.Sleep(time.Minute)
				armed.Store(true)
				if test.flight {
					<-flying
				}
				begin := time.Now()
				p.stop()
				time.Sleep(time.Until(begin.Add(8 * time.Second)))
				a.shared(q)
				if n := len(q.shards.Members()); n != 1 {
					t.Errorf("%d members, want the one that is left", n)
				}
			})
		})
	}
}
