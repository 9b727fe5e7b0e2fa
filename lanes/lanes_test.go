// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package lanes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/lanes"
	"github.com/reconkernel/reconcile/supervise"
)

var (
	quiet = slog.New(slog.DiscardHandler)

	_ reconcile.Enqueuer[int] = (*lanes.Lanes[int, string])(nil)
	_ reconcile.Runner        = (*lanes.Lanes[int, string])(nil)
	_ interface{ EndLast() }  = (*lanes.Lanes[int, string])(nil) // as a Group asks
)

// byFirst returns Lanes of strings, whose lane is their first letter. Reconcilers that
// are made are noted, and so are runs. An item takes as long as it says after an @.
func byFirst(d *record.Journal) *lanes.Lanes[string, string] {
	return &lanes.Lanes[string, string]{
		Lane:   func(item string) string { return item[:1] },
		Logger: quiet,
		Reconciler: func(lane string) *reconcile.Reconciler[string] {
			d.Note("lane %s", lane)
			return &reconcile.Reconciler[string]{Grace: time.Minute, Reconcile: func(ctx context.Context, item string) error {
				d.Note("%s", item)
				if _, takes, ok := strings.Cut(item, "@"); ok {
					took, _ := time.ParseDuration(takes)
					select {
					case <-time.After(took):
					case <-ctx.Done():
					}
				}
				return ctx.Err()
			}}
		},
	}
}

// serve runs l, and returns what ends it and waits.
func serve(t *testing.T, l reconcile.Runner) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	synctest.Wait()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	}
}

// A lane that hangs does not hold up the others; each has its own order.
func TestHangingLaneDelaysNoOtherLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		l.Enqueue("a1@1h") // before Run
		defer serve(t, l)()
		l.EnqueueAfter("a2", time.Hour-time.Second) // The lane is not idle, with one in flight and one that waits.
		l.EnqueueAfter("b1@1s", time.Second)
		l.Offer("b2@10s")
		l.Offer("c1")
		time.Sleep(time.Minute)
		d.WantAll(t, "0s lane a", "0s a1@1h", "0s lane b", "0s b2@10s", "10s b1@1s", "0s lane c", "0s c1")
		time.Sleep(time.Hour)
		d.WantAll(t, "0s lane a", "0s a1@1h", "0s lane b", "0s b2@10s", "10s b1@1s", "0s lane c", "0s c1", "1h0m0s a2")
	})
}

// A lane without an item ends, and begins again with the next item. One that has but
// a look that is due goes on. The sums never fall.
func TestIdleLaneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		defer serve(t, l)()
		names := func() (names string) {
			for lane := range l.All() {
				names += lane
			}
			return names
		}
		time.Sleep(time.Second)
		l.Enqueue("a1")
		l.EnqueueAfter("b1", 3*time.Hour)
		time.Sleep(2*time.Minute - 2*time.Second)
		if got := names(); len(got) != 2 {
			t.Errorf("lanes %q after two minutes less a second, want both", got)
		}
		l.Enqueue("a2")
		time.Sleep(30 * time.Second)
		l.Enqueue("a3") // It still has its lane.
		time.Sleep(2*time.Minute + 2*time.Second)
		if got := names(); got != "b" {
			t.Errorf("lanes %q, want b alone", got)
		}
		if got, want := l.Stats(), (reconcile.Stats{Waiting: 1, Enqueued: 4, Taken: 3}); got != want {
			t.Errorf("Stats() = %+v, want %+v", got, want)
		}
		time.Sleep(time.Hour)
		l.Enqueue("a4")
		d.WantAll(t, "1s lane a", "1s a1", "1m59s a2", "2m29s a3", "1s lane b", "1h4m31s lane a", "1h4m31s a4")
		time.Sleep(4 * time.Hour)
		if got, want := l.Stats(), (reconcile.Stats{Enqueued: 5, Taken: 5}); got != want || names() != "" {
			t.Errorf("Stats() = %+v with lanes %q, want %+v with none", got, names(), want)
		}
	})
}

