// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A tray is an Enqueuer that notes what it is told.
type tray[T comparable] struct {
	*journal
}

func newTray[T comparable]() tray[T] { return tray[T]{newJournal()} }

func (q tray[T]) Enqueue(item T)                       { q.note("enqueue %v", item) }
func (q tray[T]) EnqueueAfter(item T, d time.Duration) { q.note("enqueue %v after %v", item, d) }
func (q tray[T]) Offer(item T)                         { q.note("offer %v", item) }

// polls lets a Poller work for some time and returns when each poll began.
func polls(t *testing.T, p *reconcile.Poller[string], d time.Duration, poll func(n int) ([]string, error)) []time.Duration {
	t.Helper()
	var starts []time.Duration
	began := time.Now()
	p.GetItems = func(context.Context) ([]string, error) {
		starts = append(starts, time.Since(began))
		return poll(len(starts))
	}
	if p.Queue == nil {
		p.Queue = reconcile.NewQueue[string]()
	}
	if p.Logger == nil {
		p.Logger = unlogged()
	}
	run := launch(t, p)
	time.Sleep(d)
	run.end()
	return starts
}

func wantStarts(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("polls began at %v, want %v", got, want)
	}
}

func none(int) ([]string, error) { return nil, nil }

func TestPollerRunNamesTheFieldThatIsWrong(t *testing.T) {
	get := func(context.Context) ([]string, error) { t.Error("it polls all the same"); return nil, nil }
	q := reconcile.NewQueue[string]()
	for name, p := range map[string]*reconcile.Poller[string]{
		"Queue":                 {GetItems: get, Period: time.Second},
		"GetItems":              {Queue: q, Period: time.Second},
		"Period of zero":        {Queue: q, GetItems: get},
		"Period below zero":     {Queue: q, GetItems: get, Period: -time.Second},
		"Jitter below zero":     {Queue: q, GetItems: get, Period: time.Second, Jitter: -0.01},
		"Jitter above one":      {Queue: q, GetItems: get, Period: time.Second, Jitter: 1.01},
		"Jitter of no number":   {Queue: q, GetItems: get, Period: time.Second, Jitter: math.NaN()},
		"Jitter without bounds": {Queue: q, GetItems: get, Period: time.Second, Jitter: math.Inf(1)},
	} {
		field, _, _ := strings.Cut(name, " ")
		err := p.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), field) || !strings.HasPrefix(err.Error(), "reconcile: ") {
			t.Errorf("Run with %s = %v, want an error of the package that names the field", name, err)
		}
	}
}

func TestPollerPollsAtOnceAndFromStartToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := polls(t, &reconcile.Poller[string]{Period: 10 * time.Second}, 45*time.Second, func(n int) ([]string, error) {
			time.Sleep(time.Duration(n) * time.Second) // does not move the next start
			return nil, nil
		})
		wantStarts(t, starts, 0, 10*time.Second, 20*time.Second, 30*time.Second, 40*time.Second)
	})
}

func TestPollerOffersWhatItSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		polls(t, &reconcile.Poller[string]{Queue: q, Period: 10 * time.Second}, 15*time.Second, func(int) ([]string, error) {
			return []string{"a", "b"}, nil
		})
		q.mustBe(t, "0s offer a", "0s offer b", "10s offer a", "10s offer b")
	})
}

func TestPollerPollsNeverOverlapAndASlowOneLeavesAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := false
		starts := polls(t, &reconcile.Poller[string]{Period: 10 * time.Second}, 100*time.Second, func(n int) ([]string, error) {
			if busy {
				t.Error("two polls at once")
			}
			busy = true
			defer func() { busy = false }()
			if n <= 2 {
				time.Sleep(13 * time.Second)
			}
			return nil, nil
		})
		wantStarts(t, starts[:5], 0, 23*time.Second, 46*time.Second, 56*time.Second, 66*time.Second)
	})
}

func TestPollerEndsTheContextOfAPollWithItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended, starts []time.Duration
		began := time.Now()
		run := launch(t, &reconcile.Poller[string]{
			Queue: reconcile.NewQueue[string](),
			GetItems: func(ctx context.Context) ([]string, error) {
				start := time.Now()
				starts = append(starts, start.Sub(began))
				if deadline, ok := ctx.Deadline(); !ok || !deadline.Equal(start.Add(10*time.Second)) {
					t.Errorf("deadline of a poll's context: %v, %v, want a Period from its start", deadline.Sub(start), ok)
				}
				<-ctx.Done()
				ended = append(ended, time.Since(start))
				return nil, ctx.Err()
			},
			Period: 10 * time.Second,
			Logger: unlogged(),
		})
		time.Sleep(time.Minute)
		run.end()
		for i, d := range ended[:2] {
			if d != 10*time.Second {
				t.Errorf("context of a poll ended after %v, want 10s", d)
			}
			// It failed and took its whole Period. There is a pause all the same.
			if pause := starts[i+1] - starts[i] - 10*time.Second; pause < 500*time.Millisecond || pause > 10*time.Second {
				t.Errorf("pause of %v after a poll that ran out of time", pause)
			}
		}
	})
}

// The context of a poll ends with the poll, and so does its timer.
func TestPollerLeavesNothingBehindWhenAPollEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var of context.Context
		run := launch(t, &reconcile.Poller[string]{
			Queue:    reconcile.NewQueue[string](),
			GetItems: func(ctx context.Context) ([]string, error) { of = ctx; return nil, nil },
			Period:   time.Hour,
		})
		synctest.Wait()
		if of.Err() != context.Canceled {
			t.Errorf("context of a poll that has ended has error %v, want %v", of.Err(), context.Canceled)
		}
		run.end()
	})
}

func TestPollerTriesAFailedPollAgainWithBackoff(t *testing.T) {
	fails := map[string]func(){"error": func() {}}
	maps.Copy(fails, failuresOfUserCode)
	for name, end := range fails {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := newLogBook()
				const period = 30 * time.Second
				starts := polls(t, &reconcile.Poller[string]{Period: period, Name: "wanted", Logger: book.logger()}, 6*time.Minute, func(n int) ([]string, error) {
					if n <= 8 || n == 10 {
						panicsHere(end)
						return nil, errBoom
					}
					return nil, nil
				})
				full := time.Second
				for i := range 8 {
					gap := starts[i+1] - starts[i]
					low, high := min(full/2, period-1), min(full, period)
					if !within(gap, low, high) {
						t.Errorf("try %d came after %v, want in (%v, %v]", i+2, gap, low, high)
					}
					full *= 2
				}
				if gap := starts[9] - starts[8]; gap != period {
					t.Errorf("the poll after a good one came after %v, want %v", gap, period)
				}
				if gap := starts[10] - starts[9]; !within(gap, time.Second/2, time.Second) {
					t.Errorf("after a good poll the back-off is %v, want it to begin anew", gap)
				}
				if gap := starts[11] - starts[10]; gap != period {
					t.Errorf("the poll after a good one came after %v, want %v", gap, period)
				}
				lines := book.from(slog.LevelInfo)
				if len(lines) != 9 {
					t.Errorf("%d log lines for 9 failures: %v", len(lines), lines)
				}
				for _, l := range lines {
					text := "panicsHere"
					if name == "error" {
						text = "boom"
					}
					l.mustSay(t, l.Level, nil, text, "wanted")
				}
			})
		})
	}
}

