// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
			bubble(t, func(t *testing.T, a *arena) {
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
				a.idle(p, "10 s after it reached the server for the last time")
				time.Sleep(20 * time.Second)
				a.shared(q)
				a.forget()
				dead.Store(false)
				time.Sleep(time.Minute)
				a.shared(p, q)
			})
		})
	}
}

// TestExit has a run that does not end when the Lease is lost.
func TestExit(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
		var dead atomic.Bool
		var exits []time.Duration
		stuck := make(chan struct{})
		defer close(stuck)
		a.start("p", a.broken(&dead), func(context.Context, int) error {
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
	})
}

// TestLeaseOfAMemberIsDeleted has somebody remove a Lease: the member that it was of joins again.
// If it had the list, a member finds that it is not in a list, and does the same.
func TestLeaseOfAMemberIsDeleted(t *testing.T) {
	for _, list := range []bool{false, true} {
		t.Run(fmt.Sprint("list ", list), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *arena) {
				p := a.start("p", a.client(), nil)
				q := a.start("q", a.client(), nil)
				time.Sleep(time.Minute)
				before := p.shards.Members()
				name := "set"
				if !list {
					name = before[slices.IndexFunc(before, func(m string) bool { return strings.HasPrefix(m, "set-p-") })]
				}
				if err := a.client().Leases("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				a.shared(p, q)
				after := p.shards.Members()
				if slices.Equal(after, before) || !list && slices.Contains(after, name) {
					t.Errorf("members %q, before %s was removed %q, want that one has joined again, as another", after, name, before)
				}
			})
		})
	}
}

// TestLiveMembersRemovedFromTheList has somebody take two members that are alive off the list: the
// one that is left does not get what they have.
func TestLiveMembersRemovedFromTheList(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
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
		a.apart(5*time.Second, 10*time.Millisecond, p, q, r)
		time.Sleep(time.Minute)
		a.shared(p, q, r)
	})
}

// TestSuspendedProcessOwnsNothing has a process stand still, in the middle of becoming the owner,
// for so long that another one has taken all: it must not go on as if nothing
// had been.
func TestSuspendedProcessOwnsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
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
		// No turn of q falls on the instant at which p goes on: p joins again then, and q
		// could give it its share at once, which is right.
		time.Sleep(900 * time.Millisecond)
		q := a.start("q", a.client(), nil)
		time.Sleep(58100 * time.Millisecond)
		a.shared(q)
		time.Sleep(time.Second + time.Millisecond)
		a.idle(p, "after it stood still, and so does q")
	})
}

// TestLateListing has a listing of the Leases answered so late that a Lease in
// it looks as if it had run out, though its member has renewed it meanwhile.
func TestLateListing(t *testing.T) {
	every := func(period time.Duration) func(*shard.Shards[int]) {
		return func(s *shard.Shards[int]) { s.Period = period }
	}
	for n := range 10 { // in one of these comes a renewal
		t.Run(fmt.Sprint("listing ", n), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *arena) {
				late := a.client()
				lists := 0
				late.After = func(_ context.Context, verb string) error {
					if verb == "list" && time.Since(a.begin) > time.Minute {
						if lists++; lists == n+1 {
							time.Sleep(8 * time.Second) // less than the 10 after which q's own is lost
						}
					}
					return nil
				}
				p := a.start("p", a.client(), nil, every(9500*time.Millisecond))
				q := a.start("q", late, nil, every(time.Second))
				time.Sleep(time.Minute)
				a.shared(p, q)
				before := a.number()
				a.apart(2*time.Minute, 50*time.Millisecond, p, q)
				a.shared(p, q)
				if after := a.number(); after != before {
					t.Errorf("the list has the number %d, before that %d, want that nobody changed it: both are well", after, before)
				}
			})
		})
	}
}

// TestMemberReconnectsDuringTakeOver has a process reach the server again at about the time when
// another one finds that it is dead: at no instant do both own an item.
func TestMemberReconnectsDuringTakeOver(t *testing.T) {
	for at := 33 * time.Second; at < 41*time.Second; at += 500 * time.Millisecond {
		t.Run(fmt.Sprint("back at ", at), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *arena) {
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
				a.apart(90*time.Second, 50*time.Millisecond, p, q)
				a.shared(p, q)
			})
		})
	}
}
