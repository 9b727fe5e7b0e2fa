// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build instrumented

package interleave

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
	"github.com/reconkernel/reconcile/verify/interleave/sched"
	"github.com/reconkernel/reconcile/verify/interleave/spec"
)

// A program is what a few goroutines do with a queue, one text each: verbs with
// their item, separated by semicolons. "?" is the item that the goroutine took
// last; without one the verb is left out. Times are in seconds; "hold", "settled",
// "reason", "done", "failed" and "aborted" may follow that of a Requeue. A number after Dequeue, WaitIdle,
// EnqueueAndWait and Cancel names a context.
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

var errReason, errFailed = errors.New("a reason"), errors.New("failed")

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
		case "EnqueueAndWait":
			c.Verb = model.EnqueueAndWait
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
				c.Options.Delay = time.Duration(n) * time.Second
			}
			for _, word := range words[min(3, len(words)):] {
				switch word {
				case "hold":
					c.Options.MinDelay = c.Options.Delay
				case "minimum":
					c.Options.MinDelay = time.Second
				case "settled":
					c.Options.Recheck = true
				case "reason":
					c.Options.Reason = errReason
				case "done":
					c.Options.Done = true
				case "failed":
					c.Options.Err = errFailed
				case "aborted":
					c.Options.Aborted = true
				default:
					panic("interleave: unknown word " + word)
				}
			}
		}
		calls = append(calls, c)
	}
	return calls
}

// canceled matches a call that waits under a context that may end.
var canceled = regexp.MustCompile(`(Dequeue|WaitIdle|EnqueueAndWait \w) [12]`)

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
	idle     sync.Map // the goroutines that are in a WaitIdle
	closed   atomic.Bool
	over     atomic.Bool
}

// wait reports whether a WaitIdle returned nil.
func (r *run) wait(ctx context.Context, client int, q *reconcile.Queue[string]) bool {
	r.idle.Store(client, true)
	defer r.idle.Delete(client)
	return q.WaitIdle(ctx) == nil
}

// overslept returns an error if somebody waits for what has come about.
func (r *run) overslept(q *reconcile.Queue[string]) (err error) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	r.idle.Range(func(client, _ any) bool {
		if q.WaitIdle(over) == nil {
			err = fmt.Errorf("goroutine %v sleeps in WaitIdle, though the queue is idle", client)
		}
		return true
	})
	return err
}

// ancestral are the verbs of an ancestor. The others panic.
type ancestral struct {
	model.Target[string]
	subject
}

func (a ancestral) Enqueue(item string) { a.subject.Enqueue(item) }
func (a ancestral) Done(item string)    { a.subject.Done(item) }

func (r *run) do(client int, c spec.Call, took *string) {
	if c.Item == "?" {
		if *took == "" {
			return
		}
		c.Item = *took
	}
	if c.Look == spec.NoLook && c.Verb == model.Cancel {
		sched.Point("cancel")
		r.cancels[c.Nth]()
		return // no operation of the queue
	}
	var ret spec.Return
	sched.Begin(c.Verb.String())
	call := r.now(false)
	add := func(c spec.Call, until int64) {
		r.history[client] = append(r.history[client], porcupine.Operation{
			ClientId: client, Input: c, Output: ret, Call: call, Return: until,
		})
	}
	var target model.Target[string] = ancestral{subject: r.q}
	q, ok := r.q.(*reconcile.Queue[string])
	if ok {
		target = lockstep.On(q)
	}
	switch c.Look {
	case spec.State:
		ret.State = q.State(c.Item)
	case spec.Has:
		ret.Has = q.Has(c.Item)
	case spec.Len:
		ret.Len = r.q.Len()
	case spec.Stats:
		ret.Stats = q.Stats()
	case spec.Idle:
		if !r.wait(r.contexts[c.Nth], client, q) {
			return // its context ended: it says nothing
		}
	case spec.NoLook:
		switch c.Verb {
		case model.EnqueueAndWait:
			ctx := r.contexts[c.Nth]
			c.Nth = 100*client + len(r.history[client]) // the same in every schedule
			asked := len(r.history[client])
			add(c, math.MaxInt64)
			err := q.EnqueueAndWait(ctx, c.Item)
			if r.over.Load() {
				return // nobody looks any more
			}
			now := r.now(true)
			r.history[client][asked].Return = now
			if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
				c.Look, ret.Closed = spec.Ended, errors.Is(err, reconcile.ErrClosed)
				add(c, now)
			}
			return
		case model.Dequeue:
			r.waiting.Add(1)
			item, err := r.q.Dequeue(r.contexts[c.Nth])
			r.waiting.Add(-1)
			switch {
			case err == reconcile.ErrClosed:
				ret.Answer = model.Over
			case err != nil:
				return // it took nothing
			default:
				ret.Item, *took = item, item
			}
		case model.Close:
			q.Close()
			r.closed.Store(true)
		default:
			ret.Removed, _ = c.Do(target)
		}
	}
	add(c, r.now(true))
}

