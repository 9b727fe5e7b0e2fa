// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate runs a queue with a Reconciler and a Poller in a bubble, and
// beside them the model of the queue with a loop that anybody can read. Runs return
// what comes of one and of several steps, plan, fail, settle, give up, panic and exit;
// events and polls come at any time, and the Reconciler may stop in the midst of a run
// and start again. All that can be seen has to be the same at every instant:
// each result, each state, since when each item is pending, and every count.
package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
)

// A Plan is all that happens in a simulation, by its seed.
type Plan struct {
	Seed       uint64
	Items      int
	Workers    int
	Background int
	Hold       bool // HoldRetries
	Limit      int  // of retries; none if it is 0
	Polls      bool
	Admits     bool // runs may have to wait until they are admitted
	Length     time.Duration
}

// newPlan makes the plan of a seed.
func newPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := Plan{
		Seed: seed, Items: 1 + r.IntN(6), Workers: 1 + r.IntN(3), Background: max(0, r.IntN(6)-2), Hold: r.IntN(2) == 0,
		Limit: r.IntN(4), Polls: r.IntN(2) == 0, Length: 10 * time.Minute,
	}
	p.Admits = p.Workers == 1 && seed%5 == 2
	return p
}

// run returns what the nth run of an item takes, and returns; or with what it panics,
// or that it exits, which is an error as well.
func (p Plan) run(item string, n int) (time.Duration, error) {
	r := rand.New(rand.NewPCG(p.Seed^uint64(item[0])<<32, uint64(n)))
	delay := func() time.Duration { return time.Duration(r.IntN(40*int(time.Second))) - time.Second }
	took, err := time.Duration(1+r.IntN(3*int(time.Second))), randomError(r, 0, delay)
	switch r.IntN(20) {
	case 0:
		err = bad{&reconcile.PanicError{Value: cmp.Or(err, errBoom)}}
	case 1:
		err = bad{&reconcile.PanicError{Value: errGoexit}}
	}
	return took, err
}

// admit returns how long the nth run has to wait until it is admitted.
func (p Plan) admit(n int) time.Duration {
	r := rand.New(rand.NewPCG(p.Seed, uint64(n)+100))
	if !p.Admits || r.IntN(2) == 0 {
		return 0
	}
	return time.Duration(r.IntN(2 * int(time.Second)))
}

// A bad end of a run is no return.
type bad struct{ *reconcile.PanicError }

var errGoexit = errors.New("runtime.Goexit called")

// end ends a run with an error, in one of the ways that there are.
func end(err error) error {
	if b, ok := err.(bad); ok {
		if b.Value == errGoexit {
			runtime.Goexit()
		}
		panic(b.Value)
	}
	return err
}

// retry is the policy of both.
func (p Plan) retry(_ error, failures int) (time.Duration, bool) {
	return time.Duration(failures)*7*time.Second + 13, p.Limit == 0 || failures <= p.Limit
}

// An act is something done to the queue from outside.
type act struct {
	at time.Duration
	op model.Op[string]
}

const period = 17*time.Second + 1

// acts are all of them, in order.
func (p Plan) acts() (all []act) {
	r := rand.New(rand.NewPCG(p.Seed, 2))
	for range 5 + r.IntN(60) {
		a := act{at: time.Duration(r.Int64N(int64(p.Length)))}
		a.op.Item = name(r.IntN(p.Items))
		a.op.Verb = []model.Verb{
			model.Enqueue, model.Enqueue, model.Offer, model.Offer, model.EnqueueAfter, model.EnqueueWithin, model.EnqueueNow, model.Remove,
		}[r.IntN(8)]
		if a.op.Verb == model.EnqueueAfter || a.op.Verb == model.EnqueueWithin {
			a.op.Options.Delay = time.Duration(r.IntN(40 * int(time.Second)))
		}
		all = append(all, a)
	}
	for n := r.IntN(4); n > 0 && p.Workers == 1; n-- { // of several runs, which is given back first is open
		all = append(all, act{time.Duration(r.Int64N(int64(p.Length))), model.Op[string]{Item: "stop"}})
	}
	for i := 0; p.Polls && time.Duration(i)*period < p.Length; i++ {
		all = append(all, act{time.Duration(i) * period, model.Op[string]{Verb: model.Offer, Item: "every"}})
	}
	slices.SortStableFunc(all, func(a, b act) int { return int(a.at - b.at) })
	return all
}

