// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package leftovers checks that nothing stays behind: after each scenario the
// goroutines are those from before, the heap is as large, and what was used can
// be collected, which it cannot while a timer is armed that would call it.
package leftovers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/verify/chaos"
	"go.uber.org/goleak"
)

var during = flag.Duration("for", 0, "how long the chaos goes on")

func TestMain(m *testing.M) {
	slog.SetDefault(quiet) // Restart logs to it
	flag.Parse()
	haveGoroutines()
	os.Exit(m.Run())
}

// haveGoroutines starts more of them at once than any scenario does. The runtime
// keeps the descriptor of each on the heap, and uses it again. How many there are
// would otherwise depend on how many happened to exist at once.
func haveGoroutines() {
	var started, ended sync.WaitGroup
	end := make(chan struct{})
	for range 10_000 {
		started.Add(1)
		ended.Go(func() {
			started.Done()
			<-end
		})
	}
	started.Wait()
	close(end)
	ended.Wait()
}

var (
	quiet   = slog.New(slog.DiscardHandler)
	errBoom = errors.New("boom")
)

// rounds is how often a scenario is run. The first few are not counted: the
// runtime keeps stacks of goroutines for later.
const rounds, warmUp = 40, 10

// allowed is how much larger the heap may be at the end: less than what one
// chunk of records in each round would come to.
const allowed = 256 << 10

// A trace tells whether something can still be reached.
type trace func() bool

func of[T any](p *T) trace {
	w := weak.Make(p)
	return func() bool { return w.Value() != nil }
}

// patience is how long goroutines may take to end, on a machine that has much to do.
const patience = 30 * time.Second

// leaked returns an error if goroutines go on after a time.
func leaked(before goleak.Option, patience time.Duration) error {
	for began := time.Now(); ; {
		if err := goleak.Find(before); err == nil || time.Since(began) >= patience {
			return err
		}
	}
}

// left says what a scenario leaves behind; nothing, if it is empty.
func left(scenario func() []trace, patience time.Duration) (what []string) {
	before := goleak.IgnoreCurrent()
	var traces []trace
	var start uint64
	for n := range rounds {
		if n == warmUp {
			start = heap()
		}
		traces = append(traces, scenario()...)
	}
	if err := leaked(before, patience); err != nil {
		what = append(what, err.Error())
	}
	if end := heap(); end > start+allowed {
		what = append(what, "the heap grew by "+strconv.FormatUint((end-start)>>10, 10)+" KiB")
	}
	if n := reached(traces); n > len(traces)/4 {
		what = append(what, strconv.Itoa(n)+" of "+strconv.Itoa(len(traces))+" objects can still be reached")
	}
	return what
}

// reached counts the objects that can still be reached. That may be a few in any
// case, if a timer was stopped after heap looked.
func reached(traces []trace) (n int) {
	for _, reachable := range traces {
		if reachable() {
			n++
		}
	}
	return n
}

