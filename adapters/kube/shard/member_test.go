// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/shard"
)

// TestDeadMember has one that reaches the server no more, with runs that go on
// for as long as they may: the other gets all of it when these have ended.
func TestDeadMember(t *testing.T) {
	for _, hang := range []bool{false, true} {
		t.Run(fmt.Sprintf("hang %v", hang), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newArena(t)
				var dead atomic.Bool
				client := a.client()
				client.Before = func(ctx context.Context, _ string) error {
					switch {
					case dead.Load() && hang:
						<-ctx.Done()
						return ctx.Err()
					case dead.Load():
						return errBroken
					}
					return nil
				}
				long := func(ctx context.Context, _ int) error {
					<-ctx.Done()
					time.Sleep(3 * time.Second) // less than the 4 there are
					return ctx.Err()
				}
				p := a.start("p", client, long)
				q := a.start("q", a.client(), nil)
				time.Sleep(time.Minute)
				dead.Store(true)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for i := range items {
					if p.shards.Owns(i) {
						t.Fatalf("p owns %d, 10 s after it reached the server for the last time", i)
					}
				}
				time.Sleep(20 * time.Second)
				a.shared(q)
				a.forget()
				dead.Store(false)
				time.Sleep(time.Minute)
				a.shared(p, q)
				p.stop()
				q.stop()
			})
		})
	}
}

// TestExit has a run that does not end when the Lease is lost.
func TestExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		client := a.client()
		var dead atomic.Bool
		client.Before = func(context.Context, string) error {
			if dead.Load() {
				return errBroken
			}
			return nil
		}
		var exits []time.Duration
		stuck := make(chan struct{})
		p := a.start("p", client, func(context.Context, int) error {
			<-stuck
			return nil
		}, func(s *shard.Shards[int]) {
			s.Exit = func(err error) {
				if !errors.Is(err, reconcile.ErrLeaseLost) {
					t.Errorf("Exit(%v), want that the lease is lost", err)
				}
				exits = append(exits, time.Since(a.begin))
			}
		})
		time.Sleep(21 * time.Second) // the last renewal was at 20 s
		dead.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(exits) != 1 || exits[0] != 34*time.Second {
			t.Errorf("exits at %v, want one at 34s", exits)
		}
		close(stuck)
		p.stop()
	})
}

// TestRemovedLease has somebody remove a member's Lease: it joins again.
func TestRemovedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		p := a.start("p", a.client(), nil)
		q := a.start("q", a.client(), nil)
		time.Sleep(time.Minute)
		for _, name := range p.shards.Members() {
			if strings.HasPrefix(name, "set-p-") {
				if err := a.client().Leases("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Minute)
		a.shared(p, q)
		p.stop()
		q.stop()
	})
}

// TestRemovedList has somebody remove the list: its members give up what they
// have, and join again.
func TestRemovedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		p := a.start("p", a.client(), nil)
		q := a.start("q", a.client(), nil)
		time.Sleep(time.Minute)
		before := fmt.Sprint(p.shards.Members())
		if err := a.client().Leases("default").Delete(t.Context(), "set", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		a.shared(p, q)
		if after := fmt.Sprint(p.shards.Members()); after == before {
			t.Errorf("members %v, want that they have joined again, as others", after)
		}
		p.stop()
		q.stop()
	})
}

// TestWrongList has somebody take two members that are alive off the list: the
// one that is left does not get what they have.
func TestWrongList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		often := func(s *shard.Shards[int]) { s.Period = 100 * time.Millisecond }
		p := a.start("p", a.client(), nil)
		q := a.start("q", a.client(), nil)
		r := a.start("r", a.client(), nil, often)
		time.Sleep(time.Minute + 10*time.Millisecond) // p and q have just looked
		a.shared(p, q, r)
		leases := a.client().Leases("default")
		lease, err := leases.Get(t.Context(), "set", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.shards.Members() {
			if strings.HasPrefix(name, "set-r-") {
				lease.Annotations["reconcile-shard-members"] = name
			}
		}
		*lease.Spec.LeaseTransitions++
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			for item := range items {
				if r.shards.Owns(item) && (p.shards.Owns(item) || q.shards.Owns(item)) {
					t.Fatalf("at %v r owns %d, and so does another one", time.Since(a.begin), item)
				}
			}
		}
		time.Sleep(time.Minute)
		a.shared(p, q, r)
		p.stop()
		q.stop()
		r.stop()
	})
}

// TestSuspended has a process stand still, in the middle of becoming the owner,
// for so long that another one has taken all: it must not go on as if nothing
// had been.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		client := a.client()
		lists := 0
		client.After = func(_ context.Context, verb string) error {
			if verb == "list" {
				if lists++; lists == 3 { // on which it would take what it is given
					time.Sleep(time.Minute)
				}
			}
			return nil
		}
		p := a.start("p", client, nil)
		time.Sleep(time.Second)
		q := a.start("q", a.client(), nil)
		time.Sleep(58 * time.Second)
		a.shared(q)
		time.Sleep(time.Second + time.Millisecond)
		for item := range items {
			if p.shards.Owns(item) {
				t.Fatalf("p owns %d after it stood still, and so does q", item)
			}
		}
		p.stop()
		q.stop()
	})
}

// TestComesBack has a process reach the server again at about the time when
// another one finds that it is dead: at no instant do both own an item.
func TestComesBack(t *testing.T) {
	for at := 33 * time.Second; at < 41*time.Second; at += 500 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(t)
			away, slow := a.client(), a.client()
			away.Before = func(context.Context, string) error {
				if now := time.Since(a.begin); now > 21*time.Second && now < at {
					return errBroken
				}
				return nil
			}
			slow.After = func(_ context.Context, verb string) error {
				if now := time.Since(a.begin); verb == "list" && now > 33*time.Second && now < time.Minute {
					time.Sleep(3 * time.Second)
				}
				return nil
			}
			often := func(s *shard.Shards[int]) { s.Period = 500 * time.Millisecond }
			p := a.start("p", away, nil, often)
			q := a.start("q", slow, nil)
			for time.Since(a.begin) < 90*time.Second {
				time.Sleep(50 * time.Millisecond)
				for item := range 20 {
					if p.shards.Owns(item) && q.shards.Owns(item) {
						t.Fatalf("back at %v: at %v both own %d", at, time.Since(a.begin), item)
					}
				}
			}
			a.shared(p, q)
			p.stop()
			q.stop()
		})
	}
}
