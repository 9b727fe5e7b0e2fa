// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A slowLog takes a minute for the line of a run that went well.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "run succeeded" {
		time.Sleep(time.Minute)
	}
	return nil
}

// A run gives back its place before its outcome is logged.
func TestGateDoesNotWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Max: 1}
		log := slog.New(slowLog{slog.DiscardHandler})
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 2, Logger: log}, "a", "b")
		time.Sleep(time.Hour)
		l.mustBe(t, "0s a", "0s b")
		l.end()
		mustBeIdle(t, g)
	})
}

func TestGateSlowPanics(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Every: time.Minute, Max: 1, Slow: func(error, time.Duration) bool { panicsHere(end); return true }}
				book := newLogBook()
				l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 2, Logger: book.logger()},
					"a", "b=busy", "c=plan", "d=panic")
				time.Sleep(time.Hour)
				l.mustBe(t, "0s a", "1m0s b=busy", "2m0s c=plan", "3m0s d=panic")
				var outcomes []string
				for _, r := range l.results.all() {
					outcomes = append(outcomes, string(r.Outcome))
				}
				if got := strings.Join(outcomes, ", "); got != "succeeded, gave up, requeued, gave up" {
					t.Errorf("outcomes %s", got)
				}
				said := 0
				for _, line := range book.from(slog.LevelError) {
					if strings.Contains(line.Message, "Gate.Slow panicked") && strings.Contains(line.String(), "panicsHere") {
						said++
					}
				}
				if said != 4 {
					t.Errorf("%d lines tell of the panic, want 4", said)
				}
				if s := g.Stats(); s.Limit != 1 || s.Halved != 0 {
					t.Errorf("Stats = %+v, want a result that counts neither way", s)
				}
				l.end()
				mustBeIdle(t, g)
			})
		})
	}
}

// What Slow takes is no part of the run that follows.
func TestGateSlowTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Slow: func(error, time.Duration) bool { time.Sleep(time.Minute); return false }}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a@1s=plan", "b@1s")
		begin := time.Now()
		time.Sleep(time.Hour)
		if due := l.q.State("a@1s=plan").Due.Sub(begin); due != time.Hour+61*time.Second {
			t.Errorf("a was given back to run again %v after the beginning, want 1h1m1s", due)
		}
		for _, r := range l.results.all() {
			if r.Duration != time.Second {
				t.Errorf("%s took %v, want 1s", r.Item, r.Duration)
			}
		}
		if r := l.results.last(t); r.Waited != 61*time.Second {
			t.Errorf("b waited %v, want 1m1s", r.Waited)
		}
		l.end()
	})
}

// The event that came while an item was in flight makes it ready when it is given
// back, which is after Slow.
func TestGateSlowTakesTimeBeforeTheItemIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		q.Enqueue("b")
		begin := time.Now()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Logger: unlogged(), // and no OnResult, which takes time too
			Gate:      &reconcile.Gate{Slow: func(error, time.Duration) bool { time.Sleep(time.Minute); return false }},
			Reconcile: func(context.Context, string) error { time.Sleep(time.Second); return nil },
		})
		synctest.Wait()
		q.Enqueue("a")
		time.Sleep(90 * time.Second)
		if s := q.State("a"); s.Phase != reconcile.Ready || s.Since.Sub(begin) != 61*time.Second {
			t.Errorf("State(a) = %+v, want it ready since %v", s, begin.Add(61*time.Second))
		}
		time.Sleep(time.Hour)
		run.end()
	})
}
