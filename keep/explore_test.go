// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/reconciletest"
)

var plans = flag.Int("plans", 100, "how many plans TestExplore plays")

// A region has the truth of both sides.
type region struct {
	desired, actual map[string]string
	lost            string // a thing that was deleted although it was desired all the time
}

// TestExplore keeps a set in sync whatever fails, with a Lookup and without one, with Absent
// and without it. It never deletes what was desired all the time.
func TestExplore(t *testing.T) {
	for _, how := range []string{"Queue", "Queue Lookup Absent", "Run Absent", "Run Lookup", "ApplyPlan Lookup", "ApplyPlan Absent"} {
		t.Run(how, func(t *testing.T) {
			reconciletest.Explore(t, reconciletest.Scenario[string, *region]{
				World: func() *region {
					r := &region{desired: things(12), actual: things(12)}
					r.actual["t03"], r.actual["old"] = "0", "1"
					return r
				},
				Start: func(env *reconciletest.Env[string], r *region) { r.start(env, how) },
				Steps: func(s *reconciletest.Environment[string], r *region) {
					s.Advance(3 * time.Minute)
					r.desired["new"] = "1"
					delete(r.desired, "t04")
					s.Event("new")
					s.Advance(3 * time.Minute)
					if delete(r.desired, "t05"); strings.Contains(how, "Absent") {
						r.desired["t05"], r.desired["t06"] = gone, gone
					}
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

func (r *region) start(env *reconciletest.Env[string], how string) {
	s := &keep.Set[string, string, string]{
		Actual: func(ctx context.Context) (map[string]string, error) {
			return reconciletest.Read(ctx, env, "list actual", func() (map[string]string, error) { return maps.Clone(r.actual), nil })
		},
		Desired: func(ctx context.Context) (map[string]string, error) {
			return reconciletest.Read(ctx, env, "list desired", func() (map[string]string, error) { return maps.Clone(r.desired), nil })
		},
		InSync: func(desired, actual string) bool { return desired == actual },
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
		Period:     time.Minute,
		Resync:     -1,
		MaxDeleted: 0.25, // old, t04 and t05 leave at once if listings failed before
	}
	if strings.Contains(how, "Absent") {
		s.Absent = func(desired string) bool { return desired == gone }
	}
	if strings.Contains(how, "Lookup") {
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
	switch {
	case strings.HasPrefix(how, "Queue"):
		s.Queue = env.Queue
		env.Go(s)
		env.Start(&reconcile.Reconciler[string]{Reconcile: s.Reconcile})
	case strings.HasPrefix(how, "Run"):
		s.Reconciler = env.Watch(&reconcile.Reconciler[string]{})
		env.Go(s)
	default:
		s.DeleteAfter = 10 * time.Second
		poller := &reconcile.Poller[string]{
			Queue:  env.Queue,
			Period: time.Minute,
			GetItems: func(ctx context.Context) ([]string, error) {
				plan, err := s.Plan(ctx)
				if err == nil {
					err = s.ApplyPlan(ctx, plan, &reconcile.Reconciler[string]{Workers: 4, Retry: reconcile.Backoff(time.Second, time.Second).Limit(3)})
				}
				return nil, err
			},
		}
		env.Go(poller)
		env.Start(&reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error { poller.Trigger(); return nil }})
	}
}
