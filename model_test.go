// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
)

// This file checks the queue against a slow, obvious model of it: every cell of
// the state table, and programs that nobody thought of.

// TestQueueTable runs every cell of internal/model/table.md, and once more for
// a queue without a Background.
func TestQueueTable(t *testing.T) {
	cells := model.Cells()
	if len(cells) == 0 {
		t.Fatal("no table")
	}
	for _, background := range []int{0, 8} {
		for _, c := range cells {
			if background == 0 {
				c.Entry = strings.ReplaceAll(c.Entry, "offered", "ready")
				c.Want = strings.ReplaceAll(c.Want, "offered", "ready")
			}
			t.Run(fmt.Sprintf("Background %d/%s", background, c.Name()), func(t *testing.T) {
				if got := standing(t, background, c.Setup); got != c.Entry {
					t.Fatalf("set up by %v: %q, want %q", c.Setup, got, c.Entry)
				}
				if got := standing(t, background, append(c.Setup, c.Op)); got != c.Want {
					t.Errorf("%v of %q: %q, want %q", c.Op, c.Entry, got, c.Want)
				}
			})
		}
	}
}

// standing carries the operations out on a new queue and says how "x" stands
// then, in the words of the table. What follows a run in flight shows when it
// is given back: with Done, and once more with a hold. That a ready item is in
// the background shows when an event overtakes it.
func standing(t *testing.T, background int, ops []model.Op[string]) (s string) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Background = background
		play(t, q, ops)
		if s = resting(q); s == "ready" {
			q.Enqueue("y")
			if first, err := q.Dequeue(t.Context()); first == "y" && err == nil {
				s = "offered"
			}
		}
		if s != "in flight" {
			return
		}
		again := q.State("x").Again
		q.Done("x")
		if next := resting(q); next != "none" {
			s = "in flight, " + next + " next"
		}
		if got := s != "in flight"; got != again {
			t.Errorf("State.Again: %t, but after Done it is %q", again, resting(q))
		}
	})
	if s != "in flight, ready next" {
		return s
	}
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Background = background
		play(t, q, ops)
		q.RequeueAfter("x", 1000*time.Hour)
		if resting(q) == "ready" {
			s = "in flight, now next"
		}
	})
	return s
}

// resting says how "x" stands, as far as State says.
func resting(q *reconcile.Queue[string]) string {
	s := q.State("x")
	kind := "within"
	switch {
	case s.Phase == reconcile.Idle:
		return "none"
	case s.Phase != reconcile.Waiting:
		return s.Phase.String()
	case s.Hold:
		kind = "held"
	case s.Settled:
		kind = "settled"
	}
	return fmt.Sprintf("%s %gh", kind, time.Until(s.Due).Hours())
}

// play carries operations out. A Dequeue that finds nothing waits for a while
// and is canceled.
func play(t *testing.T, q *reconcile.Queue[string], ops []model.Op[string]) {
	for i, o := range ops {
		if o.Verb == model.Close && i == len(ops)-1 {
			q.Enqueue("y") // for standing, which would come too late
		}
		if _, ok := o.Do(lockstep.On(q)); ok {
			continue
		}
		if o.Verb != model.Dequeue {
			t.Fatalf("the table has no %v", o)
		}
		ctx, cancel := context.WithCancel(t.Context())
		startDequeue(ctx, q) // what it takes shows in the state
		cancel()
		synctest.Wait()
	}
}

// TestQueueTable does not see whether a Dequeue that took nothing waits.
func TestQueueTableDequeueWaits(t *testing.T) {
	for _, c := range model.Cells() {
		if c.Op.Verb != model.Dequeue || c.Closed || c.Entry == "ready" || c.Entry == "offered" {
			continue
		}
		runQueue(t, c.Name(), func(t *testing.T, q *reconcile.Queue[string]) {
			play(t, q, c.Setup)
			ctx, cancel := context.WithCancel(t.Context())
			waiting := startDequeue(ctx, q)
			mustWait(t, waiting)
			cancel()
			if d := mustReturn(t, waiting); d.err != context.Canceled {
				t.Errorf("Dequeue: %q, %v, want %v", d.item, d.err, context.Canceled)
			}
		})
	}
}