// heap is its size after all that is garbage has gone. The runtime forgets a timer
// that was stopped only when its processor next looks at its timers, and one that
// is idle may not: of many processors, several would keep a whole queue each. A
// processor that is taken away hands over its timers, without those.
func heap() uint64 {
	all := runtime.GOMAXPROCS(1)
	for range 4 { // what a cleanup or a pool lets go of takes another round
		runtime.GC()
		runtime.Gosched() // the one processor looks at its timers, and has the cleanups run
	}
	runtime.GOMAXPROCS(all)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

var scenarios = map[string]func() []trace{
	"a queue that was filled and drained": func() []trace {
		q := reconcile.NewQueue[int]()
		for i := range 2000 {
			q.Enqueue(i)
		}
		for range 2000 {
			item, _ := q.Dequeue(context.Background())
			q.Done(item)
		}
		return []trace{of(q)}
	},
	"a queue that was dropped with items in it": func() []trace {
		q := reconcile.NewQueue[int]()
		for i := range 2000 {
			q.Enqueue(i)
		}
		return []trace{of(q)}
	},
	"a queue that was closed while items waited": func() []trace {
		q := reconcile.NewQueue[int]()
		for i := range 2000 {
			q.EnqueueAfter(i, time.Hour+time.Duration(i))
		}
		q.Close()
		return []trace{of(q)}
	},
	"a queue whose waiting items were removed": func() []trace {
		q := reconcile.NewQueue[int]()
		for i := range 2000 {
			q.EnqueueWithin(i, time.Hour-time.Duration(i))
		}
		for i := range 2000 {
			q.Remove(i)
		}
		return []trace{of(q)}
	},
	"a queue whose settled items were offered": func() []trace {
		q := reconcile.NewQueue[int]()
		for i := range 2000 {
			q.Enqueue(i)
		}
		for range 2000 {
			item, _ := q.Dequeue(context.Background())
			q.Requeue(item, reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
		}
		for i := range 2000 {
			q.Offer(i)
		}
		return []trace{of(q)}
	},
	"a queue whose waiting items came sooner": func() []trace {
		q := reconcile.NewQueue[int]()
		for i := range 2000 {
			q.EnqueueWithin(i, time.Hour)
		}
		for i := range 2000 {
			q.EnqueueNow(i)
		}
		return []trace{of(q)}
	},
	"consumers that were canceled": func() []trace {
		q := reconcile.NewQueue[int]()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		for range 100 {
			go func() {
				_, _ = q.Dequeue(ctx)
				ended <- struct{}{}
			}()
		}
		cancel()
		for range 100 {
			<-ended
		}
		return []trace{of(q)}
	},
	"a reconciler that was ended in the midst of it": func() []trace {
		q := reconcile.NewQueue[int]()
		ctx, cancel := context.WithCancel(context.Background())
		var runs atomic.Int64
		r := &reconcile.Reconciler[int]{
			Queue: q, Workers: 20, Timeout: time.Hour, Grace: time.Hour, Logger: quiet,
			Reconcile: func(ctx context.Context, item int) error {
				if runs.Add(1) == 500 {
					cancel()
				}
				switch item % 9 {
				case 0:
					return errBoom
				case 1:
					panic(errBoom)
				case 2:
					runtime.Goexit()
				case 3:
					return reconcile.RequeueAfter(time.Hour)
				case 4:
					return reconcile.RequeueWithin(time.Hour)
				case 5:
					return reconcile.Terminal(errBoom)
				case 6:
					return fmt.Errorf("a reason: %w", reconcile.RequeueWithin(time.Hour))
				case 7:
					return reconcile.RecheckWithin(time.Hour)
				}
				return nil
			},
		}
		for i := range 1000 {
			q.Enqueue(i)
		}
		_ = r.Run(ctx)
		q.Close() // items wait in it
		return []trace{of(q), of(r)}
	},
	"runs that were cut short": func() []trace {
		q := reconcile.NewQueue[int]()
		ctx, cancel := context.WithCancel(context.Background())
		var runs atomic.Int64
		r := &reconcile.Reconciler[int]{
			Queue: q, Workers: 20, Timeout: time.Hour, Logger: quiet,
			Reconcile: func(ctx context.Context, _ int) error {
				if runs.Add(1) == 20 {
					cancel()
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}
		for i := range 100 {
			q.Enqueue(i)
		}
		_ = r.Run(ctx)
		return []trace{of(q), of(r)}
	},
	"leases that were lost": func() []trace {
		q := &lost{reconcile.NewQueue[int]()}
		var runs atomic.Int64
		ctx, cancel := context.WithCancel(context.Background())
		r := &reconcile.Reconciler[int]{
			Queue: q, Workers: 4, Timeout: time.Hour, Logger: quiet,
			Reconcile: func(ctx context.Context, _ int) error {
				<-ctx.Done()
				if runs.Add(1) == 100 {
					cancel()
				}
				return ctx.Err()
			},
		}
		for i := range 10 {
			q.Enqueue(i)
		}
		_ = r.Run(ctx)
		return []trace{of(q), of(q.Queue), of(r)}
	},
	"a group whose members come and go": func() []trace {
		q := reconcile.NewQueue[int]()
		g := &reconcile.Group{Logger: quiet}
		ctx, cancel := context.WithCancel(context.Background())
		polled := make(chan struct{}, 1)
		p := &reconcile.Poller[int]{Queue: q, Period: time.Hour, Logger: quiet, GetItems: func(context.Context) ([]int, error) {
			select {
			case polled <- struct{}{}:
			default:
			}
			return []int{1, 2, 3}, errBoom // it is to be tried again
		}}
		r := &reconcile.Reconciler[int]{Queue: q, Logger: quiet, Reconcile: func(context.Context, int) error { return nil }}
		channel := make(chan int)
		g.Add("poller", p)
		g.Add("channel", reconcile.Feed(q, reconcile.FromChan(channel)))
		g.Add("never ready", reconcile.After(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, r))
		g.Add("to be restarted in an hour", reconcile.Restart(reconcile.Backoff(time.Hour, time.Hour),
			reconcile.RunFunc(func(context.Context) error { return errBoom })))
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		<-polled
		channel <- 4
		for range 20 {
			stop := g.Add("passing", r)
			stop()
		}
		cancel()
		<-ended
		return []trace{of(q), of(g), of(p), of(r)}
	},
	"a group of which a member failed": func() []trace {
		q := reconcile.NewQueue[int]()
		g := &reconcile.Group{Logger: quiet}
		r := &reconcile.Reconciler[int]{Queue: q, Workers: 10, Logger: quiet, Reconcile: func(context.Context, int) error { return nil }}
		g.Add("reconciler", r)
		g.Add("failing", reconcile.RunFunc(func(context.Context) error { panic(errBoom) }))
		_ = g.Run(context.Background())
		return []trace{of(q), of(g), of(r)}
	},
	"list maps and references": func() []trace {
		l := reconcile.NewListMap[int]()
		refs := &reconcile.Refs[int, int]{}
		for i := range 2000 {
			l.AddItem(strconv.Itoa(i), i)
			refs.Set(i, i+1, i+2)
		}
		for i := range 2000 {
			l.RemoveItem(strconv.Itoa(i), func(int) bool { return true })
			refs.Set(i)
		}
		return []trace{of(l), of(refs)}
	},
}

// lost is a queue whose items are lost as soon as they are handed out.
type lost struct{ *reconcile.Queue[int] }

func (q *lost) Lease(ctx context.Context, _ int) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(reconcile.ErrLeaseLost)
	return ctx
}

func TestNothingIsLeft(t *testing.T) {
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			for _, what := range left(scenario, patience) {
				t.Error(what)
			}
		})
	}
}

