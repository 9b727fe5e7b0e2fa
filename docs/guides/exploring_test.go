// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/reconciletest"
)

// A network is the fake: which machines are desired, which addresses are
// reserved and for whom, and which are published under the name of a machine.
type network struct {
	desired  map[string]bool
	reserved map[string]string // address to machine, or "" if nobody has said
	records  map[string]string // machine to address
}

// state is what must be the same after each plan: who has what, but not which one.
func (n *network) state() string {
	var b strings.Builder
	for _, machine := range slices.Sorted(maps.Keys(n.records)) {
		_, reserved := n.reserved[n.records[machine]]
		fmt.Fprintf(&b, "%s is published, its address is reserved: %t\n", machine, reserved)
	}
	fmt.Fprintf(&b, "reserved addresses: %d\n", len(n.reserved))
	return b.String()
}

func (n *network) free() string {
	for i := 1; ; i++ {
		address := fmt.Sprintf("10.0.0.%d", i)
		if _, taken := n.reserved[address]; !taken {
			return address
		}
	}
}

// A client is how a process reaches the network.
type client struct {
	env *reconciletest.Env[string]
	net *network
}

func (c client) lookup(ctx context.Context, machine string) (string, error) {
	return reconciletest.Read(ctx, c.env, "lookup "+machine, func() (string, error) {
		return c.net.records[machine], nil
	})
}

func (c client) publish(ctx context.Context, machine, address string) error {
	return c.env.Do(ctx, "publish "+machine, func() error {
		c.net.records[machine] = address
		return nil
	})
}

func (c client) withdraw(ctx context.Context, machine string) error {
	return c.env.Do(ctx, "withdraw "+machine, func() error {
		delete(c.net.records, machine)
		return nil
	})
}

func (c client) reserve(ctx context.Context) (address string, err error) {
	err = c.env.Do(ctx, "reserve", func() error {
		address = c.net.free()
		c.net.reserved[address] = ""
		return nil
	})
	return address, err
}

func (c client) release(ctx context.Context, address string) error {
	return c.env.Do(ctx, "release "+address, func() error {
		delete(c.net.reserved, address)
		return nil
	})
}

// reserveFor reserves an address for a machine, or returns the one that it has.
func (c client) reserveFor(ctx context.Context, machine string) (address string, err error) {
	err = c.env.Do(ctx, "reserve for "+machine, func() error {
		for have, owner := range c.net.reserved {
			if owner == machine {
				address = have
				return nil
			}
		}
		address = c.net.free()
		c.net.reserved[address] = machine
		return nil
	})
	return address, err
}

// releaseOf releases what is reserved for a machine.
func (c client) releaseOf(ctx context.Context, machine string) error {
	return c.env.Do(ctx, "release of "+machine, func() error {
		maps.DeleteFunc(c.net.reserved, func(_, owner string) bool { return owner == machine })
		return nil
	})
}

func (c client) wanted(_ context.Context, machine string) bool { return c.net.desired[machine] }

// reconcile gives a machine an address and publishes it, or takes both away.
func (c client) reconcile(ctx context.Context, machine string) error {
	address, err := c.lookup(ctx, machine)
	switch {
	case err != nil:
		return err
	case c.wanted(ctx, machine) && address == "":
		if address, err = c.reserve(ctx); err != nil {
			return err
		}
		return c.publish(ctx, machine, address)
	case !c.wanted(ctx, machine) && address != "":
		if err := c.withdraw(ctx, machine); err != nil {
			return err
		}
		return c.release(ctx, address)
	}
	return nil
}

// correct reserves an address with its machine as the owner, so that a later run finds it.
// It withdraws the published address last, because that is the record of the work left.
func (c client) correct(ctx context.Context, machine string) error {
	published, err := c.lookup(ctx, machine)
	switch {
	case err != nil:
		return err
	case c.wanted(ctx, machine):
		address, err := c.reserveFor(ctx, machine)
		if err != nil || address == published {
			return err
		}
		return c.publish(ctx, machine, address)
	}
	if err := c.releaseOf(ctx, machine); err != nil {
		return err
	}
	return c.withdraw(ctx, machine)
}

// list returns the desired machines, those published, and those with a reservation.
func (n *network) list(context.Context) ([]string, error) {
	machines := slices.Concat(slices.Sorted(maps.Keys(n.desired)), slices.Sorted(maps.Keys(n.records)), slices.Sorted(maps.Values(n.reserved)))
	return slices.DeleteFunc(machines, func(m string) bool { return m == "" }), nil
}

func scenario(reconcileOf func(client) func(context.Context, string) error) reconciletest.Scenario[string, *network] {
	return reconciletest.Scenario[string, *network]{
		World: func() *network {
			return &network{desired: map[string]bool{}, reserved: map[string]string{}, records: map[string]string{}}
		},
		Start: func(env *reconciletest.Env[string], n *network) {
			env.Start(&reconcile.Reconciler[string]{Reconcile: reconcileOf(client{env, n}), Timeout: 30 * time.Second})
			env.Go(&reconcile.Poller[string]{Queue: env.Queue, GetItems: n.list, Period: 10 * time.Minute})
		},
		Steps: func(s *reconciletest.Environment[string], n *network) {
			n.desired["web"] = true
			s.Event("web")
			s.Advance(time.Minute)
			delete(n.desired, "web")
			n.desired["db"] = true
			s.Event("web")
			s.Event("db")
		},
		State: (*network).state,
		Plans: 300,
	}
}

// asFaulty in the environment lets TestAddresses find what the guide shows.
const asFaulty = "RECONCILE_GUIDES_AS_FAULTY"

func TestAddresses(t *testing.T) {
	of := func(c client) func(context.Context, string) error { return c.correct }
	if os.Getenv(asFaulty) != "" {
		of = func(c client) func(context.Context, string) error { return c.reconcile }
	}
	reconciletest.Explore(t, scenario(of))
}

// TestAddressesStory compares what the guide shows with what a test of the faulty
// controller prints.
func TestAddressesStory(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestAddresses$")
	cmd.Env = append(os.Environ(), asFaulty+"=yes")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("the test of the faulty controller passes")
	}
	_, story, _ := strings.Cut(strings.ReplaceAll(string(out), "\n        ", "\n"), "_test.go:")
	want := `
it fails with one fault, found in plan 12:
	call reserve #1: answer lost
this happened:
	0s event web
	0s call lookup web
	0s call reserve  <== answer lost
	0s web retrying in 1s: explore: injected fault
	1s call lookup web
	1s call reserve
	1s call publish web
	1s web succeeded
	1m0s event web
	1m0s event db
	1m0s call lookup web
	1m0s call withdraw web
	1m0s call release 10.0.0.2
	1m0s web succeeded
	1m0s call lookup db
	1m0s call reserve
	1m0s call publish db
	1m0s db succeeded
	10m0s call lookup db
	10m0s db succeeded
	... 10 lines, in which nothing changes
and then:
	the world is not what it is without faults:
	- reserved addresses: 1  (without faults)
	+ reserved addresses: 2
to play this plan alone, set
	Replay: []string{"call reserve #1: answer lost"},
`
	if !strings.Contains(story, want[1:]) {
		t.Errorf("the test prints\n%s\nwant in it\n%s", out, want)
	}
}
