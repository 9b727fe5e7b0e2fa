// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/reconciletest"
)

// A rack stands in for a cloud: which disks are desired, and which are attached.
type rack struct{ desired, attached map[string]bool }

// A rackClient is how a process reaches the rack.
type rackClient struct {
	env  *reconciletest.Env[string]
	rack *rack
}

func (c rackClient) reconcile(ctx context.Context, disk string) error {
	attached, err := reconciletest.Read(ctx, c.env, "get "+disk, func() (bool, error) {
		return c.rack.attached[disk], nil
	})
	if err != nil || attached == c.rack.desired[disk] {
		return err
	}
	if attached {
		return c.env.Do(ctx, "detach "+disk, func() error { delete(c.rack.attached, disk); return nil })
	}
	return c.env.Do(ctx, "attach "+disk, func() error { c.rack.attached[disk] = true; return nil })
}

// A whole test with injected faults: disks are attached and detached, whatever fails
// meanwhile. t is the *testing.T of the test.
func ExampleExplore() {
	reconciletest.Explore(t, reconciletest.Scenario[string, *rack]{
		World: func() *rack { return &rack{desired: map[string]bool{}, attached: map[string]bool{}} },
		Start: func(env *reconciletest.Env[string], r *rack) {
			c := rackClient{env, r}
			env.Start(&reconcile.Reconciler[string]{Reconcile: c.reconcile, Timeout: time.Minute})
			env.Go(&reconcile.Poller[string]{Queue: env.Queue, Period: 10 * time.Minute, GetItems: func(context.Context) ([]string, error) {
				return slices.Sorted(maps.Keys(r.desired)), nil
			}})
		},
		Steps: func(s *reconciletest.Environment[string], r *rack) {
			r.desired["disk-1"] = true
			s.Event("disk-1")
			s.Advance(time.Minute)
			r.desired["disk-1"] = false
			s.Event("disk-1")
		},
		State: func(r *rack) string { return fmt.Sprint(r.attached) },
		Plans: 200,
	})
}