// A program is a byte for the Background of a queue, then operations on it, two
// bytes each, so that a fuzzer can write one: the verb and the item, then what
// the verb needs.
type program []byte

// errModel is a failure: only ErrAborted itself aborts a run.
var errModel = fmt.Errorf("the run failed: %w", reconcile.ErrAborted)

// fuzzItems are few, so that the operations meet.
var fuzzItems = []string{"a", "b", "c", "d", "e"}

// fuzzDelays repeat and add up, so that runs fall due together; the others are
// the edges.
var fuzzDelays = []time.Duration{
	0, time.Hour, 2 * time.Hour, 3 * time.Hour, time.Hour, 2 * time.Hour, 5 * time.Hour, -time.Hour,
	1, time.Hour - 1, time.Hour + 1, 100 * time.Hour, 1 << 62, 3*time.Hour + 1, 4 * time.Hour, -1 << 63,
}

// fuzzVerbs has the frequent ones more than once.
var fuzzVerbs = [32]model.Verb{
	model.Offer, model.Enqueue, model.Enqueue, model.EnqueueAndWait, model.EnqueueAfter, model.EnqueueAfter, model.EnqueueAfter,
	model.EnqueueWithin, model.EnqueueWithin, model.EnqueueWithin, model.EnqueueNow, model.EnqueueNow, model.Remove,
	model.Done, model.Done, model.GiveUp, model.Requeue, model.Requeue, model.Requeue, model.Requeue, model.Requeue,
	model.Dequeue, model.Dequeue, model.Dequeue, model.Dequeue, model.Dequeue,
	model.Advance, model.Advance, model.Advance, model.Canceled, model.Cancel, model.Close,
}

// ops reads the program. Verbs take the low five bits of the first byte, the
// item what remains of it.
func (p program) ops() (ops []model.Op[string]) {
	for p = p[min(1, len(p)):]; len(p) >= 2; p = p[2:] {
		o := model.Op[string]{Verb: fuzzVerbs[p[0]%32], Item: fuzzItems[int(p[0]/32)%len(fuzzItems)], Nth: int(p[1])}
		switch o.Verb {
		case model.EnqueueAfter, model.EnqueueWithin, model.Requeue:
			o.Wait.Delay = fuzzDelays[p[1]%16]
		case model.Advance:
			o.Wait.Delay = max(0, fuzzDelays[p[1]%12])
			o.Nth = int(p[1] / 128)
		}
		if o.Verb == model.Requeue {
			o.Wait.Hold = p[1]&16 != 0
			o.Wait.Settled = p[1]&32 != 0
			o.Wait.Err = [4]error{nil, nil, errModel, model.ErrAborted}[p[1]>>6]
		}
		if o.Verb == model.GiveUp {
			o.Wait.Err = errModel
		}
		if o.Verb == model.Close && p[1]%4 != 0 { // most programs go on
			o.Verb = model.Enqueue
		}
		ops = append(ops, o)
	}
	return ops
}

// background is none for a half of all programs, and small for the others.
func (p program) background() int {
	if len(p) == 0 {
		return 0
	}
	return max(0, int(p[0]%8)-3)
}

// run carries the program out on a queue and on its model, which must agree
// on everything that can be seen after every step.
func (p program) run(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := lockstep.New(fuzzItems...)
		defer pair.Stop() // the consumers that wait when a step fails
		pair.SetBackground(p.background())
		pair.GiveUp = func(item string, err error) { reconcile.GiveUp(pair.Queue, item, err) }
		runs := watchedRuns{}
		defer runs.stop()
		pair.Check = func() error {
			if err := reconcile.Check(pair.Queue); err != nil {
				return err
			}
			return runs.compare(pair)
		}
		waiters := 0
		for _, o := range p.ops() {
			if o.Verb == model.Dequeue && waiters >= 4 {
				continue
			}
			if o.Verb == model.Advance && o.Nth == 1 {
				runs.race()
			}
			if err := pair.Step(o); err != nil {
				t.Fatal(err)
			}
			waiters = pair.Model.Waiters
		}
		if err := pair.End(); err != nil {
			t.Fatal(err)
		}
	})
}

