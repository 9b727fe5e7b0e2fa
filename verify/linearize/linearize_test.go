// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/reconkernel/reconcile/internal/model"
	"github.com/reconkernel/reconcile/verify/spec"
)

var (
	seed   = flag.Uint64("seed", 1, "of the first history; the others follow")
	rounds = flag.Int("rounds", 1, "times as many histories")
)

// patience is how long porcupine may look at one history.
const patience = 2 * time.Minute

// check looks for an order of the history. One that has none is kept, drawn.
func check(t *testing.T, name string, seed uint64, m porcupine.Model, history []porcupine.Operation) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(m, history, patience)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("%s, seed %d: %v", name, seed, result)
	if err := draw(filepath.Join("failed", fmt.Sprintf("%s-%d.html", name, seed)), m, info); err != nil {
		t.Error(err)
	}
}

func draw(file string, m porcupine.Model, info porcupine.LinearizationInfo) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return porcupine.VisualizePath(m, info, file)
}

func record(t *testing.T, l Load, seed uint64) (h History) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { h = l.Record(seed) })
	return h
}

// tally says how much was checked.
type tally struct{ histories, operations, met, waits, canceled int }

func (n *tally) add(h History) {
	history := slices.Clone(h.Operations)
	n.histories++
	n.operations += len(history)
	n.canceled += h.Canceled
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	last := int64(0) // return of what was called before, waiting consumers aside
	for _, o := range history {
		c := o.Input.(spec.Call)
		if c.Look == spec.Ended {
			n.waits++
			continue
		}
		if o.Call < last {
			n.met++
		}
		if c.Look != spec.NoLook || c.Verb != model.Dequeue && c.Verb != model.EnqueueAndWait {
			last = max(last, o.Return)
		}
	}
}

func (n tally) String() string {
	return fmt.Sprintf("%d histories, %d operations, %d of them began as another one was under way; %d EnqueueAndWaits returned, %d Dequeues were canceled",
		n.histories, n.operations, n.met, n.waits, n.canceled)
}

// TestWhole checks small histories against the whole contract: order, counts,
// the end of a closed queue, canceled consumers.
func TestWhole(t *testing.T) {
	for name, l := range map[string]Load{
		"plain":                {Goroutines: 8, Consumers: 3, Items: 4, Calls: 3, Phases: 4, Stats: true},
		"closed":               {Goroutines: 8, Consumers: 4, Items: 3, Calls: 3, Phases: 2, Stats: true, Close: true},
		"offered":              {Goroutines: 8, Consumers: 3, Items: 6, Calls: 3, Phases: 4, Stats: true, Background: 2},
		"offered and canceled": {Goroutines: 7, Consumers: 4, Items: 3, Calls: 3, Phases: 2, Stats: true, Cancel: true, Background: 2},
		"canceled":             {Goroutines: 7, Consumers: 4, Items: 2, Calls: 3, Phases: 2, Stats: true, Cancel: true},
		"settled":              {Goroutines: 8, Consumers: 3, Items: 4, Calls: 3, Phases: 4, Stats: true, Settle: true},
		"settled and offered":  {Goroutines: 8, Consumers: 3, Items: 5, Calls: 3, Phases: 4, Stats: true, Settle: true, Background: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var n tally
			for s := range uint64(2000 * *rounds) {
				h := record(t, l, *seed+s)
				n.add(h)
				check(t, "whole-"+name, *seed+s, spec.Model(h.Start, l.Background, model.NoFault, true), h.Operations)
			}
			t.Log(n)
		})
	}
}

// TestByItem checks large histories one item at a time.
func TestByItem(t *testing.T) {
	for name, l := range map[string]Load{
		"8 goroutines":  {Goroutines: 8, Consumers: 3, Items: 4, Calls: 20, Phases: 10},
		"32 goroutines": {Goroutines: 32, Consumers: 12, Items: 12, Calls: 12, Phases: 6},
		"64 goroutines": {Goroutines: 64, Consumers: 24, Items: 24, Calls: 8, Phases: 5, Close: true},
		"settled":       {Goroutines: 32, Consumers: 12, Items: 12, Calls: 12, Phases: 6, Settle: true},
	} {
		t.Run(name, func(t *testing.T) {
			var n tally
			for s := range uint64(200 * *rounds) {
				h := record(t, l, *seed+s)
				n.add(h)
				m := spec.Model(h.Start, l.Background, model.NoFault, false)
				m.Partition = spec.ByItem
				check(t, "items-"+name, *seed+s, m, h.Operations)
			}
			t.Log(n)
		})
	}
}

// TestFaultsAreFound checks against a model with a fault, which must not agree,
// and that a history is drawn.
func TestFaultsAreFound(t *testing.T) {
	for fault, name := range map[model.Fault]string{
		model.DropInFlight:  "Enqueue dropped in flight",
		model.BreakHold:     "a hold that an Enqueue breaks",
		model.LIFO:          "last in, first out",
		model.Starve:        "a background that starves",
		model.StayRecheck:   "an item that stays settled",
		model.IgnoreRecheck: "an Offer of a settled item that is ignored",
		model.ForgetPending: "an item that is pending since its last run",
	} {
		t.Run(name, func(t *testing.T) {
			l := Load{Goroutines: 8, Consumers: 3, Items: 4, Calls: 3, Phases: 4, Stats: true, Settle: fault == model.StayRecheck || fault == model.IgnoreRecheck}
			if fault == model.Starve {
				l.Items, l.Background = 6, 2
			}
			found, tried := 0, uint64(0)
			for ; found < 10 && tried < 500; tried++ {
				h := record(t, l, *seed+tried)
				m := spec.Model(h.Start, l.Background, fault, true)
				result, info := porcupine.CheckOperationsVerbose(m, h.Operations, patience)
				if result != porcupine.Illegal {
					continue
				}
				found++
				file := filepath.Join(t.TempDir(), "history.html")
				if err := draw(file, m, info); err != nil {
					t.Error(err)
				}
				if f, err := os.Stat(file); err != nil || f.Size() < 1000 {
					t.Errorf("the drawing of the history: %v, %v", f, err)
				}
			}
			if found == 0 {
				t.Errorf("the model with the fault explains all of %d histories", tried)
			}
			t.Logf("%d of %d histories are not those of a queue with the fault", found, tried)
		})
	}
}
