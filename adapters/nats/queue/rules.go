// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
)

// This file holds the rules of the kernel's queue as functions of one record:
// what becomes of it when something is asked for its item, and when the item is
// given back. Nothing here talks to a server or reads a clock.

// A next says when the next run of an item may start.
type next uint8

const (
	nextNone    next = iota
	nextReady        // now
	nextNow          // now, whatever the run in flight returns; only in flight
	nextLater        // at due; an event starts it sooner, but not before notBefore
	nextRecheck      // the same, and only a recheck; only at rest
)

func (n next) later() bool { return n >= nextLater }

// A record is what the queue knows of one item. The zero record is that of an
// item that it does not know.
type record struct {
	running   bool
	next      next
	due       int64 // of a next run that is later, in Unix nanoseconds, as all times here
	notBefore int64 // of the same: no event starts it sooner; never after due
	since     int64 // when it entered its phase
	pending   int64 // since when there is work; 0 while it waits for a recheck
	owner     string
	fence     uint64 // of the run in flight; 0 in the message that began it, whose sequence it is
	failures  int
	err       string // the last failure; with no failures, the reason of a scheduled run
	removed   bool   // of a run in flight: if its process is gone, the item need not run again
}

// ready reports whether the record is of an item at rest that is ready.
func (r *record) ready() bool { return !r.running && r.next == nextReady }

// waiting reports whether the record is of an item at rest that becomes ready
// later.
func (r *record) waiting() bool { return !r.running && r.next.later() }

// state says the record in the words of the kernel.
func (r record) state() reconcile.State {
	if r == (record{}) {
		return reconcile.State{}
	}
	s := reconcile.State{Phase: reconcile.PhaseReady, Since: time.Unix(0, r.since), Failures: r.failures}
	switch {
	case r.running:
		s.Phase = reconcile.PhaseInFlight
		s.Again = r.next != nextNone
	case r.next.later():
		s.Phase = reconcile.PhaseWaiting
		s.Due = time.Unix(0, r.due)
		if r.notBefore > time.Now().UnixNano() {
			s.NotBefore = time.Unix(0, r.notBefore)
		}
		s.Recheck = r.next == nextRecheck
	}
	if !s.Recheck {
		s.Pending = time.Unix(0, r.pending)
	}
	if r.failures > 0 || r.err != "" {
		s.Err = errors.New(r.err)
	}
	return s
}

// A verb is what an op does to a record.
type verb uint8

const (
	verbOffer verb = iota
	verbEnqueue
	verbAfter
	verbWithin
	verbNow
	verbRemove
	verbDone    // gives back a run
	verbRequeue // gives back a run, as wait says
	verbAbort   // gives back a run as if it had not been
	verbDue     // makes a waiting item ready whose time has come
	verbReclaim // gives back a run that nobody is at, as wait says, or as if it had not been
	verbTouch   // makes a ready item ready anew, at the tail
	verbClaim   // makes a ready item one in flight with owner
)

// An op is an operation on one item, with all that it needs.
type op struct {
	verb      verb
	at        int64  // when it was asked for
	due       int64  // of verbAfter, verbWithin, verbRequeue and verbReclaim
	notBefore int64  // of verbRequeue and verbDone: no event starts the next run sooner; 0 if at once
	recheck   bool   // of verbRequeue: the run succeeded, and the next is only a recheck
	err       string // of verbRequeue and verbReclaim: of the failure, or the reason of a scheduled run
	fail      bool   // of verbRequeue and verbReclaim: the run failed
	giveUp    bool   // of verbDone and verbReclaim: it is not retried, though it failed
	owner     string // of the run, for verbs that end one
	fence     uint64
}

// gives reports whether the verb gives back a run.
func (v verb) gives() bool { return v == verbDone || v == verbRequeue || v == verbAbort }

// newRequeue returns the op that gives back a run as w says.
func newRequeue(w reconcile.RequeueOptions, now int64) op {
	if w.Aborted {
		return op{verb: verbAbort, at: now}
	}
	o := op{verb: verbRequeue, at: now, recheck: w.Recheck && w.MinDelay <= 0 && w.Err == nil}
	if w.MinDelay > 0 {
		o.notBefore = after(now, w.MinDelay)
	}
	if w.Done {
		return op{verb: verbDone, at: now, notBefore: o.notBefore, giveUp: w.Err != nil}
	}
	if d := max(w.Delay, w.MinDelay); d > 0 {
		o.due = after(now, d)
	}
	switch {
	case w.Err != nil:
		o.fail, o.err = true, errorText(w.Err)
	case w.Reason != nil && !o.recheck:
		o.err = errorText(w.Reason)
	}
	return o
}

// counted reports whether the op is one of the verbs that Stats counts.
func (o *op) counted() bool { return o.verb <= verbNow }

// promoteDue makes ready what is due: it is so whether or not anybody has
// noticed.
func (r record) promoteDue(now int64) record {
	if r.next.later() && r.due <= now {
		if !r.running {
			r.since = r.due
		}
		if r.next == nextRecheck {
			r.pending = r.due
		}
		r.setReady()
	}
	return r
}

