// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestTriggerBeforeRunAsksForNoMoreThanTheFirstPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: 10 * time.Second}
		p.Trigger()
		p.Trigger()
		wantStarts(t, polls(t, p, 25*time.Second, none), 0, 10*time.Second, 20*time.Second)
	})
}

func TestTriggerPollsAtOnceAndMovesThePollsAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: 10 * time.Second}
		time.AfterFunc(14*time.Second, p.Trigger)
		wantStarts(t, polls(t, p, 40*time.Second, none), 0, 10*time.Second, 14*time.Second, 24*time.Second, 34*time.Second)
	})
}

func TestTriggersBeforeTheNextPollCountAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: 10 * time.Second}
		starts := polls(t, p, 30*time.Second, func(n int) ([]string, error) {
			if n == 2 {
				var callers sync.WaitGroup
				for range 50 {
					callers.Go(p.Trigger)
				}
				callers.Wait()
			}
			time.Sleep(time.Second)
			return nil, nil
		})
		wantStarts(t, starts, 0, 10*time.Second, 11*time.Second, 21*time.Second)
	})
}

// An askedContext calls a function when it is first asked whether it is done.
type askedContext struct {
	context.Context
	asked func()
}

func (c askedContext) Err() error {
	c.asked()
	return c.Context.Err()
}

// A trigger in the moment before a poll is answered by that poll.
func TestTriggerRightBeforeAPollAsksForNoMoreThanThatPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Duration
		began := time.Now()
		p := &reconcile.Poller[string]{
			Queue: reconcile.NewQueue[string](),
			GetItems: func(context.Context) ([]string, error) {
				starts = append(starts, time.Since(began))
				return nil, nil
			},
			Period: 10 * time.Second,
		}
		var once sync.Once
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if err := p.Run(askedContext{ctx, func() { once.Do(p.Trigger) }}); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		wantStarts(t, starts, 0, 10*time.Second)
	})
}

func TestTriggerDuringAPollLeadsToAnotherAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: 10 * time.Second}
		for _, at := range []time.Duration{11 * time.Second, 12 * time.Second, 12 * time.Second} {
			time.AfterFunc(at, p.Trigger)
		}
		starts := polls(t, p, 30*time.Second, func(int) ([]string, error) {
			time.Sleep(3 * time.Second)
			return nil, nil
		})
		wantStarts(t, starts, 0, 10*time.Second, 13*time.Second, 23*time.Second)
	})
}

func TestTriggerEndsThePauseAfterASlowPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: 10 * time.Second}
		time.AfterFunc(17*time.Second, p.Trigger)
		starts := polls(t, p, 29*time.Second, func(n int) ([]string, error) {
			if n == 1 {
				time.Sleep(15 * time.Second)
			}
			return nil, nil
		})
		wantStarts(t, starts, 0, 17*time.Second, 27*time.Second)
	})
}

func TestTriggerEndsABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: time.Hour}
		time.AfterFunc(400*time.Millisecond, p.Trigger)
		starts := polls(t, p, time.Minute, func(n int) ([]string, error) {
			if n == 1 {
				return nil, errBoom
			}
			return nil, nil
		})
		wantStarts(t, starts, 0, 400*time.Millisecond)
	})
}

// A trigger that nobody serves is not lost: it is for the next Run.
func TestTriggerAfterRunDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: 10 * time.Second}
		wantStarts(t, polls(t, p, 5*time.Second, none), 0)
		p.Trigger()
		p.Trigger()
		wantStarts(t, polls(t, p, 15*time.Second, none), 0, 10*time.Second)
	})
}

func TestPollerJitterKeepsStartsWithinItsBoundsAndApart(t *testing.T) {
	for _, jitter := range []float64{0.1, 0.5, 1} {
		synctest.Test(t, func(t *testing.T) {
			const period = 10 * time.Second
			p := &reconcile.Poller[string]{Period: period, Jitter: jitter}
			starts := polls(t, p, time.Hour, none)
			low := period - time.Duration(jitter*float64(period))
			high := period + time.Duration(jitter*float64(period))
			var shorter, longer int
			for i, start := range starts[1:] {
				gap := start - starts[i]
				if gap < low || gap > high {
					t.Errorf("Jitter %v: polls begin %v apart, want in [%v, %v]", jitter, gap, low, high)
				}
				if gap < period-(period-low)/2 {
					shorter++
				}
				if gap > period+(high-period)/2 {
					longer++
				}
			}
			if n := len(starts); n < 300 || shorter < n/10 || longer < n/10 {
				t.Errorf("Jitter %v: of %d polls %d came clearly sooner and %d clearly later, want a quarter each", jitter, n, shorter, longer)
			}
		})
	}
}

// A poll that is shorter than the Period leaves Jitter its bounds.
func TestPollerJitterKeepsItsBoundsThoughPollsTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: 10 * time.Second, Jitter: 0.5}
		starts := polls(t, p, time.Hour, func(int) ([]string, error) {
			time.Sleep(7 * time.Second)
			return nil, nil
		})
		for i, start := range starts[1:] {
			if gap := start - starts[i]; gap < 7*time.Second || gap > 15*time.Second {
				t.Fatalf("polls begin %v apart, want in [7s, 15s]", gap)
			}
		}
	})
}

