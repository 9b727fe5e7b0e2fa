// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
)

var (
	seed = flag.Uint64("seed", 1, "of the first simulation; the others follow")
	runs = flag.Int("simulations", 500, "how many of each test; of errors a hundred times as many")
)

// TestClassify compares Classify with the one that anybody can read.
func TestClassify(t *testing.T) {
	for s := range uint64(100 * *runs) {
		r := rand.New(rand.NewPCG(*seed+s, 3))
		err := randomError(r, 0, func() time.Duration { return time.Duration(r.IntN(7)-1) * time.Minute })
		policy := func(_ error, n int) (time.Duration, bool) { return time.Duration(n) * time.Minute, n < 4 }
		failures := 1 + r.IntN(4)
		got, wait := reconcile.Classify(err, failures, policy)
		want := classify(err, failures, policy)
		if got != want.outcome || fmt.Sprint(wait) != fmt.Sprint(reconcile.RequeueOptions(want.wait)) {
			t.Fatalf("seed %d: Classify(%#v, %d)\n%v\n got %s, %+v\nwant %s, %+v", *seed+s, err, failures, err, got, wait, want.outcome, want.wait)
		}
	}
}

// An otherQueue is a Dequeuer that is no *Queue for the Reconciler.
type otherQueue struct{ *reconcile.Queue[string] }

// TestSimulation compares the loop with the one that anybody can read.
func TestSimulation(t *testing.T) {
	results := 0
	for s := range uint64(*runs) {
		p := newPlan(*seed + s)
		synctest.Test(t, func(t *testing.T) { results += simulate(t, p) })
		if t.Failed() {
			t.Fatalf("seed %d: %+v", p.Seed, p)
		}
	}
	t.Logf("%d simulations, %d runs", *runs, results)
}

