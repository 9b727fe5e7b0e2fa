// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

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
		p.Queue = newTray[string]()
	}
	if p.Logger == nil {
		p.Logger = record.Unlogged()
	}
	run := record.Launch(t, p)
	time.Sleep(d)
	run.End()
	return starts
}

func wantStarts(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("polls began at %v, want %v", got, want)
	}
}

func empty(int) ([]string, error) { return nil, nil }

func lastsFor(d time.Duration) func(int) ([]string, error) {
	return func(int) ([]string, error) { time.Sleep(d); return nil, nil }
}

func TestPollerRunErrorNamesTheWrongField(t *testing.T) {
	get := func(context.Context) ([]string, error) { t.Error("it polls all the same"); return nil, nil }
	q := reconcile.NewQueue[string]()
	for name, p := range map[string]*reconcile.Poller[string]{
		"Queue":                  {GetItems: get, Period: time.Second},
		"Queue without NewQueue": {Queue: new(reconcile.Queue[string]), GetItems: get, Period: time.Second},
		"GetItems":               {Queue: q, Period: time.Second},
		"Period of zero":         {Queue: q, GetItems: get},
		"Period below zero":      {Queue: q, GetItems: get, Period: -time.Second},
		"Period without a unit":  {Queue: q, GetItems: get, Period: 30},
		"Jitter below zero":      {Queue: q, GetItems: get, Period: time.Second, Jitter: -0.01},
		"Jitter above one":       {Queue: q, GetItems: get, Period: time.Second, Jitter: 1.01},
		"Jitter of no number":    {Queue: q, GetItems: get, Period: time.Second, Jitter: math.NaN()},
	} {
		field, _, _ := strings.Cut(name, " ")
		err := p.Run(t.Context())
		if !errors.Is(err, reconcile.ErrTerminal) || !strings.HasPrefix(err.Error(), "reconcile: Poller."+field) {
			t.Errorf("Run with %s = %v, want a terminal error of the package that names the field", name, err)
		}
		if unit := err != nil && strings.Contains(err.Error(), "was a unit forgotten?"); unit != (name == "Period without a unit") {
			t.Errorf("Run with %s = %v, want the question for a unit only where one was forgotten", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&reconcile.Poller[string]{Queue: q, GetItems: get, Period: time.Millisecond}).Run(ctx); err != nil {
		t.Errorf("Run with the shortest Period = %v, want nil", err)
	}
}

func TestPollerPollsAtOnceAndFromStartToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		starts := polls(t, &reconcile.Poller[string]{Queue: q, Period: 10 * time.Second}, 35*time.Second, func(n int) ([]string, error) {
			time.Sleep(time.Duration(n) * time.Second) // does not move the next start
			return []string{"a", "b"}[:1+n%2], nil
		})
		wantStarts(t, starts, 0, 10*time.Second, 20*time.Second, 30*time.Second)
		q.Want(t, "1s offer a", "1s offer b", "12s offer a", "23s offer a", "23s offer b", "34s offer a")
	})
}

func TestPollerPollsNeverOverlapAndASlowOneLeavesAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := false
		starts := polls(t, &reconcile.Poller[string]{Period: 10 * time.Second}, 80*time.Second, func(n int) ([]string, error) {
			if busy {
				t.Error("two polls at once")
			}
			busy = true
			defer func() { busy = false }()
			time.Sleep([]time.Duration{13 * time.Second, 13 * time.Second, 0, 10 * time.Second, 0, 0}[n-1])
			return nil, nil
		})
		wantStarts(t, starts, 0, 23*time.Second, 46*time.Second, 56*time.Second, 76*time.Second)
	})
}

// A listing that grows until it takes longer than its Period still runs its items; one that
// takes ten Periods is ended, and the error says so.
func TestPollerEndsTheContextOfAPollAfterTenPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var polled []context.Context
		var starts, ends []time.Duration
		began := time.Now()
		q, book := newTray[string](), record.NewLog()
		run := record.Launch(t, &reconcile.Poller[string]{
			Queue: q,
			GetItems: func(ctx context.Context) ([]string, error) {
				polled = append(polled, ctx)
				starts = append(starts, time.Since(began))
				if len(polled) == 2 {
					time.Sleep(70 * time.Second)
					return []string{"a"}, ctx.Err()
				}
				<-ctx.Done()
				ends = append(ends, time.Since(began))
				return nil, context.Cause(ctx)
			},
			Period: 10 * time.Second,
			Logger: book.Logger(),
		})
		time.Sleep(175 * time.Second)
		synctest.Wait()
		if ends[0] != 100*time.Second {
			t.Errorf("the context of a poll ended after %v, want 1m40s", ends[0])
		}
		book.OnlyLine(t, slog.LevelWarn).MustSay(t, slog.LevelError, map[string]string{"err": "took longer than ten Periods"}, "poll failed")
		// It failed and took longer than its Period. There is a pause all the same.
		if pause := starts[1] - ends[0]; pause != time.Second {
			t.Errorf("pause of %v after a poll that ran out of time, want a back-off", pause)
		}
		q.Want(t, "2m51s offer a")
		if err := polled[1].Err(); err != context.Canceled {
			t.Errorf("the context of a poll that has returned has error %v, want %v: its timer is stopped", err, context.Canceled)
		}
		run.End()
	})
}