func TestPollerJitterDoesNotPutOffAFailedPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{Period: 4 * time.Second, Jitter: 1}
		starts := polls(t, p, 10*time.Minute, func(int) ([]string, error) { return nil, errBoom })
		for i, start := range starts[1:] {
			if gap := start - starts[i]; gap > 4*time.Second {
				t.Fatalf("a failed poll was tried again after %v, want no later than after Period", gap)
			}
		}
	})
}

// A Poller that polls only when it is triggered.
func TestPollerTakesTheLongestPeriodThereIs(t *testing.T) {
	for _, jitter := range []float64{1, 0.5, 0} {
		synctest.Test(t, func(t *testing.T) {
			p := &reconcile.Poller[string]{Period: math.MaxInt64, Jitter: jitter}
			for i := range 20 {
				time.AfterFunc(time.Duration(i+1)*time.Second, p.Trigger)
			}
			starts := polls(t, p, time.Hour, func(n int) ([]string, error) {
				if n > 100 {
					time.Sleep(time.Hour) // so that the test ends
				}
				return nil, nil
			})
			if len(starts) != 21 {
				t.Errorf("Jitter %v: %d polls, want the first and 20 triggered", jitter, len(starts))
			}
		})
	}
}

func TestPollerRunTwiceAtATimeIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &reconcile.Poller[string]{
			Queue:    reconcile.NewQueue[string](),
			GetItems: func(context.Context) ([]string, error) { return nil, nil },
			Period:   time.Second,
		}
		first := launch(t, p)
		synctest.Wait()
		if err := p.Run(t.Context()); err == nil {
			t.Error("second Run at a time = nil, want an error")
		}
		if first.returned() {
			t.Error("the first Run was ended by the second")
		}
		first.end()
		launch(t, p).end() // one after the other is fine
	})
}

func TestPollerShutdownIsSilentAndPrompt(t *testing.T) {
	for _, c := range []struct {
		name string
		poll func(ctx context.Context) ([]string, error)
	}{
		{"between polls", func(context.Context) ([]string, error) { return nil, nil }},
		{"during a poll", func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			if context.Cause(ctx) != errEnd {
				return nil, errBoom
			}
			return nil, ctx.Err()
		}},
		{"during a pause after an error", func(context.Context) ([]string, error) { return nil, errBoom }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := newLogBook()
				run := launch(t, &reconcile.Poller[string]{
					Queue:    reconcile.NewQueue[string](),
					GetItems: c.poll,
					Period:   time.Hour,
					Logger:   book.logger(),
				})
				time.Sleep(time.Millisecond)
				synctest.Wait()
				book.clear()
				began := time.Now()
				run.end()
				if took := time.Since(began); took != 0 {
					t.Errorf("Run returned %v after ctx was done, want at once", took)
				}
				if lines := book.from(slog.LevelInfo); len(lines) != 0 {
					t.Errorf("shutdown was not silent: %v", lines)
				}
			})
		})
	}
}

func TestPollerRunWaitsForItsPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polled := false
		run := launch(t, &reconcile.Poller[string]{
			Queue: reconcile.NewQueue[string](),
			GetItems: func(context.Context) ([]string, error) {
				time.Sleep(time.Minute)
				polled = true
				return nil, nil
			},
			Period: time.Hour,
		})
		time.Sleep(time.Second)
		run.end()
		if !polled {
			t.Error("Run returned before its poll had ended")
		}
	})
}

func TestPollerDoesNotPollWhenCtxIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p := &reconcile.Poller[string]{
			Queue:    reconcile.NewQueue[string](),
			GetItems: func(context.Context) ([]string, error) { t.Error("it polls"); return nil, nil },
			Period:   time.Second,
		}
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run(done ctx) = %v, want nil", err)
		}
	})
}

func TestPollerLoggerNilMeansTheDefault(t *testing.T) {
	book := newLogBook()
	setDefaultLogger(t, book)
	synctest.Test(t, func(t *testing.T) {
		run := launch(t, &reconcile.Poller[string]{
			Queue:    reconcile.NewQueue[string](),
			GetItems: func(context.Context) ([]string, error) { return nil, errBoom },
			Period:   time.Hour,
		})
		synctest.Wait()
		line := book.onlyLine(t, slog.LevelWarn)
		line.mustSay(t, line.Level, nil, "boom")
		run.end()
	})
}

// An item that waits for its retry is not hurried by being seen, one that was
// forgotten is taken up again.
func TestPollerMeetsAReconcilerThroughAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		d := newJournal()
		poller := launch(t, &reconcile.Poller[string]{
			Queue:    q,
			GetItems: func(context.Context) ([]string, error) { return []string{"good", "bad"}, nil },
			Period:   10 * time.Second,
		})
		reconciler := launch(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				d.note("%s", item)
				if item == "bad" {
					return errBoom
				}
				return nil
			},
			Retry:  func(error, int) (time.Duration, bool) { return 25 * time.Second, true },
			Logger: unlogged(),
		})
		time.Sleep(29 * time.Second)
		poller.end()
		reconciler.end()
		d.mustBe(t, "0s good", "0s bad", "10s good", "20s good", "25s bad")
	})
}