// What is left stays there for the next Run.
func TestRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		end := serve(t, l)
		l.Enqueue("a1@1h")
		l.Enqueue("a2")
		time.AfterFunc(time.Second, func() { // the run of a1 has its Grace
			if err := l.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "running already") {
				t.Errorf("Run while an earlier one ends = %v, want an error", err)
			}
		})
		synctest.Wait()
		end()
		l.Enqueue("b1")
		time.Sleep(time.Hour)
		d.WantAll(t, "0s lane a", "0s a1@1h", "1m0s lane b")
		end = serve(t, l)
		synctest.Wait()
		end()
		d.WantAll(t, "0s lane a", "0s a1@1h", "1m0s lane b", "1h1m0s lane a", "1h1m0s b1", "1h1m0s a2", "1h1m0s a1@1h")
	})
}

// heldDone is a context that holds the next caller of Done until held is closed, if armed.
type heldDone struct {
	context.Context
	armed atomic.Bool
	held  chan struct{}
}

func (c *heldDone) Done() <-chan struct{} {
	if c.armed.CompareAndSwap(true, false) {
		<-c.held
	}
	return c.Context.Done()
}

// A lane that became idle just when Run ended stays for the next Run. Whether the check of
// idle lanes comes before the end of Run is decided at random.
func TestIdleLaneIsThereForTheNextRun(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := record.New()
			l := byFirst(d)
			parent, cancel := context.WithCancel(t.Context())
			ctx := &heldDone{Context: parent, held: make(chan struct{})}
			ended := make(chan error)
			go func() { ended <- l.Run(ctx) }()
			synctest.Wait()
			l.Enqueue("a1")
			time.Sleep(59 * time.Second)
			ctx.armed.Store(true) // for the check after 1m, which finds the lane idle
			time.Sleep(2 * time.Minute)
			cancel()
			synctest.Wait() // the lane has stopped, and both its check and the end are due
			close(ctx.held)
			if err := <-ended; err != nil {
				t.Error(err)
			}
			l.Enqueue("a2")
			end := serve(t, l)
			end()
			d.WantAll(t, "0s lane a", "0s a1", "2m59s lane a", "2m59s a2")
		})
	}
}

// A lane whose Reconciler cannot be created or cannot run is retried alone, with
// back-off, and logged by count.
func TestFailedLaneIsRestartedAlone(t *testing.T) {
	for want, r := range map[string]func(string) *reconcile.Reconciler[string]{
		"Reconciler.Workers is -1": func(string) *reconcile.Reconciler[string] {
			return &reconcile.Reconciler[string]{Workers: -1, Reconcile: func(context.Context, string) error { return nil }}
		},
		"Lanes.Reconciler returned nil": func(string) *reconcile.Reconciler[string] { return nil },
		"panic: no region":              func(string) *reconcile.Reconciler[string] { panic("no region") },
		"runtime.Goexit called":         func(string) *reconcile.Reconciler[string] { runtime.Goexit(); return nil },
		"permanent": func(string) *reconcile.Reconciler[string] {
			return &reconcile.Reconciler[string]{
				Reconcile: func(context.Context, string) error { return nil },
				Admit: func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
					return nil, reconcile.Terminal(errors.New("permanent"))
				},
			}
		},
		"cannot be asked": func(string) *reconcile.Reconciler[string] {
			return &reconcile.Reconciler[string]{
				Reconcile: func(context.Context, string) error { return nil },
				Admit: func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
					return nil, unaskable{}
				},
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := record.New()
			l := byFirst(d)
			l.MaxRunning = 1 // A lane in back-off does not occupy a turn.
			var text record.Text
			l.Logger = slog.New(slog.NewTextHandler(&text, nil))
			good := l.Reconciler
			var calls atomic.Int32
			l.Reconciler = func(lane string) *reconcile.Reconciler[string] {
				if lane == "x" && d.Elapsed() < time.Hour {
					calls.Add(1)
					return r(lane)
				}
				return good(lane)
			}
			defer serve(t, l)()
			l.Enqueue("x1")
			l.EnqueueAfter("x2", time.Hour)
			l.Enqueue("a1@10m")
			time.Sleep(59 * time.Minute)
			synctest.Wait()
			d.WantAll(t, "0s lane a", "0s a1@10m")
			if n := calls.Load(); n < 10 || n > 40 {
				t.Errorf("%s: Reconciler was called %d times in an hour, want a back-off of 5m", want, n)
			}
			if stack := strings.HasPrefix(want, "panic") || strings.HasPrefix(want, "runtime"); strings.Contains(text.String(), "stack=") != stack {
				t.Errorf("%s: a stack is logged: %v, want %v", want, !stack, stack)
			}
			if n := strings.Count(text.String(), want); n < 3 || n > 6 || !strings.Contains(text.String(), "lane=x failures=4") {
				t.Errorf("%s: %d lines, want one each time that the failures have doubled:\n%s", want, n, text.String())
			}
			time.Sleep(10 * time.Minute)
			if known := l.Stats(); known.Taken < 3 || known.Ready != 0 {
				t.Errorf("%s: Stats() = %+v after the lane was repaired, want x1 and x2 taken", want, known)
			}
		})
	}
}

