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
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/lanes"
)

var (
	quiet = slog.New(slog.DiscardHandler)

	_ reconcile.Enqueuer[int] = (*lanes.Lanes[int, string])(nil)
	_ reconcile.Runner        = (*lanes.Lanes[int, string])(nil)
)

// byFirst returns Lanes of strings, whose lane is their first letter. Reconcilers that
// are made are noted, and so are runs. An item takes as long as it says after an @.
func byFirst(d *record.Journal) *lanes.Lanes[string, string] {
	return &lanes.Lanes[string, string]{
		Lane:   func(item string) string { return item[:1] },
		Logger: quiet,
		Reconciler: func(lane string) *reconcile.Reconciler[string] {
			d.Note("lane %s", lane)
			return &reconcile.Reconciler[string]{Reconcile: func(ctx context.Context, item string) error {
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
func TestALaneThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := record.New()
		l := byFirst(d)
		l.Enqueue("a1@1h") // before Run
		defer serve(t, l)()
		l.Enqueue("a2")
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
func TestAnIdleLaneEnds(t *testing.T) {
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
		time.Sleep(2*time.Minute + 2*time.Second)
		if got := names(); got != "b" {
			t.Errorf("lanes %q, want b alone", got)
		}
		if got, want := l.Stats(), (reconcile.Stats{Waiting: 1, Enqueued: 3, Taken: 2}); got != want {
			t.Errorf("Stats() = %+v, want %+v", got, want)
		}
		time.Sleep(time.Hour)
		l.Enqueue("a3")
		d.WantAll(t, "1s lane a", "1s a1", "1m59s a2", "1s lane b", "1h4m1s lane a", "1h4m1s a3")
		time.Sleep(4 * time.Hour)
		if got, want := l.Stats(), (reconcile.Stats{Enqueued: 4, Taken: 4}); got != want || names() != "" {
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
		synctest.Wait()
		if err := l.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("Run while it runs = %v, want an error", err)
		}
		end()
		l.Enqueue("b1")
		time.Sleep(time.Hour)
		d.WantAll(t, "0s lane a", "0s a1@1h")
		end = serve(t, l)
		synctest.Wait()
		end()
		d.WantAll(t, "0s lane a", "0s a1@1h", "1h0m0s lane a", "1h0m0s lane b", "1h0m0s b1", "1h0m0s a2", "1h0m0s a1@1h")
	})
}

// A Reconciler that cannot run ends Run, with the name of its lane.
func TestALaneThatCannotRunEndsAll(t *testing.T) {
	for want, r := range map[string]func(string) *reconcile.Reconciler[string]{
		"lane x: reconcile: Reconciler.Workers is -1": func(string) *reconcile.Reconciler[string] {
			return &reconcile.Reconciler[string]{Workers: -1, Reconcile: func(context.Context, string) error { return nil }}
		},
		"lane x: lanes: Lanes.Reconciler returned nil": func(string) *reconcile.Reconciler[string] { return nil },
		"lane x: panic: no region":                     func(string) *reconcile.Reconciler[string] { panic("no region") },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := record.New()
			l := byFirst(d)
			good := l.Reconciler
			l.Reconciler = func(lane string) *reconcile.Reconciler[string] {
				if lane == "x" {
					return r(lane)
				}
				return good(lane)
			}
			time.AfterFunc(time.Minute, func() { l.Enqueue("x1") })
			l.Enqueue("a1@1h")
			if err := l.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || d.Elapsed() != time.Minute {
				t.Errorf("Run = %v after %v, want %q after a minute", err, d.Elapsed(), want)
			}
		})
	}
}

func TestFieldsAreChecked(t *testing.T) {
	l := byFirst(record.New())
	lane := l.Lane
	l.Lane = nil
	if err := l.Run(t.Context()); err == nil || err.Error() != "lanes: Lanes.Lane is required, and nil" {
		t.Errorf("Run = %v", err)
	}
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
	l.Lane, l.Reconciler = lane, nil
	if err := l.Run(t.Context()); err == nil || err.Error() != "lanes: Lanes.Reconciler is required, and nil" {
		t.Errorf("Run = %v", err)
	}
	floats := &lanes.Lanes[float64, float64]{Lane: func(f float64) float64 { return f }}
	panics("lanes: Lane returned NaN, which is not equal to itself", func() { floats.Enqueue(math.NaN()) })
	floats.Lane = func(float64) float64 { return 1 }
	panics("NaN", func() { floats.Enqueue(math.NaN()) })
	for lane := range floats.All() {
		t.Errorf("lane %v is there, though its item was refused", lane)
	}
}

// Reconcilers without a logger log their lane.
func TestLinesHaveTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := &lanes.Lanes[string, int]{
			Lane:   func(item string) int { return len(item) },
			Logger: slog.New(slog.NewTextHandler(&text, nil)),
			Reconciler: func(int) *reconcile.Reconciler[string] {
				return &reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error { return reconcile.Terminal(errors.New("boom")) }}
			},
		}
		defer serve(t, l)()
		l.Enqueue("abc")
		synctest.Wait()
		if !strings.Contains(text.String(), " lane=3 ") {
			t.Errorf("log %s, want the lane", &text)
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

// A Group ends Lanes as a Reconciler: a feeder that waits for its item can end.
func TestGroupEndsLanesAfterWhatFeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		l := &lanes.Lanes[string, string]{
			Lane: func(item string) string { return item[:1] },
			Reconciler: func(string) *reconcile.Reconciler[string] {
				return &reconcile.Reconciler[string]{Logger: quiet, Reconcile: func(context.Context, string) error { close(done); return nil }}
			},
			Logger: quiet,
		}
		var g reconcile.Group
		g.Add("lanes", l)
		g.Add("feeder", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			l.Enqueue("last")
			select {
			case <-done:
				return nil
			case <-time.After(time.Hour):
				return errors.New("the lanes were ended before")
			}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}
