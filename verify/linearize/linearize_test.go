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
func check(t *testing.T, name string, seed uint64, m porcupine.Model, history []porcupine.Operation) bool {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(m, history, patience)
	if result == porcupine.Ok {
		return true
	}
	t.Errorf("%s, seed %d: %v", name, seed, result)
	if err := draw(filepath.Join("failed", fmt.Sprintf("%s-%d.html", name, seed)), m, info); err != nil {
		t.Error(err)
	}
	return false
}

func draw(file string, m porcupine.Model, info porcupine.LinearizationInfo) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return porcupine.VisualizePath(m, info, file)
}

func record(t *testing.T, l Load, seed uint64) (history []porcupine.Operation, start time.Time) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { history, start = l.Record(seed) })
	return history, start
}

// checkCanceled is check for a history with canceled Dequeues. Any of them may
// have been handed an item for a moment, but to try all of that takes very long.
// An order in which but two, or one, or none of them were is an order too; and
// there nearly always is one. It reports whether one was handed something.
func checkCanceled(t *testing.T, name string, seed uint64, m porcupine.Model, history []porcupine.Operation) (shows bool) {
	t.Helper()
	idOf := func(o porcupine.Operation) int {
		if c := o.Input.(spec.Call); c.Look == spec.NoLook && (c.Verb == model.Cancel || c.Verb == model.Canceled) {
			return c.ID
		}
		return 0
	}
	with := func(some ...int) bool {
		part := slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool {
			return idOf(o) != 0 && !slices.Contains(some, idOf(o))
		})
		return porcupine.CheckOperationsTimeout(m, part, patience) == porcupine.Ok
	}
	if with() {
		return false
	}
	last := 0
	for _, o := range history {
		last = max(last, idOf(o))
	}
	for one := range last {
		for other := range one + 1 {
			if with(one+1, other+1) {
				return true
			}
		}
	}
	check(t, name, seed, m, history)
	return true
}

// tally says how much was checked.
type tally struct{ histories, operations, met, canceled, shows int }

func (n *tally) add(history []porcupine.Operation) {
	n.histories++
	n.operations += len(history)
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	last := int64(0) // return of what was called before, waiting consumers aside
	for _, o := range history {
		c := o.Input.(spec.Call)
		if c.Look == spec.NoLook && c.Verb == model.Canceled {
			n.canceled++
			n.operations--
		}
		if o.Call < last {
			n.met++
		}
		if c.Look != spec.NoLook || c.Verb < model.Dequeue {
			last = max(last, o.Return)
		}
	}
}

func (n tally) String() string {
	s := fmt.Sprintf("%d histories, %d operations, %d of them began as another one was under way", n.histories, n.operations, n.met)
	if n.canceled > 0 {
		s += fmt.Sprintf(", %d Dequeues were canceled, which shows in %d histories", n.canceled, n.shows)
	}
	return s
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
	} {
		t.Run(name, func(t *testing.T) {
			var n tally
			for s := range uint64(2000 * *rounds) {
				history, start := record(t, l, *seed+s)
				n.add(history)
				if checkCanceled(t, "whole-"+name, *seed+s, spec.Model(start, l.Background, model.NoFault, true), history) {
					n.shows++
				}
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
	} {
		t.Run(name, func(t *testing.T) {
			var n tally
			for s := range uint64(200 * *rounds) {
				history, start := record(t, l, *seed+s)
				n.add(history)
				m := spec.Model(start, l.Background, model.NoFault, false)
				m.Partition = spec.ByItem
				check(t, "items-"+name, *seed+s, m, history)
			}
			t.Log(n)
		})
	}
}

// TestFaultsAreFound checks against a model with a fault, which must not agree,
// and that a history is drawn.
func TestFaultsAreFound(t *testing.T) {
	for fault, name := range map[model.Fault]string{
		model.DropInFlight: "Enqueue dropped in flight",
		model.BreakHold:    "a hold that an Enqueue breaks",
		model.LIFO:         "last in, first out",
		model.Starve:       "a background that starves",
	} {
		t.Run(name, func(t *testing.T) {
			l := Load{Goroutines: 8, Consumers: 3, Items: 4, Calls: 3, Phases: 4, Stats: true}
			if fault == model.Starve {
				l.Items, l.Background = 6, 2
			}
			found := 0
			for s := range uint64(20) {
				history, start := record(t, l, *seed+s)
				m := spec.Model(start, l.Background, fault, true)
				result, info := porcupine.CheckOperationsVerbose(m, history, patience)
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
				t.Error("the model with the fault explains 20 histories of 20")
			}
			t.Logf("%d of 20 histories are not those of a queue with the fault", found)
		})
	}
}
