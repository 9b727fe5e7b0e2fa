// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

var (
	errBusy = errors.New("429 Too Many Requests")
	errBoom = errors.New("boom")
	errEnd  = errors.New("the end")
)

// busy is a Gate.Slow.
func busy(err error, _ time.Duration) bool { return errors.Is(err, errBusy) }

// check checks the rules that stand at the gate's mutex.
func check(t *testing.T, g *Gate) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	now, at := g.nowLocked(), int64(0)
	if len(g.waiting) > 0 && g.hasRoomLocked() && !g.probing {
		if at = g.dueLocked(); at <= now {
			t.Errorf("%d wait, though the gate is open since %v", len(g.waiting), time.Duration(now-at))
		}
	}
	if g.armed != at {
		t.Errorf("%d wait at %d, and the timer is armed for %d, want %d", len(g.waiting), now, g.armed, at)
	}
	if !g.paused && (g.probing || g.until > now) {
		t.Errorf("the gate is not paused, probing: %v, a pause of %v", g.probing, time.Duration(g.until-now))
	}
	if limit := g.limitLocked(); g.running < 0 || g.moved && (limit < max(1, g.Min) || g.Max > 0 && limit > g.Max) {
		t.Errorf("%d runs, the limit is %d, want it from %d to %d", g.running, limit, g.Min, g.Max)
	}
	for i, p := range g.waiting[:cap(g.waiting)] {
		if (i < len(g.waiting)) != (p != nil) {
			t.Errorf("place %d of %d in the list is %+v", i, len(g.waiting), p)
		}
	}
}

// mustBeIdle checks that no run is in the gate, and none waits.
func mustBeIdle(t *testing.T, g *Gate) {
	t.Helper()
	synctest.Wait()
	check(t, g)
	if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("Stats() = %+v after all runs, want none in flight and none waiting", s)
	}
}

// A loop is what a Reconciler is to a gate: one item at a time waits in hand. An
// item's run takes as long as it says after an @, such as a@3s, and ends as it says
// after an =, such as b@3s=busy.
type loop struct {
	*record.Journal
	items chan string
	end   func() // ends it and waits
}

func launch(t *testing.T, g *Gate, j *record.Journal, workers int, items ...string) *loop {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	l := &loop{Journal: j, items: make(chan string, 1000)}
	var all sync.WaitGroup
	l.end = func() { cancel(errEnd); all.Wait() }
	l.feed(items...)
	free := make(chan struct{}, workers)
	all.Go(func() {
		for {
			free <- struct{}{}
			var item string
			select {
			case <-ctx.Done():
				return
			case item = <-l.items:
			}
			done, err := g.Admit(ctx)
			if err != nil {
				if err != errEnd {
					t.Errorf("Admit = %v, want %v", err, errEnd)
				}
				return
			}
			j.Note("%s", item)
			begun := time.Now()
			all.Go(func() {
				defer func() { <-free }()
				name, how, _ := strings.Cut(item, "=")
				_, d, _ := strings.Cut(name, "@")
				took, _ := time.ParseDuration(d)
				select {
				case <-time.After(took):
					o, err := outcomes[how].o, outcomes[how].err
					defer func() { _ = recover() }()
					done(o, err, time.Since(begun))
				case <-ctx.Done():
					done(reconcile.OutcomeAborted, context.Cause(ctx), time.Since(begun))
				}
			})
		}
	})
	return l
}

func (l *loop) feed(items ...string) {
	for _, item := range items {
		l.items <- item
	}
}

// outcomes are those that a run can have.
var outcomes = map[string]struct {
	o   reconcile.Outcome
	err error
}{
	"":        {reconcile.OutcomeSucceeded, nil},
	"recheck": {reconcile.OutcomeSucceeded, reconcile.RecheckWithin(time.Hour)},
	"plan":    {reconcile.OutcomeRequeued, reconcile.RequeueAfter(time.Hour)},
	"reason":  {reconcile.OutcomeRequeued, fmt.Errorf("not yet: %w", reconcile.RequeueWithin(time.Hour))},
	"fail":    {reconcile.OutcomeRetrying, errBoom},
	"gaveup":  {reconcile.OutcomeGaveUp, errBoom},
	"refuse":  {reconcile.OutcomeTerminal, reconcile.Terminal(errBoom)},
	"panic":   {reconcile.OutcomeRetrying, &reconcile.PanicError{Value: "no disk"}},
	"aborted": {reconcile.OutcomeAborted, errBusy},
	"busy":    {reconcile.OutcomeRetrying, errBusy},
	"wait":    {reconcile.OutcomeRequeued, fmt.Errorf("%w: %w", errBusy, reconcile.RequeueAfter(time.Hour))},
}