// The chaos, by the real clock. What it leaves would be seen after one round as
// well as after many; for half an hour of it: go test -timeout 1h -for 30m ./leftovers
func TestNothingIsLeftOfChaos(t *testing.T) {
	before := goleak.IgnoreCurrent()
	var queues []trace
	round := func(seed uint64) {
		r := chaos.Run(chaos.Config{
			Seed: seed, Items: 1000, Changes: 20_000, Unit: time.Millisecond,
			Settle: chaos.Settle,
			Wrap: func(q *reconcile.Queue[int]) chaos.Queue {
				queues = append(queues, of(q))
				return q
			},
		})
		if len(r.Found) > 0 {
			t.Error(r.Found, r.First)
		}
	}
	round(1)
	start, begin := heap(), time.Now()
	for seed := uint64(2); seed < 7 || time.Since(begin) < *during; seed++ {
		round(seed)
	}
	if err := leaked(before, patience); err != nil {
		t.Error(err)
	}
	if end := heap(); end > start+allowed {
		t.Errorf("the heap grew from %d to %d KiB", start>>10, end>>10)
	}
	if n := reached(queues); n > len(queues)/2 {
		t.Errorf("%d of %d queues can still be reached", n, len(queues))
	}
}

var kept []*[4096]byte

// What is left must be seen, or these tests prove nothing.
func TestLeftoversAreSeen(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	for name, scenario := range map[string]func() []trace{
		"a goroutine": func() []trace {
			go func() { <-end }()
			return nil
		},
		"memory": func() []trace {
			for range 8 {
				kept = append(kept, new([4096]byte))
			}
			return nil
		},
		"the timer of a queue that was neither closed nor emptied": func() []trace {
			q := reconcile.NewQueue[int]()
			q.EnqueueAfter(1, time.Hour)
			return []trace{of(q)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			what := left(scenario, 0)
			t.Logf("%.200q", what)
			if len(what) == 0 {
				t.Error("not seen")
			}
		})
	}
}