// A lane that failed after a minute is restarted as after its first failure. One without an
// item is not restarted.
func TestBackOffOfALaneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		l := byFirst(record.New())
		l.Reconciler = func(lane string) *reconcile.Reconciler[string] {
			if lane == "b" {
				return nil
			}
			calls.Add(1)
			return &reconcile.Reconciler[string]{
				Reconcile: func(context.Context, string) error { return nil },
				Admit: func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
					time.Sleep(time.Minute)
					return nil, errors.New("no")
				},
			}
		}
		defer serve(t, l)()
		l.Enqueue("a1")
		l.Enqueue("b1")
		l.Remove("b1")
		time.Sleep(30 * time.Minute)
		if n := calls.Load(); n < 29 {
			t.Errorf("Reconciler was called %d times in 30 minutes, want one each 61 seconds", n)
		}
	})
}

// An unaskable error panics when it is asked for another error in it.
type unaskable struct{}

func (unaskable) Error() string { return "cannot be asked" }

func (unaskable) As(any) bool { panic("asked") }

// Ended is called once for each lane that ended, before the lane is created anew, and no
// item is lost meanwhile. Ending does not concern other lanes.
func TestEndedBeforeTheLaneIsCreatedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		var text record.Text
		l.Logger = slog.New(slog.NewTextHandler(&text, nil))
		l.Ended = func(lane string) {
			d.Note("ends %s", lane)
			time.Sleep(10 * time.Second)
			d.Note("ended %s", lane)
			panic("the metrics are gone")
		}
		defer serve(t, l)()
		l.Enqueue("a1")
		time.Sleep(2*time.Minute + 5*time.Second)
		l.EnqueueNow("a2") // while Ended goes on
		if got := d.Elapsed(); got != 2*time.Minute+10*time.Second {
			t.Errorf("EnqueueNow returned after %v, want 2m10s", got)
		}
		synctest.Wait()
		d.WantAll(t, "0s lane a", "0s a1", "2m0s ends a", "2m10s ended a", "2m10s lane a", "2m10s a2")
		if log := text.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "the metrics are gone") {
			t.Errorf("log %q, want a line for the panic of Ended", log)
		}
	})
}

// The verbs of a queue that an Enqueuer lacks act on the lane of the item.
func TestVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		defer serve(t, l)()
		if l.Remove("z1") {
			t.Error("Remove of an unknown item = true")
		}
		l.EnqueueAfter("a1", time.Hour)
		l.EnqueueWithin("a2", time.Minute)
		l.EnqueueAfter("a3", time.Minute)
		if !l.Remove("a3") {
			t.Error("Remove of an item that waits = false")
		}
		time.Sleep(time.Second)
		l.EnqueueNow("a1")
		time.Sleep(time.Hour)
		d.WantAll(t, "0s lane a", "1s a1", "1m0s a2")
	})
}