func TestFieldsAreChecked(t *testing.T) {
	for g, want := range map[*Gate]string{
		{Every: -time.Second}: "gate: Gate.Every is -1s, want 0 (which means no budget) or more",
		{Burst: -1}:           "gate: Gate.Burst is -1, want 0 (which means 1) or more",
		{Min: -2}:             "gate: Gate.Min is -2, want 0 (which means 1) or more",
		{Max: -3}:             "gate: Gate.Max is -3, want 0 (which means no limit) or more",
		{Min: 5, Max: 4}:      "gate: Gate.Min is 5, want no more than Max, which is 4",
		{Min: 5, Max: 5}:      "<nil>", {Min: 5}: "<nil>", {Every: 1, Burst: 1, Min: 1, Max: 1}: "<nil>", {}: "<nil>",
	} {
		if done, err := g.Admit(t.Context()); fmt.Sprint(err) != want || (done == nil) != (err != nil) {
			t.Errorf("Admit = %v, want %s", err, want)
		}
	}
}

// Each step is a letter and a number: + starts so many runs; so many of the first
// end well by w, fail by f, are aborted by a; the first is slow by s; = sets the
// limit. The number behind a colon is the limit then.
func TestLimitAdapts(t *testing.T) {
	for name, c := range map[string]struct {
		low, high int
		steps     string
	}{
		"nothing moves it without a slow result":            {0, 0, "+8:0 w8:0 +8:0 f8:0"},
		"half of those in flight":                           {0, 0, "+8:0 s1:4"},
		"half of an odd number":                             {0, 0, "+7:0 s1:3"},
		"half of one":                                       {0, 0, "+1:0 s1:1"},
		"half, but not below Min":                           {3, 0, "+4:0 s1:3"},
		"half of those in flight, not of the limit":         {0, 40, "+8:40 s1:4"},
		"half, but it does not rise":                        {0, 0, "+10:0 =2:2 s1:2"},
		"half, but it does not rise at all":                 {0, 40, "+10:40 =4:4 s1:4"},
		"only once for those in flight":                     {0, 0, "+9:0 s1:4 s1:4 s1:4 w6:4 +4:4 s1:2"},
		"those in flight say nothing good either":           {0, 0, "+8:0 s1:4 w7:4 +4:4 w4:4 +4:4 w4:4 +4:4 w4:4 +4:4 w3:4 w1:5"},
		"each limit's worth adds one":                       {0, 0, "+8:0 =2:2 w8:2 +2:2 w1:2 +1:2 w1:2 +1:2 w1:3 +2:3 w1:3 +1:3 w1:3 +1:3 w1:3 +1:3 w1:4"},
		"but not if it is not in the way":                   {0, 0, "=4:4 +3:4 w3:4 +3:4 w3:4 +3:4 w3:4 +3:4 w3:4"},
		"only those count that took the last place":         {0, 0, "=3:3 +3:3 w3:3 +3:3 w3:3 +3:3 w2:3 w1:4"},
		"failures and aborted runs do not count":            {0, 0, "=1:1 +1:1 f1:1 +1:1 a1:1 +1:1 f1:1 +1:1 w1:2"},
		"a slow result starts the count anew":               {0, 0, "=2:2 +2:2 w1:2 +1:2 w1:2 +1:2 s1:1 w1:1 +1:1 w1:2"},
		"SetLimit starts the count anew":                    {0, 0, "=2:2 +2:2 w2:2 =2:2 +2:2 w2:2 +2:2 w2:3"},
		"up to Max and no further":                          {0, 2, "=1:1 +1:1 w1:2 +2:2 w2:2 +2:2 w2:2 +2:2 w2:2 s0:2"},
		"down and up again":                                 {0, 3, "+3:3 s1:1 w2:1 +1:1 w1:2 +2:2 w1:2 +1:2 w1:2 +1:2 w1:3"},
		"SetLimit within the bounds":                        {3, 5, "+0:5 =2:3 =-2:3 =4:4 =6:5"},
		"SetLimit below one":                                {0, 0, "+0:0 =0:1 =-5:1 =100:100"},
		"a budget of failures alone leaves it where it was": {0, 0, "+4:0 =4:4 f4:4 +4:4 f4:4"},
	} {
		g := &Gate{Min: c.low, Max: c.high, Slow: busy}
		var runs []func(reconcile.Outcome, error, time.Duration)
		halved, epoch := uint64(0), 0 // runs that had started at the last halving are no longer asked
		for step := range strings.FieldsSeq(c.steps) {
			var verb byte
			var n, want int
			if _, err := fmt.Sscanf(step, "%c%d:%d", &verb, &n, &want); err != nil {
				t.Fatal(step, err)
			}
			if verb == '=' {
				g.SetLimit(n)
				n = 0
			}
			for range n {
				if verb == '+' {
					done, err := g.Admit(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					runs = append(runs, done)
					continue
				}
				how := map[byte]string{'w': "", 'f': "fail", 's': "busy", 'a': "aborted"}[verb]
				if verb == 's' && epoch <= 0 {
					halved, epoch = halved+1, len(runs)
				}
				runs[0](outcomes[how].o, outcomes[how].err, 0)
				runs, epoch = runs[1:], epoch-1
			}
			if s := g.Stats(); s.Limit != want || s.InFlight != len(runs) || s.Waiting != 0 || s.Halved != halved {
				t.Fatalf("%s: %s: Stats = %+v, want a limit of %d, %d in flight and %d halved", name, step, s, want, len(runs), halved)
			}
			check(t, g)
		}
	}
}

// Those that wait are let in in the order in which they came, whatever they came
// for; one that leaves gives its turn to the next.
func TestTurnsAreFirstComeFirstServed(t *testing.T) {
	for range 20 { // in some, the one that comes at a turn is there before the timer
		synctest.Test(t, func(t *testing.T) {
			g, j := &Gate{Every: 10 * time.Second}, record.New()
			loops := []*loop{launch(t, g, j, 1, "first@10s")}
			for i := range 4 {
				synctest.Wait()
				loops = append(loops, launch(t, g, j, 1, strconv.Itoa(i)+"@1h"))
			}
			late := launch(t, g, j, 1)
			time.AfterFunc(10*time.Second, func() { late.feed("late") })
			synctest.Wait()
			if s := g.Stats(); s.Waiting != 4 || s.InFlight != 1 {
				t.Errorf("Stats = %+v, want 4 waiting", s)
			}
			loops[2].end()
			check(t, g)
			time.Sleep(time.Hour)
			j.Want(t, strings.Split("0s first@10s, 10s 0@1h, 20s 2@1h, 30s 3@1h, 40s late", ", ")...)
			for _, l := range append(loops, late) {
				l.end()
			}
			mustBeIdle(t, g)
		})
	}
}

// A run that asks for a pause pauses the gate for all runs. After the pause one run is the
// probe. A run ends as it says: wait asks for ten seconds, busy for a minute.
func TestPause(t *testing.T) {
	for name, c := range map[string]struct {
		items string
		every time.Duration
		want  string
		log   string
	}{
		"nobody asks": {"a b=fail c", 0, "0s a, 0s b=fail, 0s c", ""},
		"the probe opens the gate": {
			"a=wait b@1s c d", 0, "0s a=wait, 10s b@1s, 11s c, 11s d",
			"0s WARN gate paused by the result of a run 10s, 11s INFO gate resumed 11s",
		},
		"a probe that fails for another reason opens it too": {
			"a=wait b@1s=fail c d", 0, "0s a=wait, 10s b@1s=fail, 11s c, 11s d",
			"0s WARN gate paused by the result of a run 10s, 11s INFO gate resumed 11s",
		},
		"so does a plan, and one with a reason": {
			"a=wait b@1s=plan c@1s=wait d@1s=wait e@1s=wait f@1s=wait g@1s=reason h", 0,
			"0s a=wait, 10s b@1s=plan, 11s c@1s=wait, 11s d@1s=wait, 11s e@1s=wait, 11s f@1s=wait, 22s g@1s=reason, 23s h",
			"0s WARN gate paused by the result of a run 10s, 11s INFO gate resumed 11s, 12s WARN gate paused by the result of a run 10s, 23s INFO gate resumed 11s",
		},
		"one that asks for a pause keeps it paused": {
			"a=wait b@1s=wait c=busy d@1s e f", 0, "0s a=wait, 10s b@1s=wait, 21s c=busy, 1m21s d@1s, 1m22s e, 1m22s f",
			"0s WARN gate paused by the result of a run 10s, 1m22s INFO gate resumed 1m22s",
		},
		"after one that was aborted another is the probe": {
			"a=wait b@1s=aborted c@1s d e", 0, "0s a=wait, 10s b@1s=aborted, 11s c@1s, 12s d, 12s e",
			"0s WARN gate paused by the result of a run 10s, 12s INFO gate resumed 12s",
		},
		"so after one for which Pause panicked": {
			"a=wait b@1s=panic c@1s d", 0, "0s a=wait, 10s b@1s=panic, 11s c@1s, 12s d",
			"0s WARN gate paused by the result of a run 10s, 12s INFO gate resumed 12s",
		},
		"runs in flight go on, and the latest end counts": {
			"a@1s=busy b@2s=wait c@3s d", 0, "0s a@1s=busy, 0s b@2s=wait, 0s c@3s, 0s d",
			"1s WARN gate paused by the result of a run 1m0s",
		},
		"a pause of a run that is let in before the probe is back": {
			"a@3s=wait b@1s=wait c@30s=wait d@25s e f g", 4 * time.Second, "0s a@3s=wait, 13s b@1s=wait, 24s c@30s=wait, 1m4s d@25s, 1m29s e, 1m33s f, 1m37s g",
			"3s WARN gate paused by the result of a run 10s, 1m29s INFO gate resumed 1m26s",
		},
		"the budget is kept": {
			"a=wait b c d", 4 * time.Second, "0s a=wait, 10s b, 14s c, 18s d",
			"0s WARN gate paused by the result of a run 10s, 10s INFO gate resumed 10s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, log := record.New(), record.New()
				g := &Gate{
					Every: c.every,
					Pause: func(err error) time.Duration {
						var plan reconcile.RequeueError
						switch {
						case errors.Is(err, errBusy) && errors.As(err, &plan):
							return 10 * time.Second
						case errors.Is(err, errBusy):
							return time.Minute
						case err == outcomes["panic"].err:
							panic("Pause")
						}
						return 0
					},
					Logger: slog.New(lineHandler{slog.DiscardHandler, log}),
				}
				l := launch(t, g, j, 4)
				for item := range strings.FieldsSeq(c.items) {
					l.feed(item)
					synctest.Wait()
				}
				time.Sleep(time.Hour)
				j.Want(t, strings.Split(c.want, ", ")...)
				log.Want(t, strings.Split(c.log, ", ")...)
				check(t, g)
				l.end()
				mustBeIdle(t, g)
			})
		})
	}
}

