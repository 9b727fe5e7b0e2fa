// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package search walks through every state that the model of the queue can
// reach with few items, few consumers and small times, and lists what was done
// to get there. Its test does the same to the queue.
package search

import (
	"errors"
	"slices"
	"time"

	"github.com/reconkernel/reconcile/internal/model"
)

// Op is an operation on a queue of strings.
type Op = model.Op[string]

// World bounds a search.
type World struct {
	Items     []string
	Consumers int             // that wait or have an item in flight
	Delays    []time.Duration // more than zero
	Tick      time.Duration   // by which the clock moves
	Failures  int             // in a row, at most
	Waits     int             // EnqueueAndWaits at a time

	Background int // of the queue
	Fault      model.Fault
}

// Err is what runs fail with, and ErrReason why they plan.
var (
	Err       = errors.New("search: the run failed")
	ErrReason = errors.New("search: it is being made")
)

// Node is a state, with the shortest way to it.
type Node struct {
	Model  *model.Attended[string]
	parent *Node
	by     Op // from parent
	Depth  int
}

// Path is how the node was reached from the empty queue.
func (n *Node) Path() []Op {
	path := make([]Op, n.Depth)
	for ; n.parent != nil; n = n.parent {
		path[n.Depth-1] = n.by
	}
	return path
}

// States returns every state that can be reached, nearest first. The search
// ends where no operation leads to a state not seen before.
func (w World) States() []*Node {
	root := &Node{Model: &model.Attended[string]{Queue: model.Queue[string]{Background: w.Background, Fault: w.Fault}}}
	nodes := []*Node{root}
	seen := map[string]bool{root.Model.Key(): true}
	for i := 0; i < len(nodes); i++ {
		for _, o := range w.Ops(nodes[i]) {
			m := nodes[i].Model.Clone()
			m.Do(o)
			if key := m.Key(); !seen[key] {
				seen[key] = true
				nodes = append(nodes, &Node{m, nodes[i], o, nodes[i].Depth + 1})
			}
		}
	}
	return nodes
}

// Ops are all operations that the world allows in a state.
func (w World) Ops(n *Node) []Op {
	ops := []Op{{Verb: model.Close}, {Verb: model.Canceled}, {Verb: model.Advance, Options: model.RequeueOptions{Delay: w.Tick}}}
	if n.Model.Waiters+n.Model.Stats().InFlight < w.Consumers {
		ops = append(ops, Op{Verb: model.Dequeue})
	}
	for nth := range n.Model.Waiters {
		ops = append(ops, Op{Verb: model.Cancel, Nth: nth})
	}
	for _, item := range w.Items {
		for _, v := range []model.Verb{model.Offer, model.Enqueue, model.EnqueueNow, model.Remove, model.Done} {
			ops = append(ops, Op{Verb: v, Item: item})
		}
		if len(n.Model.Waits) < w.Waits {
			ops = append(ops, Op{Verb: model.EnqueueAndWait, Item: item})
		}
		ops = append(ops,
			Op{Verb: model.Requeue, Item: item, Options: model.RequeueOptions{Delay: w.Delays[0], Hold: true, Recheck: true, Err: model.ErrAborted, Done: true}},
			Op{Verb: model.Requeue, Item: item, Options: model.RequeueOptions{Delay: w.Delays[0], Hold: true, Recheck: true, Err: Err, Reason: ErrReason, Done: true}})
		if w.Failures > 0 { // else no error is kept, nor a reason
			ops = append(ops,
				Op{Verb: model.Requeue, Item: item, Options: model.RequeueOptions{Delay: w.Delays[0], Reason: ErrReason}},
				Op{Verb: model.Requeue, Item: item, Options: model.RequeueOptions{Delay: w.Delays[0], Recheck: true, Reason: ErrReason}})
		}
		for _, d := range slices.Concat([]time.Duration{0}, w.Delays) {
			ops = append(ops,
				Op{Verb: model.EnqueueAfter, Item: item, Options: model.RequeueOptions{Delay: d}},
				Op{Verb: model.EnqueueWithin, Item: item, Options: model.RequeueOptions{Delay: d}},
				Op{Verb: model.Requeue, Item: item, Options: model.RequeueOptions{Delay: d, Recheck: true}})
			for _, hold := range []bool{false, true} {
				ops = append(ops, Op{Verb: model.Requeue, Item: item, Options: model.RequeueOptions{Delay: d, Hold: hold}})
				if n.Model.State(item).Failures < w.Failures {
					ops = append(ops, Op{Verb: model.Requeue, Item: item, Options: model.RequeueOptions{Delay: d, Hold: hold, Err: Err}})
				}
			}
		}
	}
	return ops
}
