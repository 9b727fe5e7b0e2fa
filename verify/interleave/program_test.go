// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build instrumented

package interleave

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
	"github.com/reconkernel/reconcile/verify/interleave/sched"
	"github.com/reconkernel/reconcile/verify/spec"
)

// A program is what a few goroutines do with a queue, one text each: verbs with
// their item, separated by semicolons. "?" is the item that the goroutine took
// last; without one the verb is left out. Times are in seconds. A number after
// Dequeue and Cancel names a context.
type program struct {
	before     string // done first, by one goroutine alone
	threads    []string
	ticks      int // how many seconds may pass
	background int // of the queue
}

func (p program) String() string {
	s := strings.Join(p.threads, " | ")
	if p.background > 0 {
		s += fmt.Sprintf(" with Background %d", p.background)
	}
	if p.before != "" {
		s = p.before + " before " + s
	}
	if p.ticks > 0 {
		s += fmt.Sprintf(" | %d s pass", p.ticks)
	}
	return s
}

// calls reads the text of one goroutine.
func calls(text string) (calls []spec.Call) {
	for verb := range strings.SplitSeq(text, ";") {
		words := strings.Fields(verb)
		if len(words) == 0 {
			continue
		}
		var c spec.Call
		arg := func(i int) string {
			if i < len(words) {
				return words[i]
			}
			return ""
		}
		c.Item = arg(1)
		switch words[0] {
		case "State":
			c.Look = spec.State
		case "Has":
			c.Look = spec.Has
		case "Len":
			c.Look = spec.Len
		case "Stats":
			c.Look = spec.Stats
		case "WaitIdle":
			c.Look = spec.Idle
			c.Nth, _ = strconv.Atoi(c.Item)
			c.Item = ""
		case "WaitItem":
			c.Look = spec.Settled
			c.Nth, _ = strconv.Atoi(arg(2))
		case "Dequeue", "Cancel":
			c.Nth, _ = strconv.Atoi(c.Item)
			c.Item = ""
			c.Verb = model.Dequeue
			if words[0] == "Cancel" {
				c.Verb = model.Cancel
			}
		default:
			for c.Verb = 0; c.Verb.String() != words[0]; c.Verb++ {
			}
			if n, err := strconv.Atoi(arg(2)); err == nil {
				c.Wait.Delay = time.Duration(n) * time.Second
			}
			c.Wait.Hold = arg(3) == "hold"
		}
		calls = append(calls, c)
	}
	return calls
}

// canceled matches a call that waits under a context that may end.
var canceled = regexp.MustCompile(`(Dequeue|WaitIdle|WaitItem \w) [12]`)

// subject is what all queues under test can do.
type subject interface {
	Enqueue(item string)
	Dequeue(ctx context.Context) (string, error)
	Done(item string)
	Len() int
}

// run is one schedule of a program.
type run struct {
	q        subject
	start    time.Time
	clock    atomic.Int64
	contexts []context.Context
	cancels  []context.CancelFunc
	history  [][]porcupine.Operation // of each goroutine; the last is the test's
	waiting  atomic.Int32
	ended    atomic.Int32
	ids      atomic.Int32
	settling sync.Map // by goroutine: the WaitIdle or WaitItem that it is in
	closed   atomic.Bool
	over     atomic.Bool
}

// wait reports whether a WaitIdle or WaitItem returned nil.
func (r *run) wait(client int, q *reconcile.Queue[string], c spec.Call) bool {
	ctx := r.contexts[c.Nth]
	r.settling.Store(client, c)
	defer r.settling.Delete(client)
	if c.Look == spec.Idle {
		return q.WaitIdle(ctx) == nil
	}
	return q.WaitItem(ctx, c.Item) == nil
}

// overslept returns an error if somebody waits for what has come about.
func (r *run) overslept(q *reconcile.Queue[string]) (err error) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	r.settling.Range(func(_, c any) bool {
		switch c := c.(spec.Call); {
		case c.Look == spec.Idle && q.WaitIdle(over) == nil, c.Look == spec.Settled && q.WaitItem(over, c.Item) == nil:
			err = fmt.Errorf("%v sleeps, though it is so", c)
		}
		return true
	})
	return err
}