// A lineHandler notes the level, the message and the first attribute of a record.
type lineHandler struct {
	slog.Handler
	log *record.Journal
}

func (lineHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h lineHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		h.log.Note("%v %s %v", r.Level, r.Message, a.Value)
		return false
	})
	return nil
}

// An operator's pause, and its end.
func TestPauseUntil(t *testing.T) {
	const s, none = time.Second, time.Duration(-1)
	for name, c := range map[string]struct {
		pauses map[time.Duration]time.Duration // when, until when since the beginning; none ends it
		items  string
		want   string
	}{
		"for ten seconds":                              {map[time.Duration]time.Duration{1: 10 * s}, "b@1s c d", "10s b@1s, 11s c, 11s d"},
		"a time that is over":                          {map[time.Duration]time.Duration{1: 1, 5: 2}, "b@1s c", "1s b@1s, 1s c"},
		"the latest end counts":                        {map[time.Duration]time.Duration{1: 10 * s, 2: 5 * s}, "b@1s c", "10s b@1s, 11s c"},
		"the latest end counts, longer":                {map[time.Duration]time.Duration{1: 10 * s, 2: 20 * s}, "b@1s c", "20s b@1s, 21s c"},
		"the zero time ends it":                        {map[time.Duration]time.Duration{1: 10 * s, 5 * s: none}, "b@1s c d", "5s b@1s, 6s c, 6s d"},
		"the zero time ends another":                   {map[time.Duration]time.Duration{5 * s: none}, "b=busy c@1s d", "1s b=busy, 5s c@1s, 6s d"},
		"the zero time of none":                        {map[time.Duration]time.Duration{1: none, 2: none}, "b@1s c", "1s b@1s, 1s c"},
		"while the probe is out":                       {map[time.Duration]time.Duration{1: 5 * s, 6 * s: 20 * s}, "b@2s c@1s d", "5s b@2s, 20s c@1s, 21s d"},
		"nor does the zero time go around the probe":   {map[time.Duration]time.Duration{1: 5 * s, 6 * s: none}, "b@2s c d", "5s b@2s, 7s c, 7s d"},
		"beyond the end of time":                       {map[time.Duration]time.Duration{1: math.MaxInt64, 3 * s: math.MaxInt64, 5 * s: none}, "b c", "5s b, 5s c"},
		"pauses of both kinds, and the zero time ends": {map[time.Duration]time.Duration{2 * s: 20 * s, 5 * s: none}, "b=busy c@1s d", "1s b=busy, 5s c@1s, 6s d"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &Gate{
					Logger: slog.New(slog.DiscardHandler),
					Pause: func(err error) time.Duration {
						if errors.Is(err, errBusy) {
							return math.MaxInt64 // for ever
						}
						return 0
					},
				}
				begun := time.Now()
				l := launch(t, g, record.New(), 4)
				for when, until := range c.pauses {
					at := begun.Add(until)
					if until == none {
						at = time.Time{}
					}
					time.AfterFunc(when, func() { g.PauseUntil(at) })
				}
				time.Sleep(s)
				synctest.Wait()
				for item := range strings.FieldsSeq(c.items) {
					l.feed(item)
					synctest.Wait()
				}
				time.Sleep(time.Hour)
				l.Want(t, strings.Split(c.want, ", ")...)
				check(t, g)
				l.end()
				mustBeIdle(t, g)
			})
		})
	}
}

