// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/reconkernel/reconcile/keep"
)

// A server is what a file of desired servers has.
type server struct {
	Size   string
	Absent bool
}

// A machine is what the provider lists.
type machine struct{ ID, Size string }

// A provider stands in for a cloud.
type provider struct {
	machines map[string]machine
	ensured  func() // called after each change by ensure; nil if there is none
}

func (p *provider) list(context.Context) (map[string]machine, error) {
	return maps.Clone(p.machines), nil
}

func (p *provider) ensure(_ context.Context, name string, s server) error {
	if m, ok := p.machines[name]; ok && m.Size == s.Size {
		return nil
	}
	fmt.Println("ensure", name)
	p.machines[name] = machine{ID: "i-" + name, Size: s.Size}
	if p.ensured != nil {
		p.ensured()
	}
	return nil
}

func (p *provider) delete(_ context.Context, name string, m machine) error {
	fmt.Println("delete", m.ID)
	delete(p.machines, name)
	return nil
}

// Example is a service that keeps servers.
func Example() {
	desired := func(context.Context) (map[string]server, error) {
		return map[string]server{"web": {Size: "s"}, "db": {Size: "l"}}, nil
	}
	cloud := &provider{machines: map[string]machine{}}

	servers := &keep.Set[string, server, machine]{
		Period:  time.Minute,
		Desired: desired,
		Actual:  cloud.list,
		InSync:  func(s server, m machine) bool { return s.Size == m.Size },
		Ensure:  cloud.ensure,
		Delete:  cloud.delete,
		Absent:  func(s server) bool { return s.Absent },
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cloud.ensured = func() {
		if len(cloud.machines) == 2 {
			cancel() // a service goes on
		}
	}
	if err := servers.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// ensure db
	// ensure web
}

// ExampleSet_Plan shows a plan, applies it, and then finds an empty file.
func ExampleSet_Plan() {
	desired := map[string]server{"web": {Size: "m"}, "db": {Absent: true}, "new": {Size: "s"}}
	cloud := &provider{machines: map[string]machine{"web": {"i-web", "s"}, "db": {"i-db", "l"}}}
	servers := &keep.Set[string, server, machine]{
		Desired: func(context.Context) (map[string]server, error) { return desired, nil },
		Actual:  cloud.list,
		InSync:  func(s server, m machine) bool { return s.Size == m.Size },
		Ensure:  cloud.ensure,
		Delete:  cloud.delete,
		Absent:  func(s server) bool { return s.Absent },
	}
	ctx := context.Background()
	plan, _ := servers.Plan(ctx)
	fmt.Println(plan)
	fmt.Println("applied:", servers.Apply(ctx, nil))

	desired = nil
	err := servers.Apply(ctx, nil)
	fmt.Println(err, errors.Is(err, keep.ErrTooMany))
	// Output:
	// + new
	// ~ web
	// - db
	// 1 to create, 1 to update, 1 to delete
	// ensure new
	// ensure web
	// delete i-db
	// applied: <nil>
	// keep: too many things would be deleted at once: 2, first [new web] true
}