func (r *run) do(client int, c spec.Call, took *string) {
	if c.Item == "?" {
		if *took == "" {
			return
		}
		c.Item = *took
	}
	var ret spec.Return
	sched.Begin(c.Verb.String())
	call := r.clock.Add(1)
	add := func(c spec.Call) {
		r.history[client] = append(r.history[client], porcupine.Operation{
			ClientId: client, Input: c, Output: ret, Call: call, Return: r.clock.Add(1),
		})
	}
	q, _ := r.q.(*reconcile.Queue[string])
	switch c.Look {
	case spec.State:
		ret.State = q.State(c.Item)
	case spec.Has:
		ret.Has = q.Has(c.Item)
	case spec.Len:
		ret.Len = r.q.Len()
	case spec.Stats:
		ret.Stats = q.Stats()
	case spec.Idle, spec.Settled:
		if !r.wait(client, q, c) {
			return // its context ended: it says nothing
		}
	}
	if c.Look != spec.NoLook {
		add(c)
		return
	}
	switch c.Verb {
	case model.Offer:
		q.Offer(c.Item)
	case model.Enqueue:
		r.q.Enqueue(c.Item)
	case model.EnqueueAfter:
		q.EnqueueAfter(c.Item, c.Wait.Delay)
	case model.EnqueueWithin:
		q.EnqueueWithin(c.Item, c.Wait.Delay)
	case model.EnqueueNow:
		q.EnqueueNow(c.Item)
	case model.Remove:
		ret.Removed = q.Remove(c.Item)
	case model.Done:
		r.q.Done(c.Item)
	case model.Requeue:
		q.Requeue(c.Item, reconcile.Wait(c.Wait))
	case model.Close:
		q.Close()
		r.closed.Store(true)
	case model.Cancel:
		r.cancels[c.Nth]()
		return // no operation of the queue
	case model.Dequeue:
		r.waiting.Add(1)
		item, err := r.q.Dequeue(r.contexts[c.Nth])
		r.waiting.Add(-1)
		ret.Item = item
		switch {
		case err == reconcile.ErrClosed:
			ret.Answer = model.Over
		case err != nil: // may have been handed an item for a moment
			c.ID = int(r.ids.Add(1))
			c.Verb = model.Cancel
			add(c)
			c.Verb = model.Canceled
		default:
			*took = item
		}
	}
	add(c)
}