// Stats tell since when the gate is paused, how long, and why.
func TestStatsOfAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		log := record.New()
		g := &Gate{
			Pause:  func(err error) time.Duration { return map[error]time.Duration{errBusy: time.Minute}[err] },
			Logger: slog.New(lineHandler{slog.DiscardHandler, log}),
		}
		mustBe := func(want Stats) {
			t.Helper()
			got := g.Stats()
			for _, at := range []*time.Time{&got.PausedSince, &got.Until, &want.PausedSince, &want.Until} {
				*at = at.Round(0)
			}
			if got != want {
				t.Errorf("after %v, Stats() = %+v, want %+v", time.Since(begun), got, want)
			}
		}
		mustBe(Stats{})
		time.Sleep(time.Second)
		done, _ := g.Admit(t.Context())
		done(reconcile.OutcomeRetrying, errBusy, 0)
		paused := begun.Add(time.Second)
		mustBe(Stats{Next: time.Minute, Pauses: 1, PausedSince: paused, Until: paused.Add(time.Minute), Err: errBusy})
		time.Sleep(time.Second)
		g.PauseUntil(begun.Add(3 * time.Second)) // ends first
		mustBe(Stats{Next: time.Minute - time.Second, Pauses: 1, PausedSince: paused, Until: paused.Add(time.Minute), Err: errBusy})
		g.PauseUntil(begun.Add(time.Hour)) // it is paused since, and no longer because of errBusy
		mustBe(Stats{Next: time.Hour - 2*time.Second, Pauses: 1, PausedSince: paused, Until: begun.Add(time.Hour)})
		g.PauseUntil(time.Time{})
		mustBe(Stats{Pauses: 1, PausedSince: paused, Until: begun.Add(2 * time.Second)})
		done, _ = g.Admit(t.Context())
		mustBe(Stats{InFlight: 1, Pauses: 1, PausedSince: paused, Until: begun.Add(2 * time.Second)})
		done(reconcile.OutcomeSucceeded, nil, 0)
		mustBe(Stats{Pauses: 1})
		g.PauseUntil(begun.Add(time.Minute))
		mustBe(Stats{Next: 58 * time.Second, Pauses: 2, PausedSince: begun.Add(2 * time.Second), Until: begun.Add(time.Minute)})
		log.Want(t, "1s WARN gate paused by the result of a run 1m0s", "2s INFO gate resumed 1s",
			"2s WARN gate paused by PauseUntil "+begun.Add(time.Minute).String())
	})
}

