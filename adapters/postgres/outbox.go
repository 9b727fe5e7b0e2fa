// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
)

// An op is an operation on one item that is to be stored: a verb, or a give-back.
type op struct {
	verb      string    // as in sqlAsk, or how in sqlGive
	due       time.Time // of after and within, and of give-backs that have a next run
	notBefore time.Time // of give-backs that have a MinDelay
	err       string
	owner     int64         // and
	fence     int64         // of give-backs
	sent      bool          // It may be stored already, so a later op is not part of it.
	stored    chan struct{} // closed when it is; nil while nobody waits for that
}

func (o *op) gives() bool  { return o.fence != 0 }
func (o *op) isDone() bool { return o.verb == "done" || o.verb == "gaveup" }

// giveBackOf returns the op of a give-back, without its fence.
func giveBackOf(w reconcile.RequeueOptions) op {
	now := time.Now()
	o := op{verb: "requeue", due: now.Add(max(0, w.Delay, w.MinDelay))}
	if w.MinDelay > 0 {
		o.notBefore = now.Add(w.MinDelay)
	}
	switch {
	case w.Aborted:
		return op{verb: "abort"}
	case w.Done && w.Err == nil:
		o.verb = "done"
	case w.Done:
		o.verb = "gaveup"
	case w.Err != nil:
		o.verb, o.err = "fail", errorText(w.Err)
	case w.Recheck && w.MinDelay <= 0:
		o.verb = "recheck"
	case w.Reason != nil:
		o.err = errorText(w.Reason)
	}
	return o
}

func errorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "an error whose Error method panics"
		}
	}()
	text = err.Error()
	return strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), 1000)], "\x00", ""), "?")
}

// coalesces reports whether o changes nothing beside the verbs that are not sent yet.
func coalesces(ops []op, o op) bool {
	for i := len(ops) - 1; i >= 0 && !ops[i].sent && !ops[i].gives() && !o.gives(); i-- {
		p := &ops[i]
		if p.verb == o.verb && !o.due.Before(p.due) || o.verb == "offer" || p.verb == "now" || p.verb == "within" && p.due.IsZero() && o.verb != "now" {
			return true
		}
	}
	return false
}

// waiter returns a channel that is closed when the op is stored.
func (o *op) waiter() <-chan struct{} {
	if o.stored == nil {
		o.stored = make(chan struct{})
	}
	return o.stored
}

// postLocked puts an op into the outbox, and returns the last one of the item: once that is
// stored, this one is.
func (q *Queue[T]) postLocked(s string, o op) *op {
	ops := q.outbox[s]
	if len(ops) == 0 {
		q.line = append(q.line, s)
	}
	if h := q.held[s]; h != nil && !o.gives() && o.verb != "offer" {
		h.again = true
	}
	if coalesces(ops, o) {
		q.stats.Coalesced++
	} else {
		ops = append(ops, o)
	}
	q.outbox[s] = ops
	q.tasks.Enqueue(exchange)
	return &ops[len(ops)-1]
}

// left returns the time until t in microseconds.
func left(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Until(t).Microseconds())
}

// maxBatch is how many items an exchange stores at most.
const maxBatch = 500

// A batch is what an exchange stores.
type batch struct {
	items []string
	count []int // the ops of each item
	asks  struct {
		items, verbs []string
		delays       []int64
	}
	gives struct {
		items, hows, errs []string
		owners, fences    []int64
		delays, mins      []int64
	}
	given map[string]bool
}

// takeLocked takes ops from the outbox. Of each item it takes a verb, or a give-back, or a verb
// and the give-back after it: that is the order of the statements.
func (q *Queue[T]) takeLocked() *batch {
	n := min(maxBatch, len(q.line))
	b := &batch{items: q.line[:n:n], given: make(map[string]bool)}
	q.line = q.line[n:]
	for _, s := range b.items {
		ops, n := q.outbox[s], 0
		if o := &ops[0]; !o.gives() {
			a := &b.asks
			a.items, a.verbs, a.delays = append(a.items, s), append(a.verbs, o.verb), append(a.delays, left(o.due))
			o.sent = true
			n++
		}
		if n < len(ops) && ops[n].gives() {
			o, g := &ops[n], &b.gives
			g.items, g.hows, g.errs = append(g.items, s), append(g.hows, o.verb), append(g.errs, o.err)
			g.owners, g.fences = append(g.owners, o.owner), append(g.fences, o.fence)
			g.delays, g.mins = append(g.delays, left(o.due)), append(g.mins, left(o.notBefore))
			b.given[s], o.sent = true, true
			n++
		}
		b.count = append(b.count, n)
	}
	return b
}

// storedLocked removes the ops of a batch from the outbox, except the give-backs of locked
// items.
func (q *Queue[T]) storedLocked(b *batch, locked map[string]bool) {
	for i, s := range b.items {
		ops, n := q.outbox[s], b.count[i]
		if locked[s] {
			n--
		}
		for _, o := range ops[:n] {
			if o.gives() {
				delete(q.held, s)
			}
			if o.stored != nil {
				close(o.stored)
			}
		}
		if ops = ops[n:]; len(ops) > 0 {
			q.outbox[s], q.line = ops, append(q.line, s)
		} else {
			delete(q.outbox, s)
		}
	}
}
