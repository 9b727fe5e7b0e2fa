// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
)

const hour = time.Hour

var worlds = map[string]World{
	"two items": {
		Items: []string{"a", "b"}, Consumers: 2, Delays: []time.Duration{hour, 2 * hour}, Tick: hour, Failures: 2,
	},
	"longer times and one more consumer": {
		Items: []string{"a", "b"}, Consumers: 3, Delays: []time.Duration{hour, 2 * hour, 3 * hour}, Tick: hour, Failures: 1,
	},
	"three items": {
		Items: []string{"a", "b", "c"}, Consumers: 2, Delays: []time.Duration{hour}, Tick: hour, Failures: 0,
	},
	"those that wait for an item": {
		Items: []string{"a", "b"}, Consumers: 2, Delays: []time.Duration{hour}, Tick: hour, Failures: 1, Waits: 2,
	},
	"every second from the background": {
		Items: []string{"a", "b"}, Consumers: 2, Delays: []time.Duration{hour}, Tick: hour, Failures: 1, Background: 2,
	},
	"every third of three items from the background": {
		Items: []string{"a", "b", "c"}, Consumers: 1, Delays: []time.Duration{hour}, Tick: hour, Failures: 0, Background: 3,
	},
}

// TestEveryState takes the queue to each state that the model can reach, does
// there each operation that there is, and compares all that can be seen. What
// follows the passing of time is done a second time, as the timer fires.
func TestEveryState(t *testing.T) {
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			nodes := w.States()
			var edges, ops atomic.Int64
			const shards = 4
			t.Run("all", func(t *testing.T) {
				for shard := range shards {
					t.Run(fmt.Sprint(shard), func(t *testing.T) {
						t.Parallel()
						for i := shard; i < len(nodes) && !t.Failed(); i += shards {
							for _, n := range []*Node{nodes[i], w.race(nodes[i])} {
								if n != nil {
									ops.Add(w.explore(t, n, &edges))
								}
							}
						}
					})
				}
			})
			t.Logf("%d states, the farthest %d operations away; %d ways on from them; %d operations",
				len(nodes), nodes[len(nodes)-1].Depth, edges.Load(), ops.Load())
		})
	}
}

// race is where a node comes to when time passes and a next run falls due, at
// the very instant at which the timer fires; nil if none falls due.
func (w World) race(n *Node) *Node {
	due, ok := n.Model.NextDue()
	if !ok || due > n.Model.Now()+w.Tick || n.Model.Waiters > 0 {
		return nil
	}
	by := Op{Verb: model.Advance, Options: model.RequeueOptions{Delay: w.Tick}, Nth: 1}
	m := n.Model.Clone()
	m.Do(by)
	return &Node{m, n, by, n.Depth + 1}
}

// explore does each operation that there is at a node, in one bubble, each on
// a new queue that is taken there. It returns how many operations that were.
func (w World) explore(t *testing.T, n *Node, edges *atomic.Int64) (ops int64) {
	synctest.Test(t, func(t *testing.T) {
		path := n.Path()
		for _, o := range w.Ops(n) {
			if err := w.try(path, o); err != nil {
				t.Error(err)
				return
			}
			edges.Add(1)
			ops += int64(len(path) + 1)
		}
	})
	return ops
}

// try compares the queue with the model after path and o.
func (w World) try(path []Op, o Op) error {
	pair := lockstep.New(w.Items...)
	pair.Model.Fault = w.Fault
	pair.SetBackground(w.Background)
	defer pair.Stop()
	if err := pair.Walk(path...); err != nil {
		return err
	}
	return pair.Step(o)
}

// A model with a fault must disagree with the queue, or the search is blind.
func TestFaultsAreFound(t *testing.T) {
	for fault, name := range map[model.Fault]string{
		model.DropInFlight:  "Enqueue dropped in flight",
		model.BreakHold:     "a hold that an Enqueue breaks",
		model.LIFO:          "last in, first out",
		model.Starve:        "a background that starves",
		model.StaySettled:   "an item that stays settled",
		model.IgnoreSettled: "an Offer of a settled item that is ignored",
		model.ForgetPending: "an item that is pending since its last run",
	} {
		t.Run(name, func(t *testing.T) {
			w := worlds["every second from the background"]
			w.Fault = fault
			synctest.Test(t, func(t *testing.T) {
				for _, n := range w.States() {
					for _, o := range w.Ops(n) {
						if err := w.try(n.Path(), o); err != nil {
							t.Logf("found after %d operations: %v", n.Depth+1, err)
							return
						}
					}
				}
				t.Error("the model with the fault agrees with the queue everywhere")
			})
		})
	}
}