// A run for which Slow panics has left, and counts neither way. Pause is asked all the same.
func TestPanicInSlowKeepsTheLimitAndThePause(t *testing.T) {
	g := &Gate{
		Slow:   func(error, time.Duration) bool { panic("Slow") },
		Pause:  func(err error) time.Duration { return map[error]time.Duration{errBusy: time.Hour}[err] },
		Logger: slog.New(slog.DiscardHandler),
	}
	g.SetLimit(1)
	for _, result := range []error{nil, nil, errBusy} {
		done, err := g.Admit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("done did not panic, want the panic of Slow")
				}
			}()
			done(reconcile.OutcomeSucceeded, result, 0)
		}()
	}
	if s := g.Stats(); s.Limit != 1 || s.InFlight != 0 || s.Err != errBusy {
		t.Errorf("Stats() = %+v, want the limit 1 and a pause for %v", s, errBusy)
	}
}

// A slowEnd is a context that answers Err only once hold is closed, if it is not nil.
type slowEnd struct {
	context.Context
	hold chan struct{}
}

func (c *slowEnd) Err() error {
	if c.hold != nil {
		<-c.hold
	}
	return c.Context.Err()
}

// The context ends before Admit, while it waits, or at its turn, a moment before or
// after: nothing of the turn is lost.
func TestAdmitEndsWithItsContext(t *testing.T) {
	for name, end := range map[string]func(g *Gate, ctx *slowEnd, cancel func()){
		"while it waits": func(_ *Gate, _ *slowEnd, cancel func()) { cancel() },
		"after the turn": func(g *Gate, ctx *slowEnd, cancel func()) {
			synctest.Wait() // until Admit waits
			ctx.hold = make(chan struct{})
			g.SetLimit(2)
			synctest.Wait() // until Admit, let in, asks whether ctx has ended
			cancel()
			close(ctx.hold)
		},
		"before the turn": func(g *Gate, _ *slowEnd, cancel func()) {
			g.mu.Lock()
			cancel()
			g.setLimitLocked(2)
			g.letInUnlock()
		},
	} {
		for _, paused := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				g := &Gate{Every: time.Hour, Burst: 2, Logger: slog.New(slog.DiscardHandler)}
				other, _ := g.Admit(t.Context())
				g.SetLimit(1)
				if paused {
					g.PauseUntil(time.Now().Add(time.Second))
				}
				inner, cancel := context.WithCancelCause(t.Context())
				ctx := &slowEnd{Context: inner}
				ended := make(chan error)
				go func() { _, err := g.Admit(ctx); ended <- err }()
				time.Sleep(time.Minute)
				end(g, ctx, func() { cancel(errEnd) })
				if err := <-ended; err != errEnd {
					t.Errorf("%s: Admit = %v, want %v", name, err, errEnd)
				}
				g.SetLimit(2)
				if _, err := g.Admit(ctx); err != errEnd {
					t.Errorf("%s: Admit of a context that has ended = %v, want %v", name, err, errEnd)
				}
				if s := g.Stats(); s.Next != 0 || s.InFlight != 1 {
					t.Errorf("%s: Stats = %+v, want a token, and just the other in flight", name, s)
				}
				done, err := g.Admit(t.Context()) // the probe, if it is paused
				if err != nil {
					t.Fatal(err)
				}
				done(reconcile.OutcomeSucceeded, nil, 0)
				if s := g.Stats(); !s.PausedSince.IsZero() || s.Next != 59*time.Minute {
					t.Errorf("%s: Stats = %+v, want it open, and no token", name, s)
				}
				inner, cancel = context.WithCancelCause(t.Context())
				go func() { _, err := g.Admit(inner); ended <- err }()
				synctest.Wait()
				if s := g.Stats(); s.Waiting != 1 {
					t.Errorf("%s: Stats = %+v, want the next to wait", name, s)
				}
				cancel(nil)
				<-ended
				other(reconcile.OutcomeSucceeded, nil, 0)
				mustBeIdle(t, g)
			})
		}
	}
}