func simulate(t *testing.T, p Plan) int {
	start := time.Now()
	q := reconcile.NewQueue[string]()
	q.Background = p.Background
	model := newSlow(p)
	var mu sync.Mutex
	var results []Run
	count := map[string]int{}
	left, admitted, admits := 0, 0, 0
	r := &reconcile.Reconciler[string]{
		Queue: q, Workers: p.Workers, HoldRetries: p.Hold, Retry: p.retry, Logger: slog.New(slog.DiscardHandler),
		Reconcile: func(ctx context.Context, item string) error {
			mu.Lock()
			n := count[item]
			count[item]++
			mu.Unlock()
			took, err := p.run(item, n)
			select {
			case <-time.After(took):
				return end(err)
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		OnResult: func(r reconcile.Result[string]) {
			mu.Lock()
			defer mu.Unlock()
			results = append(results, Run{
				r.Item, r.Outcome, fmt.Sprint(r.Err), r.Failures, r.Next, r.Waited, r.Duration, time.Since(start),
			})
		},
	}
	isForeign := p.Seed%3 == 1
	if isForeign {
		r.Queue = otherQueue{q}
	}
	if p.Seed%5 == 2 {
		r.Admit = func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
			mu.Lock()
			defer mu.Unlock()
			wait := p.admit(admits)
			admits++
			mu.Unlock()
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			mu.Lock()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			admitted++
			return func(reconcile.Outcome, error, time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				left++
			}, nil
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	begin := func() (end func()) { // of a Run
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
	end := begin()
	if p.Polls {
		poller := &reconcile.Poller[string]{
			Queue: q, Period: period, Logger: r.Logger,
			GetItems: func(context.Context) (items []string, err error) {
				for i := range p.Items {
					items = append(items, name(i))
				}
				return items, nil
			},
		}
		all.Go(func() {
			if err := poller.Run(ctx); err != nil {
				t.Errorf("Poller: %v", err)
			}
		})
	}
	var did []string
	compare := func(what string) bool {
		t.Helper()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		got := slices.Clone(results)
		if isForeign { // it does not tell how long an item was ready
			for i := range got {
				got[i].Waited = model.results[min(i, len(model.results)-1)].Waited
			}
		}
		if !slices.Equal(got, model.results) {
			n := 0
			for n < min(len(got), len(model.results)) && got[n] == model.results[n] {
				n++
			}
			t.Errorf("%s: results differ from number %d on:\n got %+v\nwant %+v\nafter\n%s", what, n, got[n:], model.results[n:], strings.Join(did, "\n"))
			return false
		}
		for i := range p.Items {
			if err := differ(q.State(name(i)), model.State(name(i)), start); err != nil {
				t.Errorf("%s: State(%s)%v\nafter\n%s", what, name(i), err, strings.Join(did, "\n"))
				return false
			}
		}
		if got, want := q.Stats(), reconcile.Stats(model.q.Stats()); got != want {
			t.Errorf("%s: Stats\n got %+v\nwant %+v\nafter\n%s", what, got, want, strings.Join(did, "\n"))
			return false
		}
		if left > admitted || admitted-left > p.Workers {
			t.Errorf("%s: %d admitted, %d left", what, admitted, left)
			return false
		}
		return true
	}
	for _, a := range p.acts() {
		if a.op.Item != "every" { // just before
			time.Sleep(time.Until(start.Add(a.at)) - 1)
			model.until(max(0, a.at-1))
			if !compare(fmt.Sprintf("%v, before %v", a.at, a.op)) {
				break
			}
		}
		time.Sleep(time.Until(start.Add(a.at)))
		did = append(did, fmt.Sprint(a.at, " ", a.op))
		model.until(a.at)
		switch a.op.Item {
		case "every": // the poller does it
		case "stop":
			end()
			end = begin()
		default:
			a.op.Do(lockstep.On(q))
		}
		model.do(a.op)
		if !compare(fmt.Sprintf("%v, after %v", a.at, a.op)) {
			break
		}
	}
	end()
	cancel()
	q.Close()
	all.Wait()
	return len(results)
}

// TestApply compares what Apply returns with the loop that anybody can read.
func TestApply(t *testing.T) {
	ends := map[string]int{}
	for s := range uint64(*runs) {
		p := newPlan(*seed + s)
		p.Background = 0 // The queue of Apply has none.
		synctest.Test(t, func(t *testing.T) {
			limit := time.Duration(1 + rand.New(rand.NewPCG(p.Seed, 4)).Int64N(int64(3*time.Minute)))
			want, how := applied(p, limit)
			ends[how]++
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var mu sync.Mutex
			count := map[string]int{}
			r := &reconcile.Reconciler[string]{
				Workers: p.Workers, HoldRetries: p.Hold, Retry: p.retry, Logger: slog.New(slog.DiscardHandler),
				Reconcile: func(_ context.Context, item string) error {
					mu.Lock()
					n := count[item]
					count[item]++
					mu.Unlock()
					took, err := p.run(item, n)
					time.Sleep(took)
					return end(err)
				},
			}
			var items []string
			for i := range p.Items {
				items = append(items, name(i))
			}
			if got := fmt.Sprint(r.Apply(ctx, items...)); got != want {
				t.Errorf("seed %d: Apply within %v\n got %s\nwant %s", p.Seed, limit, got, want)
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%v", ends)
}

// applied is what Apply is to return, and how it ends.
func applied(p Plan, limit time.Duration) (text, how string) {
	p.Admits = false
	s := newSlow(p)
	for i := range p.Items {
		s.q.Enqueue(name(i))
	}
	s.take()
	ended := map[string]error{} // of those that were at rest first, why they were given up
	for {
		for i := range p.Items {
			if _, ok := ended[name(i)]; !ok && s.q.AtRest(name(i)) {
				ended[name(i)] = s.gaveUp[name(i)]
			}
		}
		if s.q.Now() >= limit || len(ended) == p.Items {
			break
		}
		next := limit
		for _, f := range s.running {
			next = min(next, f.end)
		}
		if due, ok := s.q.NextDue(); ok {
			next = min(next, due)
		}
		s.until(next)
	}
	var lines []string
	how = "well"
	if left := p.Items - len(ended); left > 0 {
		how = "left"
		lines = append(lines, fmt.Sprintf("reconcile: %d of %d items are left: context deadline exceeded", left, p.Items))
		named := 0
		for i := range p.Items {
			st := s.State(name(i))
			if _, ok := ended[name(i)]; ok || named == 3 {
				continue
			}
			named++
			line := fmt.Sprintf("item %s is %v", name(i), reconcile.Phase(st.Phase))
			if st.Failures > 0 {
				line += fmt.Sprintf(", after %d failures in a row", st.Failures)
			}
			if st.Err != nil {
				line += fmt.Sprintf(": %v", st.Err)
			}
			lines = append(lines, line)
		}
	}
	for i := range p.Items {
		if err := ended[name(i)]; err != nil {
			how += ", gave up"
			lines = append(lines, fmt.Sprintf("item %s: %v", name(i), err))
		}
	}
	if len(lines) == 0 {
		return "<nil>", how
	}
	return strings.Join(lines, "\n"), how
}
