// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
)

// This file checks types against slow, obvious models of them: every cell of the
// state table, programs that nobody thought of, and the fuzz targets.

// TestQueueTable runs every cell of internal/model/table.md, and once more for
// a queue without a Background.
func TestQueueTable(t *testing.T) {
	cells := model.Cells()
	if len(cells) == 0 {
		t.Fatal("no table")
	}
	for _, background := range []int{0, 8} {
		for _, c := range cells {
			if background == 0 || c.Closed { // No event that would overtake it comes in any more.
				c.Entry = strings.ReplaceAll(c.Entry, "background", "ready")
				c.Want = strings.ReplaceAll(c.Want, "background", "ready")
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
				s = "background"
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
	if s != "in flight, ready next" || slices.ContainsFunc(ops, func(o model.Op[string]) bool { return o.Verb == model.Close }) {
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
	switch {
	case s.Phase == reconcile.PhaseIdle:
		return "none"
	case s.Phase != reconcile.PhaseWaiting:
		return s.Phase.String()
	}
	notBefore := time.Duration(0)
	if !s.NotBefore.IsZero() {
		notBefore = time.Until(s.NotBefore)
	}
	return model.Words(time.Until(s.Due), notBefore, s.Recheck)
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
		if c.Op.Verb != model.Dequeue || c.Closed || c.Entry == "ready" || c.Entry == "background" {
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

var errModel = errors.New("the run failed")

var errReason = errors.New("it is being made")

// fuzzItems are few, so that several operations concern the same item. Wide programs have
// all of manyItems, so that those that wait form a heap of several levels.
var (
	fuzzItems = []string{"a", "b", "c", "d", "e"}
	manyItems = append(strings.Split("fghijklmnopqrstuvwx", ""), fuzzItems...)
)

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
	model.Done, model.Done, model.Requeue, model.Requeue, model.Requeue, model.Requeue, model.Requeue, model.Requeue,
	model.Dequeue, model.Dequeue, model.Dequeue, model.Dequeue, model.Dequeue,
	model.Advance, model.Advance, model.Advance, model.Canceled, model.Cancel, model.Close,
}

// ops reads the program. Verbs take the low five bits of the first byte, the
// item what remains of it.
func (p program) ops() (ops []model.Op[string]) {
	wide := p.wide()
	for p = p[min(1, len(p)):]; len(p) >= 2; p = p[2:] {
		o := model.Op[string]{Verb: fuzzVerbs[p[0]%32], Item: fuzzItems[int(p[0]/32)%len(fuzzItems)], Nth: int(p[1])}
		if n := len(ops); wide {
			o.Item = manyItems[int(p[0]/32)+8*(n%3)]
			if n%8 != 0 && (o.Verb == model.Advance || o.Verb == model.Dequeue) { // or few would wait
				o.Verb = model.EnqueueWithin
			}
		}
		switch o.Verb {
		case model.EnqueueAfter, model.EnqueueWithin, model.Requeue:
			o.Options.Delay = fuzzDelays[p[1]%16]
		case model.Advance:
			o.Options.Delay = max(0, fuzzDelays[p[1]%12])
			o.Nth = int(p[1] / 128)
		}
		if o.Verb == model.Requeue {
			if p[1]&16 != 0 {
				o.Options.MinDelay = [4]time.Duration{time.Hour, o.Options.Delay, time.Second, 2 * time.Hour}[p[0]/8%4]
			}
			o.Options.Recheck = p[1]&32 != 0
			o.Options.Err = [4]error{nil, nil, errModel, nil}[p[1]>>6]
			o.Options.Aborted = p[1]>>6 == 3
			o.Options.Reason = [2]error{nil, errReason}[p[1]>>2&1]
			o.Options.Done = p[1]%16 == 3 || p[1]%16 == 7
		}
		if o.Verb == model.Close && p[1]%4 != 0 { // most programs go on
			o.Verb = model.Enqueue
		}
		ops = append(ops, o)
	}
	return ops
}

// wide programs are one in sixteen.
func (p program) wide() bool { return len(p) > 0 && p[0] >= 240 }

func (p program) items() []string {
	if p.wide() {
		return manyItems
	}
	return fuzzItems
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
		pair := lockstep.New(p.items()...)
		defer pair.Stop() // the consumers that wait when a step fails
		pair.SetBackground(p.background())
		pair.Check = func() error { return reconcile.Check(pair.Queue) }
		waiters := 0
		for _, o := range p.ops() {
			if o.Verb == model.Dequeue && waiters >= 4 {
				continue
			}
			if o.Verb == model.Advance && o.Nth == 1 {
				if due, ok := pair.Model.NextDue(); ok && due-pair.Model.Now() < 24*time.Hour {
					o.Options.Delay = due - pair.Model.Now() // to the instant at which the timer fires
				}
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
	for _, fault := range []model.Fault{model.DropInFlight, model.BreakHold, model.HotLoop, model.LIFO, model.Starve, model.NoEventBit, model.StayRecheck, model.IgnoreRecheck, model.ForgetPending} {
		found := false
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				pair := lockstep.New(randomProgram(seed).items()...)
				defer pair.Stop()
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

func FuzzBackoff(f *testing.F) {
	for _, first := range []int64{-1, 0, 1, 2, 3, int64(time.Second), math.MaxInt64, math.MinInt64} {
		for _, limit := range []int64{-1, 0, 1, 5, int64(time.Hour), math.MaxInt64} {
			for _, failures := range []int{1, 39, 63, 141, math.MinInt} {
				f.Add(first, limit, failures)
			}
		}
	}
	f.Fuzz(func(t *testing.T, first, limit int64, failures int) {
		d, retry := reconcile.Backoff(time.Duration(first), time.Duration(limit))(errBoom, failures)
		full := time.Second
		if first > 0 {
			full = time.Duration(first)
		}
		if limit > 0 {
			grown := new(big.Int).Lsh(big.NewInt(int64(full)), uint(min(max(failures, 1)-1, 64)))
			if highest := big.NewInt(limit); grown.Cmp(highest) > 0 {
				grown = highest
			}
			full = time.Duration(grown.Int64())
		}
		if !retry || !within(d, full/2, full) {
			t.Errorf("Backoff(%d, %d)(err, %d) = %d, %v, want in (%d, %d]", first, limit, failures, d, retry, full/2, full)
		}
	})
}

// A slowListMap is a ListMap that anybody can read.
type slowListMap map[int][]int

func (l slowListMap) set(key int, list []int) {
	if delete(l, key); len(list) > 0 {
		l[key] = list
	}
}

func (l slowListMap) remove(key int, match func(int) bool, limit int) (n int) {
	var rest []int
	for _, v := range l[key] {
		if match(v) && (limit < 1 || n < limit) {
			n++
		} else {
			rest = append(rest, v)
		}
	}
	l.set(key, rest)
	return n
}

// An openLoop goes on while the map changes. Want is what it sees.
type openLoop struct {
	next func() (int, int, bool)
	stop func()
	want []int
}

// runListMap does to a ListMap and to its model what the bytes say, and compares
// them after each step. Loops are left open across the steps.
func runListMap(t *testing.T, ops []byte) {
	var l reconcile.ListMap[int, int]
	model := make(slowListMap)
	var loops []openLoop
	var did []string
	values := 0
	next := func() int {
		if len(ops) == 0 {
			return 0
		}
		op := ops[0]
		ops = ops[1:]
		return int(op)
	}
	for len(ops) > 0 {
		op, key := next()%8, next()%3
		switch op {
		case 0, 1:
			items := make([]int, next()%4)
			for i := range items {
				values++
				items[i] = values
			}
			did = append(did, fmt.Sprintf("AddItem(%d, %v)", key, items))
			l.AddItem(key, items...)
			model.set(key, append(slices.Clone(model[key]), items...))
		case 2:
			i := next()%6 - 1
			did = append(did, fmt.Sprintf("RemoveItemAt(%d, %d)", key, i))
			l.RemoveItemAt(key, i)
			if list := model[key]; i >= 0 && i < len(list) {
				model.set(key, slices.Delete(slices.Clone(list), i, i+1))
			}
		case 3:
			div := next()%3 + 1
			match := func(v int) bool { return v%div == 0 }
			did = append(did, fmt.Sprintf("RemoveItem(%d, v%%%d)", key, div))
			if got, want := l.RemoveItem(key, match), model.remove(key, match, 1) == 1; got != want {
				t.Fatalf("%s = %v, want %v", strings.Join(did, "\n"), got, want)
			}
		case 4:
			div, limit := next()%3+1, next()%4-1
			match := func(v int) bool { return v%div == 0 }
			did = append(did, fmt.Sprintf("RemoveItems(%d, v%%%d, %d)", key, div, limit))
			if got, want := l.RemoveItems(key, match, limit), model.remove(key, match, limit); got != want {
				t.Fatalf("%s = %v, want %v", strings.Join(did, "\n"), got, want)
			}
		case 5:
			did = append(did, fmt.Sprintf("RemoveKey(%d)", key))
			l.RemoveKey(key)
			delete(model, key)
		case 6:
			if len(model[key]) == 0 {
				continue
			}
			pull, stop := iter.Pull2(l.Range(key))
			loop := openLoop{pull, stop, slices.Clone(model[key])}
			pull() // now it has begun
			loops = append(loops, loop)
			did = append(did, fmt.Sprintf("Range(%d) begins", key))
		case 7:
			did = append(did, "loops go on")
			finishLoops(t, did, loops)
			loops = nil
		}
		compareListMaps(t, did, &l, model)
	}
	finishLoops(t, did, loops)
}

func finishLoops(t *testing.T, did []string, loops []openLoop) {
	t.Helper()
	for _, loop := range loops {
		got := loop.want[:1:1]
		for {
			_, v, ok := loop.next()
			if !ok {
				break
			}
			got = append(got, v)
		}
		loop.stop()
		if !slices.Equal(got, loop.want) {
			t.Fatalf("%s: a loop saw %v, want %v", strings.Join(did, "\n"), got, loop.want)
		}
	}
}

func compareListMaps(t *testing.T, did []string, l *reconcile.ListMap[int, int], model slowListMap) {
	t.Helper()
	got := make(slowListMap)
	for k, v := range l.RangeAll() {
		got[k] = append(got[k], v)
	}
	if !maps.EqualFunc(got, model, slices.Equal) {
		t.Fatalf("%s: map has %v, want %v", strings.Join(did, "\n"), got, model)
	}
	keys := l.Keys()
	slices.Sort(keys)
	if want := slices.Sorted(maps.Keys(model)); !slices.Equal(keys, want) || l.Size() != len(want) {
		t.Fatalf("%s: Keys() = %v, Size() = %d, want %v", strings.Join(did, "\n"), keys, l.Size(), want)
	}
	for key := range 3 {
		if got, want := l.KeySize(key), len(model[key]); got != want {
			t.Fatalf("%s: KeySize(%d) = %d, want %d", strings.Join(did, "\n"), key, got, want)
		}
		for i := -1; i <= len(model[key]); i++ {
			v, ok := l.ItemAt(key, i)
			if in := i >= 0 && i < len(model[key]); ok != in || in && v != model[key][i] {
				t.Fatalf("%s: ItemAt(%d, %d) = %d, %v, want it of %v", strings.Join(did, "\n"), key, i, v, ok, model[key])
			}
		}
	}
}

func TestListMapAgreesWithItsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		ops := make([]byte, 200)
		for i := range ops {
			ops[i] = byte(random.Uint32())
		}
		runListMap(t, ops)
	}
}

func FuzzListMap(f *testing.F) {
	f.Add([]byte{0, 0, 3, 6, 0, 2, 0, 3, 0, 0, 2, 7, 0})
	f.Add([]byte{0, 1, 3, 6, 1, 5, 1, 0, 1, 1, 7, 0, 4, 1, 0, 0})
	f.Fuzz(runListMap)
}