// once runs the program under the schedule that e chooses.
func (p program) once(q subject, e *sched.Explorer) (history []porcupine.Operation, trace func() string, err error) {
	r := &run{q: q, start: time.Now(), history: make([][]porcupine.Operation, len(p.threads)+1)}
	last := len(p.threads)
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		r.contexts = append(r.contexts, ctx)
		r.cancels = append(r.cancels, cancel)
	}
	var took string
	for _, c := range calls(p.before) {
		r.do(last, c, &took)
	}
	s := &sched.Scheduler{Ticks: p.ticks, Unit: time.Second, Choose: e.Choose}
	s.OnTick = func() {
		now := r.clock.Add(2)
		r.history[last] = append(r.history[last], porcupine.Operation{
			ClientId: last, Call: now - 1, Return: now,
			Input:  spec.Call{Op: model.Op[string]{Verb: model.Advance, Wait: model.Wait{Delay: time.Second}}},
			Output: spec.Return{},
		})
	}
	for i, text := range p.threads {
		took := took
		cancelable := canceled.MatchString(text)
		s.Go(text, !cancelable, cancelable || p.ticks > 0, func() {
			for _, c := range calls(text) {
				if !r.over.Load() {
					r.do(i, c, &took)
				}
			}
			r.ended.Add(1)
		})
	}
	s.Run()
	if names := s.Stuck(); len(names) > 0 {
		return nil, s.Trace, fmt.Errorf("deadlock of %q", names)
	}

	waiting := r.waiting.Load()
	if n := q.Len(); waiting > 0 && n > 0 {
		err = fmt.Errorf("%d consumers sleep while %d items are ready", waiting, n)
	}
	r.do(last, calls("Len")[0], &took)
	if q, ok := q.(*reconcile.Queue[string]); ok {
		for _, text := range []string{"State a", "State b", "Stats"} {
			r.do(last, calls(text)[0], &took)
		}
		more := false
		for _, s := range q.All() {
			more = more || s.Phase != reconcile.InFlight || s.Again
		}
		if err == nil {
			err = r.overslept(q)
		}
		if err == nil && r.closed.Load() && waiting > 0 && !more {
			err = fmt.Errorf("%d consumers sleep though the queue is closed and empty", waiting)
		}
	}
	for _, h := range r.history {
		history = append(history, h...)
	}

	// Nobody looks any more: those that wait still must end.
	r.over.Store(true)
	for _, cancel := range r.cancels {
		cancel()
	}
	if q, ok := q.(*reconcile.Queue[string]); ok {
		q.Close() // its timer must not meet the next schedule
	}
	synctest.Wait()
	if n := int(r.ended.Load()); err == nil && n < len(p.threads) {
		err = errors.New("a canceled consumer does not end")
	}
	return history, s.Trace, err
}

// result is what came of all schedules of a program.
type result struct {
	schedules, histories int
	err                  error
}

// explore runs the program under every schedule, with at most so many
// preemptions; any number if it is below 0.
func (p program) explore(t *testing.T, preemptions int, newQueue func() subject) (res result) {
	type seen struct {
		start   time.Time
		history []porcupine.Operation
		trace   func() string
	}
	histories := map[string]seen{}
	synctest.Test(t, func(t *testing.T) {
		e := sched.Explorer{Preemptions: preemptions}
		for e.Next() {
			start := time.Now()
			q := newQueue()
			if q, ok := q.(*reconcile.Queue[string]); ok {
				q.Background = p.background
			}
			history, trace, err := p.once(q, &e)
			if err != nil {
				res.err = fmt.Errorf("%v: %w\n%s", p, err, trace())
				break
			}
			key := keyOf(history, start)
			if _, ok := histories[string(key)]; !ok {
				histories[string(key)] = seen{start, history, trace}
			}
		}
		res.schedules = e.Rounds
	})
	res.histories = len(histories)
	for _, h := range histories {
		if res.err != nil {
			break
		}
		if !porcupine.CheckOperations(spec.Model(h.start, p.background, model.NoFault, true), h.history) {
			res.err = fmt.Errorf("%v: no order explains\n%s\nschedule:\n%s", p, describe(h.history), h.trace())
		}
	}
	return res
}

// keyOf tells histories of one program apart: what was called is the same in
// all of them.
func keyOf(history []porcupine.Operation, start time.Time) (key []byte) {
	for _, o := range history {
		r := o.Output.(spec.Return)
		key = append(append(key, r.Item...), byte(o.Call), byte(o.Return), byte(r.Answer), byte(r.Len))
		key = strconv.AppendBool(strconv.AppendBool(key, r.Removed), r.Has)
		if r.State != (reconcile.State{}) {
			s := r.State
			key = fmt.Append(key, s.Phase, s.Since.Sub(start), s.Due.Sub(start), s.Hold, s.Again, s.Failures)
		}
		if r.Stats != (reconcile.Stats{}) {
			key = fmt.Append(key, r.Stats)
		}
	}
	return key
}

func describe(history []porcupine.Operation) string {
	var b strings.Builder
	for _, o := range history {
		fmt.Fprintf(&b, "%3d to %3d, goroutine %d: %s\n", o.Call, o.Return, o.ClientId, spec.Describe(o.Input.(spec.Call), o.Output.(spec.Return)))
	}
	return b.String()
}