// A client without a timeout may ignore the context for ever.
func TestPollThatHasNotReturnedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := record.NewLog()
		began, hang := time.Now(), make(chan struct{})
		run := record.Launch(t, &reconcile.Poller[string]{
			Queue: newTray[string](), Name: "disks", Period: time.Minute, Logger: book.Logger(),
			GetItems: func(context.Context) ([]string, error) { <-hang; return nil, nil },
		})
		time.Sleep(time.Hour)
		close(hang)
		run.End()
		var at []string
		for _, l := range book.From(slog.LevelInfo) {
			l.MustSay(t, slog.LevelWarn, map[string]string{"poller": "disks", "age": l.At.Sub(began).String()}, "poll has not returned", "ten Periods")
			at = append(at, l.At.Sub(began).String())
		}
		wantSame(t, "times of the warnings", at, []string{"10m0.5s", "20m1s", "40m2s"})
	})
}

func TestPollerTriesAFailedPollAgainWithBackoff(t *testing.T) {
	fails := map[string]func(){"error": func() {}}
	maps.Copy(fails, record.Failures)
	for name, end := range fails {
		runBubble(t, name, func(t *testing.T) {
			const period = 30 * time.Second
			starts := polls(t, &reconcile.Poller[string]{Period: period}, 6*time.Minute, func(n int) ([]string, error) {
				if n <= 8 || n == 10 {
					panicsHere(end)
					return nil, errBoom
				}
				return nil, nil
			})
			// 1 s, 2 s, 4 s, up to the period; a good one resets that.
			for i, seconds := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30, 30, 1, 30} {
				if gap := starts[i+1] - starts[i]; gap != seconds*time.Second {
					t.Errorf("poll %d came after %v, want %v", i+2, gap, seconds*time.Second)
				}
			}
		})
	}
}

func TestPollerBackoffIsNoLongerThanThePeriodFromStartToStart(t *testing.T) {
	for _, jitter := range []float64{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			starts := polls(t, &reconcile.Poller[string]{Period: 10 * time.Second, Jitter: jitter}, 10*time.Minute, func(int) ([]string, error) {
				time.Sleep(4 * time.Second)
				return nil, errBoom
			})
			for i, start := range starts[1:] {
				gap := start - starts[i]
				if gap < 4*time.Second || gap > 10*time.Second {
					t.Errorf("Jitter %v: polls that take 4s and fail begin %v apart, want no more than the Period", jitter, gap)
				}
				if jitter == 0 && i >= 4 && gap != 10*time.Second {
					t.Errorf("try %d began %v after the one before, want 10s", i+2, gap)
				}
			}
		})
	}
}