// now is a time for the history: of a call or of a return. Those of one step are
// at the same time, so each return is after each call.
func (r *run) now(returns bool) int64 {
	if step := sched.Now(); step > 0 {
		now := 2 * (1000 + step)
		if returns {
			now++
		}
		return now
	}
	return r.clock.Add(1)
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
		now := 2*(1000+s.Step()) + 1
		r.history[last] = append(r.history[last], porcupine.Operation{
			ClientId: last, Call: now - 1, Return: now,
			Input:  spec.Call{Op: model.Op[string]{Verb: model.Advance, Options: model.RequeueOptions{Delay: time.Second}}},
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
	e.End(s.Run())
	r.clock.Store(1_000_000) // after all steps
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
			more = more || s.Phase != reconcile.PhaseInFlight || s.Again
		}
		if err == nil {
			err = r.overslept(q)
		}
		now := r.now(false)
		for _, o := range slices.Concat(r.history...) {
			if o.Return == math.MaxInt64 {
				c := o.Input.(spec.Call)
				c.Look = spec.Sleeps
				r.history[last] = append(r.history[last], porcupine.Operation{ClientId: last, Input: c, Output: spec.Return{}, Call: now, Return: now})
			}
		}
		if err == nil && r.closed.Load() && waiting > 0 && !more {
			err = fmt.Errorf("%d consumers sleep though the queue is closed and empty", waiting)
		}
	}
	history = slices.Concat(r.history...)
	compact(history)

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
	keys                 []string // of the histories, sorted
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
			if e.Redundant && err == nil {
				continue
			}
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
	res.keys = slices.Sorted(maps.Keys(histories))
	for _, h := range histories {
		if res.err != nil {
			break
		}
		if !porcupine.CheckOperations(spec.Model(h.start, p.background), h.history) {
			res.err = fmt.Errorf("%v: no order explains\n%s\nschedule:\n%s", p, describe(h.history), h.trace())
		}
	}
	return res
}

// compact makes the times of a history as small as they can be in this order.
func compact(history []porcupine.Operation) {
	var times []int64
	for _, o := range history {
		times = append(times, o.Call, o.Return)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	for i := range history {
		at, _ := slices.BinarySearch(times, history[i].Call)
		until, _ := slices.BinarySearch(times, history[i].Return)
		history[i].Call, history[i].Return = int64(at), int64(until)
	}
}

// keyOf tells histories of one program apart.
func keyOf(history []porcupine.Operation, start time.Time) (key []byte) {
	for _, o := range history {
		c, r := o.Input.(spec.Call), o.Output.(spec.Return)
		key = append(key, byte(o.ClientId), byte(c.Verb), byte(c.Look), byte(c.Nth))
		key = append(append(key, r.Item...), byte(o.Call), byte(o.Return), byte(r.Answer), byte(r.Len))
		for _, b := range []bool{r.Removed, r.Has, r.Closed} {
			key = strconv.AppendBool(key, b)
		}
		if r.State != (reconcile.State{}) {
			s := r.State
			key = fmt.Append(key, s.Phase, s.Since.Sub(start), s.Due.Sub(start), s.NotBefore.Sub(start), s.Again, s.Recheck, s.Pending.Sub(start), s.Failures, s.Err)
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