// The queue of a lane has the fields of the one that the factory set. A verb waits until
// the lane is created.
func TestLaneQueueHasTheFieldsOfTheFactorysQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := byFirst(record.New())
		made := l.Reconciler
		l.Reconciler = func(lane string) *reconcile.Reconciler[string] {
			go l.Enqueue("a2")
			synctest.Wait()
			r := made(lane)
			q := reconcile.NewQueue[string]()
			q.Background = 8
			r.Queue = q
			return r
		}
		l.Enqueue("a1")
		synctest.Wait()
		for _, q := range l.All() {
			if q.Background != 8 || q.Len() != 2 {
				t.Errorf("Background = %d with %d items, want 8 with both", q.Background, q.Len())
			}
		}
	})
}

// No more than MaxRunning lanes run at once. The others take turns in the order in which
// they came, also if a lane has an item that is due later.
func TestMaxRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		l.MaxRunning = 2
		end := serve(t, l)
		for _, item := range []string{"a1@9.5s", "b1@1h", "b2", "c1@19.5s", "d1"} {
			l.Enqueue(item)
			synctest.Wait()
		}
		l.EnqueueAfter("a2", time.Minute-500*time.Millisecond) // a is never idle
		time.Sleep(29 * time.Second)
		d.WantAll(t, "0s lane a", "0s a1@9.5s", "0s lane b", "0s b1@1h", "0s lane c", "10s c1@19.5s", "0s lane d")
		time.Sleep(6*time.Second + 500*time.Millisecond)
		d.WantAll(t, "0s lane a", "0s a1@9.5s", "0s lane b", "0s b1@1h", "0s lane c", "10s c1@19.5s", "0s lane d", "30s d1")
		l.Enqueue("c2") // It waits for its turn at once.
		l.Enqueue("c3")
		time.Sleep(time.Minute)
		d.WantAll(t, "0s lane a", "0s a1@9.5s", "0s lane b", "0s b1@1h", "0s lane c", "10s c1@19.5s", "0s lane d", "30s d1", "36s c2", "36s c3", "1m1s a2")
		time.Sleep(2 * time.Minute)
		go l.Enqueue("c4") // The lane has ended, although it was parked, and is created anew.
		time.Sleep(time.Second)
		end()
		if s := l.Stats(); s.Waiting+s.InFlight != 0 || s.Ready != 2 { // b1 was aborted
			t.Errorf("Stats() = %+v, want b1 and b2 ready", s)
		}
	})
}

// A lane that ends while it waits for its turn leaves its place to the next.
func TestLaneThatEndsLeavesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		l.MaxRunning = 1
		defer serve(t, l)()
		for _, item := range []string{"a1@9m30.5s", "b1", "c1"} {
			l.Enqueue(item)
			synctest.Wait()
		}
		l.Remove("b1")
		time.Sleep(time.Hour)
		d.WantAll(t, "0s lane a", "0s a1@9m30.5s", "0s lane b", "0s lane c", "9m31s c1")
	})
}

// A thousand lanes end in the same minute.
func TestManyIdleLanesEndAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		ended := 0
		var mu sync.Mutex
		l := &lanes.Lanes[int, int]{
			Lane: func(item int) int { return item },
			Reconciler: func(int) *reconcile.Reconciler[int] {
				return &reconcile.Reconciler[int]{Reconcile: func(context.Context, int) error { return nil }}
			},
			Ended:  func(int) { mu.Lock(); ended++; mu.Unlock() },
			Logger: quiet,
		}
		defer serve(t, l)()
		for i := range n {
			l.Enqueue(i)
		}
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if got := l.Stats(); ended != n || got.Taken != n {
			t.Errorf("%d of %d lanes ended, Stats() = %+v", ended, n, got)
		}
	})
}

// A withoutAttrs is a log handler that panics when a lane adds its name.
type withoutAttrs struct{ slog.Handler }

func (withoutAttrs) WithAttrs([]slog.Attr) slog.Handler { panic("no attributes") }

// A log handler that panics stops no lane.
func TestPanicInWithAttrsStopsNoLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		l.Logger = slog.New(withoutAttrs{slog.DiscardHandler})
		defer serve(t, l)()
		l.Enqueue("a1")
		synctest.Wait()
		d.WantAll(t, "0s lane a", "0s a1")
	})
}

