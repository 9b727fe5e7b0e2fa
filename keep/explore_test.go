// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/reconciletest"
)

var plans = flag.Int("plans", 300, "how many plans TestExplore plays")

// A region has the truth of both sides.
type region struct {
	desired, actual map[string]string
	lost            string // a thing that was deleted although it was desired all the time
}

// TestExplore keeps a set in sync whatever fails, with a Lookup and without one. It
// never deletes what was desired all the time.
func TestExplore(t *testing.T) {
	for _, lookup := range []bool{true, false} {
		t.Run(fmt.Sprintf("lookup=%v", lookup), func(t *testing.T) {
			reconciletest.Explore(t, reconciletest.Scenario[string, *region]{
				World: func() *region {
					r := &region{desired: things(12), actual: things(12)}
					r.actual["t03"], r.actual["old"] = "0", "1"
					return r
				},
				Start: func(env *reconciletest.Env[string], r *region) { r.start(env, lookup) },
				Steps: func(s *reconciletest.Environment[string], r *region) {
					s.Advance(3 * time.Minute)
					r.desired["new"] = "1"
					delete(r.desired, "t04")
					s.Event("new")
					s.Advance(3 * time.Minute)
					r.desired["t05"], r.desired["t06"] = gone, gone
					r.desired["t07"] = "2"
					s.Event("t07")
					s.Advance(3 * time.Minute)
					r.actual["t08"] = "drifted"
					delete(r.actual, "t09")
					s.Advance(10 * time.Minute)
				},
				State: func(r *region) string { return fmt.Sprint(r.actual) },
				Invariant: func(r *region) error {
					if r.lost != "" {
						return fmt.Errorf("%s was deleted", r.lost)
					}
					return nil
				},
				Plans: *plans,
			})
		})
	}
}

func (r *region) start(env *reconciletest.Env[string], lookup bool) {
	s := &keep.Set[string, string, string]{
		Queue: env.Queue,
		Actual: func(ctx context.Context) (map[string]string, error) {
			return reconciletest.Read(ctx, env, "list actual", func() (map[string]string, error) { return maps.Clone(r.actual), nil })
		},
		Desired: func(ctx context.Context) (map[string]string, error) {
			return reconciletest.Read(ctx, env, "list desired", func() (map[string]string, error) { return maps.Clone(r.desired), nil })
		},
		InSync: func(desired, actual string) bool { return desired == actual },
		Absent: func(desired string) bool { return desired == gone },
		Ensure: func(ctx context.Context, key, desired string) error {
			return env.Do(ctx, "put "+key, func() error { r.actual[key] = desired; return nil })
		},
		Delete: func(ctx context.Context, key, _ string) error {
			return env.Do(ctx, "delete "+key, func() error {
				if _, first := things(12)[key]; first && r.desired[key] != "" && r.desired[key] != gone {
					r.lost = key
				}
				delete(r.actual, key)
				return nil
			})
		},
		Period: time.Minute,
		Resync: -1,
	}
	if lookup {
		s.Lookup = func(ctx context.Context, key, _ string) (string, bool, error) {
			type answer struct {
				desired string
				ok      bool
			}
			a, err := reconciletest.Read(ctx, env, "look up "+key, func() (answer, error) {
				desired, ok := r.desired[key]
				return answer{desired, ok}, nil
			})
			return a.desired, a.ok, err
		}
	}
	env.Go(s)
	env.Start(&reconcile.Reconciler[string]{Reconcile: s.Reconcile})
}