// A gate has no goroutine. Its timer runs while a run waits for a time, and not for
// the limit or the probe.
func TestTimerStopsWithTheLastWaitingRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Every: time.Hour, Max: 2, Logger: slog.New(slog.DiscardHandler)}
		timer := func(want bool) {
			t.Helper()
			synctest.Wait()
			check(t, g)
			g.mu.Lock()
			runs := g.timer != nil && g.timer.Stop()
			if runs {
				g.timer.Reset(time.Duration(g.armed - g.nowLocked()))
			}
			g.mu.Unlock()
			if runs != want {
				t.Errorf("the timer runs: %v, want %v", runs, want)
			}
			stacks := make([]byte, 1<<20)
			if stacks = stacks[:runtime.Stack(stacks, true)]; bytes.Contains(stacks, []byte("created by github.com/reconkernel/reconcile/gate.(*Gate)")) {
				t.Errorf("there is a goroutine of the gate:\n%s", stacks)
			}
		}
		start := func(items ...string) *loop {
			defer synctest.Wait()
			return launch(t, g, record.New(), 1, items...)
		}
		first := start("a@9h")
		timer(false)
		second, third := start("b"), start("c")
		timer(true)
		second.end()
		timer(true)
		g.SetLimit(1) // it is in the way now
		timer(false)
		g.SetLimit(2)
		timer(true)
		third.end()
		timer(false)
		g.PauseUntil(time.Now().Add(3 * time.Hour))
		timer(false)
		probe, fourth := start("d@1h"), start("e")
		timer(true)
		time.Sleep(3*time.Hour + time.Minute) // d is the probe now
		timer(false)
		for _, l := range []*loop{first, probe, fourth} {
			l.end()
		}
		timer(false)
	})
}

