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
	nextReady        // at once
	nextNow          // at once, whatever the verdict of the run in flight
	nextWithin       // at due, sooner if an event asks for it
	nextSettled      // the same, and all is well; only at rest
	nextHeld         // at due, and not before
)

// nextNames are how a next is written in a message, except nextSettled.
var nextNames = [...]string{"", "ready", "now", "within", "settled", "held"}

func (n next) later() bool { return n >= nextWithin }

// A record is what the queue knows of one item. The zero record is that of an
// item that it does not know.
type record struct {
	running  bool
	next     next
	due      int64 // of a next run that is later, in Unix nanoseconds, as all times here
	since    int64 // when it entered its phase
	pending  int64 // since when there is work; 0 while it is settled
	owner    string
	fence    uint64 // of the run in flight; 0 in the message that began it, whose sequence it is
	failures int
	err      string // the last failure; with no failures, the reason of a plan
	removed  bool   // of a run in flight: if its process is gone, the item need not run again
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
	s := reconcile.State{Phase: reconcile.Ready, Since: time.Unix(0, r.since), Failures: r.failures}
	switch {
	case r.running:
		s.Phase = reconcile.InFlight
		s.Again = r.next != nextNone
	case r.next.later():
		s.Phase = reconcile.Waiting
		s.Due = time.Unix(0, r.due)
		s.Hold = r.next == nextHeld
		s.Recheck = r.next == nextSettled
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
	verb    verb
	at      int64  // when it was asked for
	due     int64  // of verbAfter, verbWithin, verbRequeue and verbReclaim
	hold    bool   // of verbRequeue
	settled bool   // of verbRequeue: the run ended well
	err     string // of verbRequeue and verbReclaim: of the failure, or the reason of a plan
	fail    bool   // of verbRequeue and verbReclaim: the run failed
	giveUp  bool   // of verbDone and verbReclaim: it is not to run again, though it failed
	owner   string // of the run, for verbs that end one
	fence   uint64
}

// gives reports whether the verb gives back a run.
func (v verb) gives() bool { return v == verbDone || v == verbRequeue || v == verbAbort }

// newRequeue returns the op that gives back a run as w says.
func newRequeue(w reconcile.RequeueOptions, now int64) op {
	if w.Err == reconcile.ErrAborted {
		return op{verb: verbAbort, at: now}
	}
	if w.Done {
		return op{verb: verbDone, at: now, giveUp: w.Err != nil}
	}
	o := op{verb: verbRequeue, at: now, hold: w.Hold, settled: w.Recheck && !w.Hold && w.Err == nil}
	if w.Delay > 0 {
		o.due = after(now, w.Delay)
	}
	switch {
	case w.Err != nil:
		o.fail, o.err = true, errorText(w.Err)
	case w.Reason != nil && !o.settled:
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
		if r.next == nextSettled {
			r.pending = r.due
		}
		r.next, r.due = nextReady, 0
	}
	return r
}

// apply returns what becomes of the record by the op.
func (r record) apply(o *op) record {
	switch o.verb {
	case verbOffer, verbEnqueue, verbAfter, verbWithin, verbNow:
		return r.promoteDue(o.at).ask(o)
	case verbRemove:
		r.next, r.due = nextNone, 0
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
// answered, so nothing is settled after it.
func (r record) ask(o *op) record {
	before := r
	switch {
	case r.next == nextSettled:
		r.next, r.pending = nextWithin, o.at
	case !r.running && r.next == nextNone:
		r.pending = o.at
	}
	if o.verb != verbOffer {
		r.removed = false
	}
	was := r.next
	switch o.verb {
	case verbOffer:
		if !r.running && was == nextNone || before.next == nextSettled {
			r.next, r.due = nextReady, 0
		}
	case verbEnqueue:
		if was == nextNone || was == nextWithin {
			r.next, r.due = nextReady, 0
		}
	case verbAfter:
		if was == nextNone || was == nextWithin && o.due <= r.due {
			r.next, r.due = nextHeld, o.due
		}
	case verbWithin:
		if was == nextNone || was == nextWithin && o.due < r.due {
			r.next, r.due = nextWithin, o.due
		}
	case verbNow:
		r.next, r.due = nextReady, 0
		if r.running {
			r.next = nextNow
		}
	}
	if !r.running && (was == nextNone || was.later() != r.next.later()) {
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
			o = &op{verb: verbRequeue, at: o.at, due: o.due, hold: true, fail: true, err: o.err}
		}
	}
	r = record{next: was.next, due: was.due, since: o.at, pending: was.pending, failures: r.failures, err: r.err}
	if o.settled || o.verb == verbDone && !o.giveUp {
		r.pending = was.since // what came before the run began is answered
	}
	switch o.verb {
	case verbDone:
		r.failures, r.err = 0, ""
	case verbAbort, verbReclaim:
		r.next, r.due = nextReady, 0
	case verbRequeue:
		if o.fail {
			r.failures, r.err = r.failures+1, o.err
		} else {
			r.failures, r.err = 0, o.err
		}
		switch {
		case r.next == nextNow, o.due <= o.at:
			r.next, r.due = nextReady, 0
		case o.hold:
			r.next, r.due = nextHeld, o.due
		case r.next == nextNone && o.settled:
			r.next, r.due, r.pending = nextSettled, o.due, 0
		case r.next == nextNone, r.next.later() && o.due < r.due:
			r.next, r.due = nextWithin, o.due
		}
	}
	switch r.next {
	case nextNow:
		r.next = nextReady
	case nextNone:
		return record{}
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