// A failure is logged, and one that reads the same when it has come twice as often.
func TestPollerLogsFailuresByTheirCount(t *testing.T) {
	boom, cold, textless := errors.New("boom"), errors.New("cold"), record.BadMessage{End: func() { panic("no text") }}
	replies := []error{boom, boom, boom, boom, cold, cold, boom, boom, nil, nil, boom, textless, textless}
	book := record.NewLog()
	record.SetDefaultLogger(t, book) // that is what a nil Logger means
	synctest.Test(t, func(t *testing.T) {
		run := record.Launch(t, &reconcile.Poller[string]{
			Queue: newTray[string](),
			GetItems: func(ctx context.Context) ([]string, error) {
				if len(replies) == 0 {
					<-ctx.Done()
					return nil, nil
				}
				err := replies[0]
				replies = replies[1:]
				return nil, err
			},
			Period: time.Minute,
		})
		time.Sleep(time.Hour)
		var got []string
		for _, line := range book.From(slog.LevelInfo) {
			got = append(got, fmt.Sprintf("%v %s %v %v", line.Level, line.Message, line.Attrs["failures"], line.Attrs["err"].Any() != nil))
			if line.Level == slog.LevelError && line.Attrs["failures"].Int64() == 1 && line.Attrs["err"].Any() != error(boom) {
				t.Errorf("line %q has another error than that of the listing", line.Message)
			}
			if _, ok := line.Attrs["poller"]; ok {
				t.Errorf("line %q has an empty name, want none", line.Message)
			}
		}
		want := []string{
			"ERROR poll failed 1 true", "ERROR poll failed 2 true", "ERROR poll failed 4 true", "ERROR poll failed 8 true",
			"INFO poll succeeded again 8 false",
			"ERROR poll failed 1 true", "ERROR poll failed 2 true",
			"INFO poll succeeded again 3 false",
		}
		if !slices.Equal(got, want) {
			t.Errorf("log lines:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		run.End()
	})
}

// One item that the queue panics on does not hide those after it, and an error of the
// listing does not hide the panic.
func TestPollerContinuesAfterAPanicInItsQueue(t *testing.T) {
	for _, partial := range []error{nil, errBoom} {
		record.EachFailure(t, func(t *testing.T, _ string, end func()) {
			q := newTray[string]()
			bad := reconcile.Filter[string](q, func(item string) bool {
				if strings.HasPrefix(item, "bad") {
					end()
				}
				return true
			})
			book := record.NewLog()
			p := &reconcile.Poller[string]{Queue: bad, Period: time.Second / 4, Name: "regions", Logger: book.Logger()}
			polls(t, p, time.Second/3, func(n int) ([]string, error) {
				return [][]string{{"a", "bad", "b", "bad2", "c"}, {"d"}}[n-1], []error{partial, nil}[n-1]
			})
			q.Want(t, "0s offer a", "0s offer b", "0s offer c", "250ms offer d")
			line := book.OnlyLine(t, slog.LevelWarn)
			line.MustSay(t, slog.LevelError, map[string]string{"poller": "regions", "failures": "1"}, "poll failed", "offering bad: ", "panicsHere")
			if got := line.Attrs["err"].Any().(error); errors.Is(got, errBoom) != (partial != nil || strings.Contains(got.Error(), "panic: boom")) {
				t.Errorf("the line has the error %v, want that of the listing in it: %v", got, partial)
			}
		})
	}
}

func TestTriggerPollsSoon(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		triggers []time.Duration // before Run if below zero
		poll     func(n int) ([]string, error)
		want     []time.Duration
	}{
		"before Run":          {[]time.Duration{-1, -1}, empty, []time.Duration{0, 10 * s, 20 * s, 30 * s}},
		"between polls":       {[]time.Duration{14 * s}, empty, []time.Duration{0, 10 * s, 14 * s, 24 * s, 34 * s}},
		"during a poll":       {[]time.Duration{11 * s, 12 * s, 12 * s}, lastsFor(3 * s), []time.Duration{0, 10 * s, 13 * s, 23 * s, 33 * s}},
		"after a slow poll":   {[]time.Duration{17 * s}, lastsFor(15 * s), []time.Duration{0, 17 * s}},
		"in a storm":          {[]time.Duration{s / 10, s / 5, s / 2, s, 3 * s / 2}, empty, []time.Duration{0, s, 2 * s, 12 * s}},
		"during the back-off": {[]time.Duration{s / 4, 3 * s / 2}, func(n int) ([]string, error) { return nil, []error{0: errBoom, 1: errBoom, 9: nil}[n-1] }, []time.Duration{0, s, 3 * s, 13 * s}},
	} {
		runBubble(t, name, func(t *testing.T) {
			p := &reconcile.Poller[string]{Period: 10 * s}
			for _, at := range c.triggers {
				if at < 0 {
					p.Trigger()
				} else {
					time.AfterFunc(at, p.Trigger)
				}
			}
			starts := polls(t, p, 35*s, c.poll)
			wantStarts(t, starts[:min(len(starts), len(c.want))], c.want...)
			if name == "before Run" {
				p.Trigger() // after it, too, it does not block
				wantStarts(t, polls(t, p, 15*s, empty), 0, 10*s)
			}
		})
	}
}

// With a Period near the second that is left between polls, a trigger moves the next
// poll to the second, or leaves it where it is.
func TestTriggerLeavesASecondBetweenThePollsOfAShortPeriod(t *testing.T) {
	const ms = time.Millisecond
	for period, want := range map[time.Duration][]time.Duration{
		1200 * ms: {0, 1000 * ms, 2200 * ms},
		800 * ms:  {0, 800 * ms, 1600 * ms},
	} {
		runBubble(t, period.String(), func(t *testing.T) {
			p := &reconcile.Poller[string]{Period: period}
			time.AfterFunc(600*ms, p.Trigger)
			wantStarts(t, polls(t, p, 2300*ms, lastsFor(500*ms)), want...)
		})
	}
}

// An askedContext calls a function when it is asked whether it is done.
type askedContext struct {
	context.Context
	asked func()
}

func (c askedContext) Err() error {
	c.asked()
	return c.Context.Err()
}

// A trigger in the moment before a poll is answered by that poll.
func TestTriggerBeforeAPollStartsNoSecondPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Duration
		began := time.Now()
		p := &reconcile.Poller[string]{
			Queue: newTray[string](),
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

// A poll that is shorter than the Period leaves Jitter its bounds.
func TestPollerJitterKeepsStartsWithinItsBoundsAndApart(t *testing.T) {
	const period = 10 * time.Second
	for _, jitter := range []float64{0.1, 0.5, 1} {
		for _, took := range []time.Duration{0, 4 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				starts := polls(t, &reconcile.Poller[string]{Period: period, Jitter: jitter}, time.Hour, lastsFor(took))
				spread := time.Duration(jitter * float64(period))
				var shorter, longer int
				for i, start := range starts[1:] {
					gap := start - starts[i]
					if gap < max(took, period-spread) || gap > period+spread {
						t.Errorf("Jitter %v: polls begin %v apart, want within %v of the Period", jitter, gap, spread)
					}
					if gap < period-spread/2 {
						shorter++
					}
					if gap > period+spread/2 {
						longer++
					}
				}
				if n := len(starts); n < 250 || shorter < n/10 || longer < n/10 {
					t.Errorf("Jitter %v: of %d polls %d came clearly sooner and %d clearly later, want a quarter each", jitter, n, shorter, longer)
				}
			})
		}
	}
}