func TestPollerBackoffIsNeverLongerThanThePeriodFromStartToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := polls(t, &reconcile.Poller[string]{Period: 10 * time.Second}, 2*time.Minute, func(int) ([]string, error) {
			time.Sleep(4 * time.Second)
			return nil, errBoom
		})
		for i, start := range starts[1:] {
			gap := start - starts[i]
			if gap <= 4*time.Second || gap > 10*time.Second {
				t.Errorf("polls that take 4s and fail begin %v apart, want a pause and at most the Period", gap)
			}
			if i >= 4 && gap != 10*time.Second {
				t.Errorf("try %d began %v after the one before, want 10s", i+2, gap)
			}
		}
	})
}

func TestPollerWithAShortPeriodDoesNotWaitLongerBecauseAPollFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := polls(t, &reconcile.Poller[string]{Period: 100 * time.Millisecond}, time.Second+1, func(int) ([]string, error) {
			return nil, errBoom
		})
		if len(starts) != 11 {
			t.Errorf("polls began at %v, want one each 100ms", starts)
		}
	})
}

func TestPollerOffersTheItemsOfAPollThatAlsoFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		book := newLogBook()
		polls(t, &reconcile.Poller[string]{Queue: q, Period: 10 * time.Second, Name: "regions", Logger: book.logger()}, 1, func(int) ([]string, error) {
			return []string{"a", "b"}, errors.New("region 4 did not answer")
		})
		q.mustBe(t, "0s offer a", "0s offer b")
		line := book.onlyLine(t, slog.LevelWarn)
		line.mustSay(t, line.Level, nil, "region 4 did not answer", "regions")
	})
}

func TestPollerOutlivesAPanicInItsQueue(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newTray[string]()
				bad := reconcile.Filter[string](q, func(item string) bool {
					if item == "bad" {
						end()
					}
					return true
				})
				book := newLogBook()
				polls(t, &reconcile.Poller[string]{Queue: bad, Period: time.Second / 4, Logger: book.logger()}, time.Second/3, func(n int) ([]string, error) {
					if n == 1 {
						return []string{"a", "bad"}, nil
					}
					return []string{"b"}, nil
				})
				q.mustBe(t, "0s offer a", "250ms offer b")
				book.onlyLine(t, slog.LevelWarn) // that the poll failed
			})
		})
	}
}

func TestPollerVanishedComesFromCompletePollsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		kept := []string{"a", "b", "c", "c", ""}
		p := &reconcile.Poller[string]{Queue: q, Period: time.Second, Vanished: true}
		replies := []struct {
			items []string
			err   error
		}{
			{kept, nil},
			{[]string{"a", "new"}, errBoom},    // tells nothing about b and c
			{nil, errBoom},                     // neither
			{[]string{"b", "c", "", "b"}, nil}, // a is gone; new was in no complete poll
			{[]string{"b"}, nil},               // c is gone, once, and the zero item
			{[]string{"b"}, nil},
			{nil, nil}, // all are gone
			{nil, nil},
		}
		n := 0
		p.GetItems = func(context.Context) ([]string, error) {
			r := replies[n]
			n++
			if n == 2 {
				clear(kept) // the slice is the caller's again
			}
			return r.items, r.err
		}
		p.Logger = unlogged()
		for range replies { // a Run each: what it saw is kept
			run := launch(t, p)
			synctest.Wait()
			run.end()
		}
		slices.Sort(q.list[len(q.list)-4 : len(q.list)-2])
		q.mustBe(t,
			"0s offer a", "0s offer b", "0s offer c", "0s offer c", "0s offer ",
			"0s offer a", "0s offer new",
			"0s offer b", "0s offer c", "0s offer ", "0s offer b", "0s enqueue a",
			"0s offer b", "0s enqueue ", "0s enqueue c",
			"0s offer b",
			"0s enqueue b",
		)
	})
}

func TestPollerWithoutVanishedDoesNotJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		polls(t, &reconcile.Poller[string]{Queue: q, Period: time.Second}, 1500*time.Millisecond, func(n int) ([]string, error) {
			return []string{"a", "b"}[:2/n], nil // both, then a alone
		})
		q.mustBe(t, "0s offer a", "0s offer b", "1s offer a")
	})
}
