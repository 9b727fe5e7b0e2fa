// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/explore"
)

// Each fault of the provider alone finds a mistake of loops like keepPool, in which the
// example finds none.
func TestFaultsOfAProvider(t *testing.T) {
	exists := func(i instance) bool { return i.state() != "deleting" }
	create := func(ctx context.Context, a api, name string, listed []instance) error {
		if slices.ContainsFunc(listed, exists) {
			return nil
		}
		_, err := a.create(ctx, name)
		return err
	}
	type once func(ctx context.Context, a api, name string, listed []instance) error // the instances of that name
	for _, c := range []struct {
		mistake string
		start   func() once
		plan    string
	}{
		{"it takes a failed instance for a good one", func() once { return create }, "call create web-0 #1: boot fails"},
		{"it creates an instance until that is listed", func() once { return create }, "call create web-0 #1: listed late"},
		{"it repeats a creation whose response was lost", func() once {
			return func(ctx context.Context, a api, name string, listed []instance) error {
				err := create(ctx, a, name, listed)
				if err != nil {
					err = create(ctx, a, name, listed)
				}
				return err
			}
		}, "call create web-0 #1: answer lost"},
		{"it takes one page for all", func() once { return create }, "call list #3: page missing"},
		{"it gives up after five errors in a row", func() once {
			failures := map[string]int{}
			return func(ctx context.Context, a api, name string, listed []instance) error {
				if failures[name] >= 5 {
					return nil
				}
				err := create(ctx, a, name, listed)
				if failures[name]++; err == nil {
					failures[name] = 0
				}
				return err
			}
		}, "call create web-0 #1: quota full"},
		{"it takes a repeated page for instances too many", func() once {
			return func(ctx context.Context, a api, name string, listed []instance) error {
				for _, i := range slices.DeleteFunc(listed[min(1, len(listed)):], func(i instance) bool { return !exists(i) }) {
					if err := a.delete(ctx, i.ID); err != nil {
						return err
					}
				}
				return create(ctx, a, name, listed)
			}
		}, "call list #3: page repeated"},
	} {
		s := pool(func(ctx context.Context, a api) error {
			once := c.start()
			for a.Step() {
				listed, err := a.list(ctx)
				for _, name := range a.desired {
					if err == nil {
						err = once(ctx, a, name, slices.DeleteFunc(slices.Clone(listed), func(i instance) bool { return i.Name != name }))
					}
				}
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
			}
			return nil
		})
		s.Steps = func(env *explore.Environment, p *provider) {
			p.desired = []string{"web-0", "web-1", "web-2"}
			env.Advance(10 * time.Minute)
		}
		place, fault, _ := strings.Cut(c.plan, ": ")
		s.Without = slices.DeleteFunc(append(explore.Faults(), s.CustomFaults...), func(f explore.Fault) bool { return string(f) == fault })
		r, err := explore.Search(t, s)
		if err != nil || r.Found == nil || !slices.Equal(r.Found.Plan, []string{c.plan}) {
			t.Errorf("%s: exploring finds %v, %v, want %s: %s", c.mistake, r.Found, err, place, fault)
		}
	}
}
