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
