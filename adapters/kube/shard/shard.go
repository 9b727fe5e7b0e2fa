// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard shares items out among the processes of a set, so that each item
// has one owner at a time: also while processes come, go and die.
//
// The members of a set find each other by Leases. [Shards.Owns] is a predicate
// for [reconcile.Filter], [Shards.Queue] a queue that knows what is being handed
// over, and [Shards.Gained] a feeder for what a process became the owner of.
//
// # Deletions
//
// While an item changes hands it has no owner, and events about it go nowhere:
// Gained makes up for that: it yields the objects that exist afterwards. An object that was
// deleted meanwhile is not. So either have a finalizer on the objects, as with
// package finalizer, which keeps an object until its owner has cleaned up; or add
// a [reconcile.Poller] that lists what there is outside, in front of the same
// Filter, such as with kube.Orphans. A tracker.Tracker is not enough: what
// disappears while it has no owner is filtered out as well.
package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/lease"
)

// Shards is one process's part of a set. Items are of type T; they are shared
// out by a hash of their keys. When a member comes or goes, only the items that
// it gets, or had, change hands.
//
// Of the members, each renews a Lease of its own. One more Lease, with the name
// of the set, has the list of members, and a number that goes up with each
// change of it. What an item's old owner gives up, its new owner takes when all
// members have said that they follow the new list; each says so when its runs of
// items that it no longer owns have ended. A member that could not renew its
// Lease for Deadline ends all its runs; the others leave it out of the list when
// they have seen no renewal for Duration. So one item is never in two runs at
// once, provided that the clocks of the machines run at the same speed, that the
// queue of each Reconciler is one of Queue's, and that nobody deletes Leases
// by hand.
//
// While items change hands nobody runs them: for a few times Period if all
// members are well, and for Duration if one has died. While the API server is
// away for longer than Deadline nobody owns anything.
//
// Client and Name are required; zero is a good default for the rest.
// Set the fields before the first call of a method. Methods may be called from
// many goroutines.
type Shards[T comparable] struct {
	// Client is that of a clientset that nothing else uses, such as
	// kubernetes.Interface.CoordinationV1(). A clientset has one rate limiter: behind
	// the requests of the workers, those for the Leases come too late.
	Client    coordinationv1.LeasesGetter
	Namespace string // of the Leases; empty means that of the pod this process is in
	Name      string // of the set; the members' Leases are called Name-Identity-...

	// Identity names this member. It is part of a Lease's name, so it is of
	// lower case letters, digits and dashes. Empty means the host's name.
	Identity string

	// Key returns what the hash is of; nil means fmt.Sprint. All members have the
	// same.
	Key func(item T) string

	Duration time.Duration // how long a Lease is good for: whole seconds; 0 means 15 seconds
	Deadline time.Duration // when a member that could not renew its Lease ends its runs; 0 means two thirds of Duration
	Period   time.Duration // between renewals; 0 means two fifteenths of Duration

	// Grace is how long a run may go on when its item is handed over, before its
	// context ends; 0 means none. A Lease that is lost gives no grace.
	Grace time.Duration

	// Exit is called if a run has not returned though the Lease is about to run
	// out. It ends the process. Nil means to log the error and to exit with
	// status 1.
	Exit func(err error)

	Logger *slog.Logger // nil means reconcile.Logger(ctx) of Run: that of the Group, and outside of one slog.Default()

	mu      sync.Mutex // guards what follows
	running bool
	owned   *table     // nil means nothing
	gains   int        // how often there was more of it
	gained  [slots]int // when there was: the gains then
	news    chan struct{}
	flights map[any]*flight // of all queues
	members []string
	renewed time.Time     // before the last request that renewed our Lease
	fenced  bool          // our Lease is lost: nothing can be gained
	landed  chan struct{} // closed when the next run of what was given up has returned; nil if nobody waits
}

// A flight is an item that was taken and not yet given back.
type flight struct {
	slot int
	end  context.CancelCauseFunc // nil until it runs
	lost bool                    // its context is to end
}

// Owns reports whether this process owns an item now. It is for
// [reconcile.Filter]: what another one owns need not enter the queue.
func (s *Shards[T]) Owns(item T) bool {
	slot := slotOf(s.key(item))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned != nil && s.owned[slot]
}

// Members returns the names of the live members' Leases, as this one knows them.
// It is empty while this one is no member.
func (s *Shards[T]) Members() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.members)
}

// Gained returns a Feeder that enqueues, each time that this process has become
// the owner of more, those of all items that it did not own before: what
// happened to them meanwhile, nobody has told it. List returns all items, from
// an informer's cache, say; it is called from the feeder's goroutine. The items
// of an incomplete list come, and the rest is not asked for again.
func (s *Shards[T]) Gained(list func(ctx context.Context) ([]T, error)) reconcile.Feeder[T] {
	return func(ctx context.Context, q reconcile.Enqueuer[T]) error {
		if list == nil {
			return reconcile.Terminal(errors.New("shard: Gained needs a function, got nil"))
		}
		for seen := 0; ; {
			s.mu.Lock()
			gains, news := s.gains, s.newsLocked()
			s.mu.Unlock()
			if gains == seen {
				select {
				case <-ctx.Done():
					return nil
				case <-news:
					continue
				}
			}
			items, err := list(ctx)
			if ctx.Err() != nil {
				return nil
			}
			for _, item := range items {
				slot := slotOf(s.key(item))
				s.mu.Lock()
				ours := s.owned != nil && s.owned[slot] && s.gained[slot] > seen
				s.mu.Unlock()
				if ours {
					q.Enqueue(item)
				}
			}
			if err != nil {
				return fmt.Errorf("shard: list what was gained: %w", err)
			}
			seen = gains
		}
	}
}

// key returns what the hash of an item is of.
func (s *Shards[T]) key(item T) string {
	if s.Key != nil {
		return s.Key(item)
	}
	return fmt.Sprint(item)
}

func (s *Shards[T]) newsLocked() chan struct{} {
	if s.news == nil {
		s.news = make(chan struct{})
	}
	return s.news
}

// config returns the fields with their defaults.
func (s *Shards[T]) config(ctx context.Context) (lease.Config, error) {
	c, err := lease.Config{
		Client: s.Client, Namespace: s.Namespace, Name: s.Name, Identity: s.Identity,
		Duration: s.Duration, Deadline: s.Deadline, Period: s.Period, Exit: s.Exit, Logger: s.Logger,
	}.WithDefaults(ctx, "shard: Shards", 1)
	if err != nil {
		return c, err
	}
	if s.Identity == "" {
		c.Identity = strings.ToLower(c.Identity)
	}
	wrong := validation.IsDNS1123Subdomain(s.Name + "-" + incarnation(c.Identity))
	if wrong = append(wrong, validation.IsValidLabelValue(s.Name)...); len(wrong) > 0 {
		return c, reconcile.Terminal(fmt.Errorf("shard: Shards.Name %q and Identity %q make no name of a Lease, and the label of one: %s", s.Name, c.Identity, strings.Join(wrong, "; ")))
	}
	if s.Grace < 0 {
		return c, reconcile.Terminal(fmt.Errorf("shard: Shards.Grace is %v, want 0 or more", s.Grace))
	}
	return c, nil
}

// incarnation returns a name for a member that no other one has, not even the
// same process before.
func incarnation(identity string) string {
	return identity + "-" + strings.ToLower(rand.Text()[:8])
}