// In a bubble, Jitter gives the same times each time; two pollers of one period and of other
// names drift apart there as elsewhere.
func TestPollerJitterFollowsFromTheNameInABubble(t *testing.T) {
	starts := func(name string) (starts []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			starts = polls(t, &reconcile.Poller[string]{Name: name, Period: time.Minute, Jitter: 0.5}, time.Hour, lastsFor(0))
		})
		return starts
	}
	wantStarts(t, starts("a"), starts("a")...)
	if a, b := starts("a"), starts("b"); a[1] == b[1] {
		t.Errorf("pollers a and b poll again after %v, want different times", a[1])
	}
}

// A Poller that polls only when it is triggered.
func TestPollerAcceptsTheMaximalPeriod(t *testing.T) {
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
			Queue:    newTray[string](),
			GetItems: func(context.Context) ([]string, error) { return nil, nil },
			Period:   time.Second,
		}
		first := record.Launch(t, p)
		synctest.Wait()
		if err := record.Launch(t, p).Wait(); err == nil || errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("second Run at a time = %v, want an error that may pass", err)
		}
		if first.Returned() {
			t.Error("the first Run was ended by the second")
		}
		first.End()
		record.Launch(t, p).End() // one after the other is fine
	})
}

// Run waits for its poll, and nothing else.
func TestPollerShutdownLogsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		poll func(ctx context.Context) ([]string, error)
		took time.Duration
	}{
		"between polls":                  {func(context.Context) ([]string, error) { return nil, nil }, 0},
		"during a pause after an error":  {func(context.Context) ([]string, error) { return nil, errBoom }, 0},
		"during a poll that ignores ctx": {func(context.Context) ([]string, error) { time.Sleep(time.Minute); return nil, errBoom }, time.Minute - 1},
		"during a poll that heeds ctx":   {func(ctx context.Context) ([]string, error) { <-ctx.Done(); return nil, context.Cause(ctx) }, 0},
	} {
		runBubble(t, name, func(t *testing.T) {
			book := record.NewLog()
			run := record.Launch(t, &reconcile.Poller[string]{Queue: newTray[string](), GetItems: c.poll, Period: time.Hour, Logger: book.Logger()})
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			book.Clear()
			began := time.Now()
			run.End()
			if took := time.Since(began); took != c.took {
				t.Errorf("Run returned %v after ctx was done, want %v", took, c.took)
			}
			for _, line := range book.From(slog.LevelInfo) {
				if name != "during a poll that ignores ctx" || !strings.Contains(line.Message, "has not returned") {
					t.Errorf("shutdown was not silent: %v", line)
				}
			}
		})
	}
}

func TestPollerContinuesAfterAPanicInItsLogger(t *testing.T) {
	for name, end := range record.Failures {
		runBubble(t, name, func(t *testing.T) {
			p := &reconcile.Poller[string]{Period: time.Second, Logger: slog.New(badHandler{end: end, handle: true})}
			starts := polls(t, p, 10*time.Second, func(n int) ([]string, error) {
				return nil, []error{errBoom, nil}[n%2] // so that it also logs that a poll succeeded again
			})
			if len(starts) < 10 {
				t.Errorf("polls began at %v, want them to go on", starts)
			}
		})
	}
}