// A run costs no allocation, neither at an open gate nor at one where it waits.
func TestNoAllocation(t *testing.T) {
	nothing := func(error, time.Duration) bool { return false }
	for name, g := range map[string]*Gate{
		"open": {}, "limit": {Max: 1, Slow: nothing}, "open budget": {Every: 1, Burst: 1 << 20},
		"pause": {Pause: func(error) time.Duration { return 0 }},
	} {
		plan := reconcile.RequeueAfter(time.Hour)
		if allocs := testing.AllocsPerRun(100, func() {
			done, _ := g.Admit(context.Background())
			done(reconcile.OutcomeRequeued, plan, 0)
		}); allocs != 0 {
			t.Errorf("%s: %v allocations a run, want none", name, allocs)
		}
	}
	g := new(Gate)
	g.SetLimit(1)
	turns := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for range turns {
			done, _ := g.Admit(context.Background())
			done(reconcile.OutcomeSucceeded, nil, 0)
		}
	})
	allocs := testing.AllocsPerRun(1000, func() {
		done, _ := g.Admit(context.Background())
		turns <- struct{}{}
		for g.Stats().Waiting == 0 {
			runtime.Gosched()
		}
		done(reconcile.OutcomeSucceeded, nil, 0)
	})
	close(turns)
	other.Wait()
	if allocs != 0 {
		t.Errorf("%v allocations a run that waits, want none", allocs)
	}
}

// A model of a gate, slow and plain: it is told of each instant at which something
// can happen, in order.
type model struct {
	*Gate     // for its fields
	tokens    int
	refill    time.Duration // when the next token comes, if some are missing
	limit     int           // 0: none
	in        map[int]*modelRun
	waiting   []int
	starts    uint64
	epoch     uint64
	good      int
	paused    bool
	probe     int // the run, -1 if there is none
	until     time.Duration
	startedAt map[int]time.Duration
}

type modelRun struct {
	number uint64
	last   bool
}

func newModel(g *Gate) *model {
	return &model{Gate: g, tokens: max(1, g.Burst), limit: g.Max, in: map[int]*modelRun{}, probe: -1, startedAt: map[int]time.Duration{}}
}

// letIn lets in all that may start at this instant.
func (m *model) letIn(now time.Duration) {
	for len(m.waiting) > 0 && (m.Every == 0 || m.tokens > 0) && (m.limit == 0 || len(m.in) < m.limit) &&
		(!m.paused || m.until <= now && m.probe < 0) {
		id := m.waiting[0]
		m.waiting = m.waiting[1:]
		if m.tokens == max(1, m.Burst) {
			m.refill = now + m.Every
		}
		m.tokens--
		m.starts++
		m.in[id] = &modelRun{m.starts, m.limit > 0 && len(m.in)+1 >= m.limit}
		m.startedAt[id] = now
		if m.paused {
			m.probe = id
		}
	}
}

// advance lives through the time from one instant to another.
func (m *model) advance(from, to time.Duration) {
	for now := from; ; {
		for m.Every > 0 && m.tokens < max(1, m.Burst) && m.refill <= now {
			m.tokens++
			m.refill += m.Every
		}
		m.letIn(now)
		if now == to {
			return
		}
		next := to
		if m.Every > 0 && m.tokens < max(1, m.Burst) {
			next = min(next, m.refill)
		}
		if m.paused && m.until > now {
			next = min(next, m.until)
		}
		now = next
	}
}

func (m *model) setLimit(n int) {
	n = max(n, m.Min, 1)
	if m.Max > 0 {
		n = min(n, m.Max)
	}
	m.limit, m.good = n, 0
}

func (m *model) done(now time.Duration, id int, how string, pause time.Duration) {
	run := m.in[id]
	asked := how != "aborted" && how != "panic"
	slow := asked && (how == "busy" || how == "wait")
	well := asked && (how == "" || how == "plan" || how == "reason" || how == "recheck")
	if run.number > m.epoch {
		switch {
		case slow:
			half := len(m.in) / 2
			if m.limit > 0 {
				half = min(half, m.limit)
			}
			m.setLimit(half)
			m.epoch = m.starts
		case well && run.last && m.limit != m.Max:
			if m.good++; m.good == m.limit {
				m.setLimit(m.limit + 1)
			}
		}
	}
	delete(m.in, id)
	if m.probe == id {
		m.probe = -1
		if asked && pause == 0 && m.until <= now {
			m.paused = false
		}
	}
	if asked && pause > 0 {
		m.paused, m.until = true, max(m.until, now+pause)
	}
}