// A nil Logger is that of the Group.
func TestNilLoggerIsTheGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := byFirst(record.New())
		l.Logger = nil
		l.Reconciler = func(string) *reconcile.Reconciler[string] {
			return &reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error { return reconcile.Terminal(errors.New("boom")) }}
		}
		g := &supervise.Group{Logger: slog.New(slog.NewTextHandler(&text, nil))}
		g.Add("vms", l)
		defer serve(t, g)()
		l.Enqueue("a1")
		synctest.Wait()
		if !strings.Contains(text.String(), "member=vms lane=a") {
			t.Errorf("log %q, want the line of the run, with member and lane", &text)
		}
	})
}

func TestFieldsAreChecked(t *testing.T) {
	l := byFirst(record.New())
	lane := l.Lane
	l.Lane = nil
	refuses := func(want string) {
		t.Helper()
		if err := l.Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || err.Error() != want {
			t.Errorf("Run = %v, want the terminal error %q", err, want)
		}
	}
	refuses("lanes: Lanes.Lane is required, and nil")
	panics := func(want string, f func()) {
		t.Helper()
		defer func() {
			if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
				t.Errorf("it panics with %v, want %q", got, want)
			}
		}()
		f()
	}
	panics("lanes: Lanes.Lane is required, and nil", func() { l.Enqueue("a") })
	l.Lane, l.MaxRunning = lane, -1
	refuses("lanes: Lanes.MaxRunning is -1, want 0 (which means no limit) or more")
	l.Reconciler = nil
	refuses("lanes: Lanes.Reconciler is required, and nil")
	floats := &lanes.Lanes[float64, float64]{Lane: func(f float64) float64 { return f }}
	panics("lanes: Lane returned NaN, which is not equal to itself", func() { floats.Enqueue(math.NaN()) })
	floats.Lane = func(float64) float64 { return 1 }
	panics("NaN", func() { floats.Enqueue(math.NaN()) })
	for lane := range floats.All() {
		t.Errorf("lane %v is there, though its item was refused", lane)
	}
	synctest.Test(t, func(t *testing.T) {
		pointers := &lanes.Lanes[*int, int]{Lane: func(*int) int { return 1 }, Reconciler: func(int) *reconcile.Reconciler[*int] { return nil }}
		defer serve(t, pointers)()
		for range 2 { // The first one left no lane that the second one waits for.
			panics("NewQueue[*int]", func() { pointers.Enqueue(new(int)) })
		}
	})
}

// Items come at any time, at those too at which lanes end: each is run after its last
// Enqueue, never twice at once.
func TestNothingIsLostWhileLanesEnd(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			enqueued, ran, running := map[int]time.Time{}, map[int]time.Time{}, map[int]bool{}
			made := 0
			l := &lanes.Lanes[int, int]{
				Lane: func(item int) int { return item % 5 },
				Reconciler: func(int) *reconcile.Reconciler[int] {
					mu.Lock()
					made++
					mu.Unlock()
					return &reconcile.Reconciler[int]{Logger: quiet, Workers: 2, Reconcile: func(_ context.Context, item int) error {
						mu.Lock()
						if running[item] {
							t.Errorf("seed %d: item %d runs twice", seed, item)
						}
						running[item], ran[item] = true, time.Now()
						mu.Unlock()
						time.Sleep(time.Second)
						mu.Lock()
						running[item] = false
						mu.Unlock()
						return nil
					}}
				},
				Logger: quiet,
			}
			end := serve(t, l)
			for range 300 {
				time.Sleep(time.Duration(r.IntN(3)) * time.Minute) // as the looks at what is idle
				item := r.IntN(20)
				mu.Lock()
				enqueued[item] = time.Now()
				mu.Unlock()
				l.Enqueue(item)
			}
			time.Sleep(time.Minute)
			end()
			for item, at := range enqueued {
				if ran[item].Before(at) {
					t.Errorf("seed %d: item %d was enqueued at %v, and ran at %v", seed, item, at, ran[item])
				}
			}
			if s := l.Stats(); s.Taken < uint64(len(enqueued)) || s.Enqueued+s.Coalesced != 300 || made <= 5 {
				t.Errorf("seed %d: Stats() = %+v with %d lanes made, want 300 enqueued and lanes that end", seed, s, made)
			}
		})
	}
}
