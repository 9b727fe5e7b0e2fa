// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// One fault finds a controller that takes a failed read at its start for an empty shelf, if
// Steps has it stop and start again.
func TestRedeploy(t *testing.T) {
	scenario := func(redeploy bool) Scenario[*shelf] {
		s := plain()
		s.Start = func(proc *Process, w *shelf) {
			proc.Go(func(ctx context.Context) error { <-ctx.Done(); proc.Note("its context ends"); return nil })
			known := false
			loop(proc, 10*time.Minute, func(ctx context.Context) error {
				c := client{proc, w}
				if !known {
					if is, err := c.get(ctx, "a"); err != nil || is == "" {
						w.made++ // it makes another one
					}
					known = true
				}
				return c.put(ctx, "a", "1")
			})
		}
		s.Steps = func(env *Environment, w *shelf) {
			w.desired["a"] = "1"
			env.Advance(time.Hour)
			if redeploy {
				env.Redeploy()
			}
			env.Advance(time.Hour)
		}
		s.Final = func(w *shelf) error {
			if w.made > 1 {
				return errBoom
			}
			return nil
		}
		s.Without = []Fault{DiesBefore, DiesAfter, Stops, Stale}
		s.Plans = 1 // besides those of one fault
		return s
	}
	if r := search(t, scenario(false)); r.Found != nil {
		t.Errorf("without Redeploy exploring finds %v, want nothing", r.Found)
	}
	r := search(t, scenario(true))
	if r.Found == nil || !slices.Equal(r.Found.Plan, []string{"call get a #2: fails"}) {
		t.Fatalf("with Redeploy exploring finds %v, want one fault of the second start", r.Found)
	}
	want := []string{"1h0m0s stop", "1h0m0s its context ends", "1h0m30s the process ends", "1h0m31s start", "1h0m31s call get a" + mark + "fails"}
	journal := r.Journal()
	if i := slices.Index(journal, want[0]); i < 0 || !slices.Equal(journal[i:min(len(journal), i+len(want))], want) {
		t.Errorf("this happened:\n%swant in it:\n%s", indent(journal), indent(want))
	}
}

// What a process does when its context ends is done before Redeploy returns. The time of
// Within begins when the next process starts.
func TestRedeployReturnsWhenTheControllerIsAtRest(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		proc.Go(func(ctx context.Context) error { <-ctx.Done(); w.made++; return nil })
		proc.Go(func(ctx context.Context) error {
			time.Sleep(45 * time.Second)
			return client{proc, w}.asDesired(ctx)
		})
	}
	s.Steps = func(env *Environment, w *shelf) {
		env.Advance(10 * time.Minute)
		w.desired["a"] = "1"
		env.Redeploy()
		if w.made != 1 {
			t.Errorf("when Redeploy returns, %d processes have stopped, want 1", w.made)
		}
	}
	s.Within = time.Minute
	s.Final = func(w *shelf) error {
		if w.things["a"] != "1" {
			return errors.New("the plan ends before the next process has done its work")
		}
		return nil
	}
	if _, failure := played(t, s); failure != "" {
		t.Errorf("without faults the plan fails: %s", failure)
	}
}

// Redeploy stops the old process of an Overlap too, which would go on for half a minute more
// than the new one.
func TestRedeployInAnOverlap(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		proc.Go(func(ctx context.Context) error { <-ctx.Done(); proc.Note("its context ends"); return nil })
		loop(proc, 10*time.Minute, client{proc, w}.asDesired)
	}
	s.Steps = func(env *Environment, w *shelf) {
		w.desired["a"] = "1"
		env.Event("a")
		env.Advance(10 * time.Second)
		env.Redeploy()
		env.Advance(time.Minute)
	}
	journal, failure := played(t, s, "call put a #1: overlap")
	want := []string{"10s stop", "10s stop (old)", "10s its context ends", "10s its context ends", "40s the process ends (old)", "40s the process ends", "41s start"}
	if i := slices.Index(journal, want[0]); failure != "" || i < 0 || !slices.Equal(journal[i:min(len(journal), i+len(want))], want) {
		t.Errorf("this happened:\n%swant in it:\n%sand no failure, got %q", indent(journal), indent(want), failure)
	}
}

// The old process of an Overlap, when it has to stop, hears each event once until it dies.
func TestStopInAnOverlap(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		proc.OnEvent(func(event any) {
			if proc.Context().Err() != nil {
				proc.Note("stopping, it hears")
			}
		})
		loop(proc, 10*time.Second, client{proc, w}.asDesired)
	}
	s.Steps = func(env *Environment, w *shelf) {
		w.desired["a"] = "1"
		env.Event("a")
		env.Advance(20 * time.Second)
		env.Event("b")
		env.Advance(time.Minute)
	}
	journal, failure := played(t, s, "call put a #1: overlap", "call get a (old) #1: stops")
	want := []string{"10s call get a (old)" + mark + "stops", "20s event b", "20s stopping, it hears", "40s the process ends (old)"}
	var got []string
	for _, line := range journal {
		if slices.Contains(want, line) {
			got = append(got, line)
		}
	}
	if failure != "" || !slices.Equal(got, want) {
		t.Errorf("this happened:\n%swant in it:\n%sand no failure, got %q", indent(journal), indent(want), failure)
	}
}