// Many runs come, wait, go and end in any way, while the limit and the pauses move:
// each starts at the very instant at which the model lets it in.
func TestGateAgreesWithItsModel(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func simulate(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(durations ...time.Duration) time.Duration { return durations[r.IntN(len(durations))] }
	var pause time.Duration // what Pause returns next
	g := &Gate{
		Every: pick(0, 0, time.Second, 300*time.Millisecond), Burst: r.IntN(4), Min: r.IntN(3), Max: r.IntN(2) * (3 + r.IntN(4)),
		Slow: busy,
		Pause: func(err error) time.Duration {
			if err == outcomes["panic"].err {
				panic("Pause")
			}
			return pause
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	m := newModel(g)
	begun := time.Now()
	now := func() time.Duration { return time.Since(begun) }
	type waiter struct {
		cancel context.CancelFunc
		done   func(reconcile.Outcome, error, time.Duration)
		at     time.Duration
	}
	var mu sync.Mutex
	waiters := map[int]*waiter{}
	hows := slices.Sorted(func(yield func(string) bool) {
		for how := range outcomes {
			if !yield(how) {
				return
			}
		}
	})
	for id := range 200 {
		before := now()
		switch n := r.IntN(10); {
		case n < 4: // one comes
			ctx, cancel := context.WithCancel(t.Context())
			w := &waiter{cancel: cancel}
			waiters[id] = w
			go func() {
				done, err := g.Admit(ctx)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					w.done, w.at = done, now()
				}
			}()
			m.waiting = append(m.waiting, id)
		case n < 7 && len(m.in) > 0: // one leaves
			ids := slices.Sorted(func(yield func(int) bool) {
				for id := range m.in {
					if !yield(id) {
						return
					}
				}
			})
			one, how := ids[r.IntN(len(ids))], hows[r.IntN(len(hows))]
			pause = pick(0, 0, 0, 2*time.Second, 1500*time.Millisecond)
			m.done(before, one, how, pause)
			func() {
				defer func() { _ = recover() }()
				waiters[one].done(outcomes[how].o, outcomes[how].err, 0)
			}()
		case n == 7 && len(m.waiting) > 0: // one that waits goes away
			i := r.IntN(len(m.waiting))
			waiters[m.waiting[i]].cancel()
			m.waiting = slices.Delete(m.waiting, i, i+1)
		case n == 8 && r.IntN(2) == 0:
			limit := r.IntN(8)
			g.SetLimit(limit)
			m.setLimit(limit)
		case n == 8 && r.IntN(2) == 0:
			g.PauseUntil(time.Time{})
			m.until = min(m.until, before)
		case n == 8:
			d := time.Duration(r.IntN(3000)-500) * time.Millisecond
			g.PauseUntil(time.Now().Add(d))
			if d > 0 {
				m.paused, m.until = true, max(m.until, before+d)
			}
		}
		m.advance(before, before)
		synctest.Wait()
		time.Sleep(pick(0, 0, 0, 50*time.Millisecond, 100*time.Millisecond, time.Second, 5*time.Second))
		synctest.Wait()
		m.advance(before, now())
		s := g.Stats()
		if s.InFlight != len(m.in) || s.Waiting != len(m.waiting) || s.Limit != m.limit || s.PausedSince.IsZero() == m.paused {
			t.Fatalf("step %d: Stats = %+v, want %d in flight, %d waiting, a limit of %d, paused: %v", id, s, len(m.in), len(m.waiting), m.limit, m.paused)
		}
		mu.Lock()
		for id, at := range m.startedAt {
			if w := waiters[id]; w.done == nil || w.at != at {
				t.Fatalf("run %d of %d started at %v (%v), want %v", id, len(waiters), w.at, w.done != nil, at)
			}
		}
		mu.Unlock()
		check(t, g)
	}
	for _, w := range waiters {
		w.cancel()
	}
	synctest.Wait()
}

// An answer of Pause is bounded, and one below zero is a pause too.
func TestPauseIsBounded(t *testing.T) {
	for _, c := range []struct{ max, asked, want time.Duration }{
		{0, -1, 10 * time.Second},
		{0, -1 << 63, 10 * time.Second},
		{0, 59 * time.Minute, 59 * time.Minute},
		{0, 48 * time.Hour, time.Hour},
		{48 * time.Hour, 24 * time.Hour, 24 * time.Hour},
		{time.Second, -1, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &Gate{MaxPause: c.max, Logger: slog.New(slog.DiscardHandler), Pause: func(error) time.Duration { return c.asked }}
			done, err := g.Admit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			done(reconcile.OutcomeRetrying, errors.New("429"), 0)
			if got := g.Stats().Next; got != c.want {
				t.Errorf("MaxPause %v: Pause returned %v, and the next run starts after %v, want %v", c.max, c.asked, got, c.want)
			}
		})
	}
	if _, err := (&Gate{MaxPause: -1}).Admit(t.Context()); err == nil || !strings.Contains(err.Error(), "Gate.MaxPause is -1ns") {
		t.Errorf("Admit = %v, want an error that names MaxPause", err)
	}
}