// watchedRuns has a context of UntilChanged for each item in flight.
type watchedRuns map[string]*modelRun

type modelRun struct {
	take  int
	ctx   context.Context
	stop  context.CancelFunc
	ended bool // as the model says
	raced bool // the queue may have seen a next run fall due, or not
}

func (runs watchedRuns) race() {
	for _, r := range runs {
		r.raced = true
	}
}

// compare wants those contexts to have ended whose item has had a next run that
// is ready, and those whose item was given back.
func (runs watchedRuns) compare(pair *lockstep.Pair[string]) error {
	synctest.Wait() // the timer tells them after it has given up the lock
	for _, item := range fuzzItems {
		e, _ := pair.Model.Entry(item)
		ready := e.Next.Kind == model.Ready || e.Next.Kind == model.Sticky
		r := runs[item]
		if r != nil && (!e.InFlight || e.Take != r.take) {
			if cause := context.Cause(r.ctx); cause == nil || !r.raced && (cause == reconcile.ErrChanged) != r.ended {
				return fmt.Errorf("by UntilChanged(%s), after the run: %v, want one that ended for a change: %t", item, cause, r.ended)
			}
			r.stop()
			delete(runs, item)
			r = nil
		}
		if !e.InFlight {
			continue
		}
		if r == nil {
			r = &modelRun{take: e.Take}
			r.ctx, r.stop = reconcile.UntilChangedOf(context.Background(), pair.Queue, item)
			runs[item] = r
		}
		r.ended = r.ended || ready
		cause := context.Cause(r.ctx)
		if cause != nil && cause != reconcile.ErrChanged || (cause != nil) != r.ended && (!r.raced || ready) {
			return fmt.Errorf("by UntilChanged(%s): %v, want one that has ended: %t", item, cause, r.ended)
		}
	}
	return nil
}

func (runs watchedRuns) stop() {
	for _, r := range runs {
		r.stop()
	}
}

func randomProgram(seed uint64) program {
	r := rand.New(rand.NewPCG(seed, 0))
	p := make(program, 1+2*(20+r.IntN(400)))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

func TestQueueAgreesWithItsModel(t *testing.T) {
	var seed uint64
	defer tellSeed(t, &seed)
	for seed = range 2000 {
		randomProgram(seed).run(t)
	}
}

// The comparison finds what it is there to find.
func TestModelWithAFaultDisagrees(t *testing.T) {
	for _, fault := range []model.Fault{model.DropInFlight, model.BreakHold, model.LIFO, model.Starve, model.StaySettled} {
		found := false
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				pair := lockstep.New(fuzzItems...)
				defer pair.Stop()
				pair.GiveUp = func(item string, err error) { reconcile.GiveUp(pair.Queue, item, err) }
				pair.Model.Fault = fault
				pair.SetBackground(randomProgram(seed).background())
				for _, o := range randomProgram(seed).ops() {
					if o.Verb == model.Dequeue && pair.Model.Waiters >= 4 {
						continue
					}
					if pair.Step(o) != nil {
						found = true
						break
					}
				}
			})
		}
		if !found {
			t.Errorf("20 programs did not show fault %d", fault)
		}
	}
}

func FuzzQueue(f *testing.F) {
	for seed := range uint64(8) {
		f.Add([]byte(randomProgram(seed)[:41]))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		program(p[:min(len(p), 1000)]).run(t)
	})
}

// A oneItem is a Dequeuer that hands out one item and then is closed. It notes
// what it is given back.
type oneItem struct {
	taken bool
	done  int
	waits []reconcile.Wait
}

func (q *oneItem) Dequeue(context.Context) (string, error) {
	if q.taken {
		return "", reconcile.ErrClosed
	}
	q.taken = true
	return "item", nil
}

func (q *oneItem) Done(string)                          { q.done++ }
func (q *oneItem) Requeue(_ string, w reconcile.Wait)   { q.waits = append(q.waits, w) }
func (q *oneItem) State(string) (state reconcile.State) { return reconcile.State{} }

// A manyErrors has more than one error, some of them nil.
type manyErrors []error