func name(i int) string { return string(rune('a' + i)) }

// A Run is one run of an item, as it ended.
type Run struct {
	Item                   string
	Outcome                reconcile.Outcome
	Err                    string
	Failures               int
	Next, Waited, Duration time.Duration
	End                    time.Duration
}

// A slow is the simulation with the model of the queue.
type slow struct {
	Plan
	q       model.Queue[string]
	running []flight
	count   map[string]int
	admits  int
	results []Run
	gaveUp  map[string]error
}

type flight struct {
	item       string
	began, end time.Duration
	waited     time.Duration
	failures   int
	err        error
}

func newSlow(p Plan) *slow {
	return &slow{Plan: p, q: model.Queue[string]{Background: p.Background}, count: map[string]int{}, gaveUp: map[string]error{}}
}

// until lets time pass, and everything happen that is to happen by then.
func (s *slow) until(t time.Duration) {
	for {
		next, end := t, -1
		for i, f := range s.running {
			if f.end <= next {
				next, end = f.end, i
			}
		}
		if due, ok := s.q.NextDue(); ok && due < next {
			s.q.Advance(due - s.q.Now())
			s.take()
			continue
		}
		s.q.Advance(next - s.q.Now())
		if end < 0 {
			s.take()
			return
		}
		f := s.running[end]
		s.running = slices.Delete(s.running, end, end+1)
		s.finish(f)
		s.take()
	}
}

// take starts runs as long as there is a worker and an item.
func (s *slow) take() {
	for len(s.running) < s.Workers {
		before := s.q.Clone()
		item, a := s.q.TryDequeue()
		if a != model.Taken {
			return
		}
		was := before.State(item)
		took, err := s.Plan.run(item, s.count[item])
		if b, ok := err.(bad); ok {
			err = b.PanicError
		}
		s.count[item]++
		wait := s.admit(s.admits)
		s.admits++
		begin := s.q.Now() + wait
		s.running = append(s.running, flight{item, begin, begin + took, begin - was.Since, was.Failures, err})
	}
}

// finish ends a run.
func (s *slow) finish(f flight) {
	v := classify(f.err, f.failures+1, s.retry)
	r := Run{Item: f.item, Outcome: v.outcome, Err: fmt.Sprint(f.err), Waited: f.waited, Duration: f.end - f.began, End: s.q.Now()}
	if v.wait.Err != nil {
		r.Failures = f.failures + 1
	}
	if v.outcome.Failed() {
		if v.outcome == reconcile.OutcomeRetrying && s.Hold {
			v.wait.MinDelay = v.wait.Delay
		}
	}
	if v.wait.Done && v.wait.Err != nil {
		s.gaveUp[f.item] = v.wait.Err
	}
	r.Next = max(0, v.wait.Delay)
	s.results = append(s.results, r)
	s.q.Requeue(f.item, v.wait)
}

// State is that of the model.
func (s *slow) State(item string) model.State { return s.q.State(item) }

// do does what an act says.
func (s *slow) do(o model.Op[string]) {
	switch o.Item {
	case "stop":
		for _, f := range s.running {
			if s.q.Now() < f.began { // it has to wait again
				s.count[f.item]--
			} else {
				s.results = append(s.results, Run{
					Item: f.item, Outcome: reconcile.OutcomeAborted, Err: context.Canceled.Error(), Failures: f.failures, Waited: f.waited,
					Duration: s.q.Now() - f.began, End: s.q.Now(),
				})
			}
			s.q.Requeue(f.item, model.RequeueOptions{Aborted: true})
		}
		s.running = nil
	case "every":
		for i := range s.Items {
			s.q.Offer(name(i))
			if s.Background == 0 {
				s.take() // the order is the same
			}
		}
	default:
		o.Do(&s.q)
	}
	s.take()
}

// differ says how the state of a queue differs from that of the model. Two runs that end
// alike have two errors.
func differ(got reconcile.State, want model.State, start time.Time) error {
	if fmt.Sprint(got.Err) != fmt.Sprint(want.Err) {
		return fmt.Errorf("\n got the error %v\nwant %v", got.Err, want.Err)
	}
	got.Err, want.Err = nil, nil
	return lockstep.SameState(got, want, start)
}