func (r *record) setReady() { r.next, r.due, r.notBefore = nextReady, 0, 0 }

// apply returns what becomes of the record by the op.
func (r record) apply(o *op) record {
	switch o.verb {
	case verbOffer, verbEnqueue, verbAfter, verbWithin, verbNow:
		return r.promoteDue(o.at).ask(o)
	case verbRemove:
		r.next, r.due, r.notBefore = nextNone, 0, 0
		if !r.running {
			return record{}
		}
		r.removed = true
	case verbDue:
		if r.waiting() {
			return r.promoteDue(o.at)
		}
	case verbTouch: // the same record in a new message
	case verbClaim:
		if r.ready() {
			return record{running: true, since: o.at, pending: r.pending, owner: o.owner, failures: r.failures, err: r.err}
		}
	case verbDone, verbRequeue, verbAbort, verbReclaim:
		if !r.running || r.owner != o.owner || r.fence != o.fence {
			return r // it is not that run any more
		}
		return r.end(o)
	}
	return r
}

// ask applies a verb of an Enqueuer. Each asks for something that is still to be
// handled, so nothing is only a recheck after it.
func (r record) ask(o *op) record {
	was := r
	if r.next == nextRecheck {
		r.next, r.pending = nextLater, o.at
	} else if !r.running && r.next == nextNone {
		r.pending = o.at
	}
	if o.verb != verbOffer {
		r.removed = false
	}
	switch o.verb {
	case verbOffer:
		if !r.running && was.next == nextNone || was.next == nextRecheck {
			r.setReady()
		}
	case verbEnqueue, verbWithin:
		due := max(o.at, o.due)
		if o.verb == verbEnqueue {
			due = o.at
		}
		switch {
		case r.next == nextNone:
			r.next, r.due = nextLater, due
		case r.next == nextLater:
			r.due = min(r.due, max(due, r.notBefore))
		}
		if r.next == nextLater && r.due <= o.at {
			r.setReady()
		}
	case verbAfter:
		if r.next == nextNone || r.next == nextLater && r.notBefore < r.due && o.due <= r.due {
			r.next, r.due = nextLater, max(o.due, r.notBefore)
			r.notBefore = r.due
		}
	case verbNow:
		r.setReady()
		if r.running {
			r.next = nextNow
		}
	}
	if !r.running && (was.next == nextNone || was.next.later() != r.next.later()) {
		r.since = o.at
	}
	return r
}

// end applies the end of a run.
func (r record) end(o *op) record {
	was := r.promoteDue(o.at)
	if o.verb == verbReclaim && o.fail {
		switch {
		case r.removed, o.giveUp:
			o = &op{verb: verbDone, at: o.at, giveUp: true}
		default:
			o = &op{verb: verbRequeue, at: o.at, due: o.due, notBefore: o.due, fail: true, err: o.err}
		}
	}
	r = record{next: was.next, due: was.due, notBefore: was.notBefore, since: o.at, pending: was.pending, failures: r.failures, err: r.err}
	if o.recheck || o.verb == verbDone && !o.giveUp {
		r.pending = was.since // The run covers what came before it began.
	}
	minimum := o.notBefore
	switch o.verb {
	case verbDone:
		r.failures, r.err = 0, ""
	case verbAbort, verbReclaim:
		r.setReady()
		minimum = 0
	case verbRequeue:
		if o.fail {
			r.failures, r.err = r.failures+1, o.err
		} else {
			r.failures, r.err = 0, o.err
		}
		switch {
		case r.next == nextReady, r.next == nextNow: // It is due first.
		case o.due <= o.at:
			r.setReady()
		case r.next == nextNone && o.recheck:
			r.next, r.due, r.pending = nextRecheck, o.due, 0
		case r.next == nextNone, o.due < r.due:
			r.next, r.due, r.notBefore = nextLater, o.due, 0
		}
	}
	switch {
	case r.next == nextNone:
		return record{}
	case r.next == nextNow:
		r.setReady()
	case minimum > o.at:
		r.next, r.due, r.notBefore = nextLater, max(r.due, minimum), max(r.notBefore, minimum)
	}
	return r
}

// fold adds an op to a list of those not yet carried out, and leaves out what
// changes nothing. It reports whether o was left out, because the others have
// the same effect without it. A list does not grow unless each op asks for a
// sooner time than those before.
func fold(ops []op, o op) ([]op, bool) {
	// What other ops leave behind is not known.
	for i := len(ops) - 1; i >= 0 && ops[i].counted() && o.counted(); i-- {
		p := &ops[i]
		same := p.verb == o.verb && o.due >= p.due
		if same || o.verb == verbOffer || p.verb == verbNow || p.verb == verbEnqueue && o.verb != verbNow {
			return ops, true
		}
	}
	return append(ops, o), false
}

// after returns now + d, or the end of time.
func after(now int64, d time.Duration) int64 {
	const end = 1<<63 - 1
	return now + min(int64(d), end-now)
}

// errorText returns what is kept of an error.
func errorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "an error whose Error panics"
		}
	}()
	const most = 1000
	text = strings.ToValidUTF8(err.Error(), "?")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