func (m manyErrors) Error() string   { return fmt.Sprint(len(m), " errors") }
func (m manyErrors) Unwrap() []error { return m }

// A errTree builds an error from bytes, and says what the rules make of it.
type errTree struct {
	ops      []byte
	plan     *reconcile.RequeueError // the first, depth first
	terminal bool
}

func (b *errTree) next() byte {
	if len(b.ops) == 0 {
		return 0
	}
	op := b.ops[0]
	b.ops = b.ops[1:]
	return op
}

func (b *errTree) build(depth int) error {
	op := b.next()
	if depth > 8 {
		op %= 6
	}
	switch op % 12 {
	case 0:
		return nil
	case 1:
		return errBoom
	case 2, 3:
		n := b.next()
		plan := reconcile.RequeueError{Delay: time.Duration(int8(n)) * time.Second, Hold: op%12 == 2, Settled: n%2 == 0}
		if b.plan == nil {
			b.plan = &plan
		}
		return plan
	case 4:
		return context.Canceled
	case 5:
		b.terminal = true
		return reconcile.ErrTerminal
	case 6:
		err := b.build(depth + 1)
		return fmt.Errorf("wrapped: %w", err)
	case 7:
		err := b.build(depth + 1)
		b.terminal = b.terminal || err != nil
		return reconcile.Terminal(err)
	case 8:
		list := make([]error, b.next()%4)
		for i := range list {
			list[i] = b.build(depth + 1)
		}
		return errors.Join(list...)
	case 9:
		list := make(manyErrors, b.next()%4)
		for i := range list {
			list[i] = b.build(depth + 1)
		}
		return list
	default:
		first := b.build(depth + 1)
		return fmt.Errorf("%w, then %w", first, b.build(depth+1))
	}
}

func FuzzRequeueErrors(f *testing.F) {
	for op := range byte(11) {
		f.Add([]byte{op, 2, 3, 1, 5})
		f.Add([]byte{8, 3, 1, op, 5, 1})
		f.Add([]byte{10, 7, 2, 9, op})
		f.Add([]byte{6, 7, op, 250, 1})
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		tree := errTree{ops: ops}
		err := tree.build(0)
		var q oneItem
		var results resultBook[string]
		r := reconcile.Reconciler[string]{
			Queue:     &q,
			Reconcile: func(context.Context, string) error { return err },
			Retry:     minutes,
			OnResult:  results.add,
			Logger:    slog.New(slog.DiscardHandler),
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatalf("Run = %v", err)
		}
		got := results.only(t)
		want := reconcile.Result[string]{Item: "item", Err: err, Duration: got.Duration, Waited: got.Waited}
		var waits []reconcile.Wait
		switch {
		case err == nil:
			want.Outcome = reconcile.Succeeded
		case tree.plan != nil:
			want.Outcome, want.Next = reconcile.Requeued, max(tree.plan.Delay, 0)
			if tree.plan.Settled && !tree.plan.Hold {
				want.Outcome = reconcile.Succeeded
			}
			waits = []reconcile.Wait{{Delay: tree.plan.Delay, Hold: tree.plan.Hold, Settled: tree.plan.Settled}}
		case tree.terminal:
			want.Outcome, want.Failures = reconcile.Terminated, 1
		default:
			want.Outcome, want.Failures, want.Next = reconcile.Retrying, 1, time.Minute
			waits = []reconcile.Wait{{Delay: time.Minute, Err: err}}
		}
		wantSame(t, fmt.Sprintf("result of %#v", err), got, want)
		same := func(a, b reconcile.Wait) bool { // no delay is no delay, and what is held is not settled
			return max(a.Delay, 0) == max(b.Delay, 0) && reflect.DeepEqual(a.Err, b.Err) &&
				(a.Delay <= 0 || a.Hold == b.Hold && (a.Hold || a.Settled == b.Settled))
		}
		if !slices.EqualFunc(q.waits, waits, same) {
			t.Errorf("%#v requeued: %+v, want %+v", err, q.waits, waits)
		}
		if q.done != 1-len(waits) {
			t.Errorf("%#v: item given back by %d Done and %v", err, q.done, q.waits)
		}
	})
}
