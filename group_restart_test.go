// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile"
)

func TestAfterStartsItsRunnerOnceReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := reconcile.After(func(ctx context.Context) error {
			if ctx.Value(leaseKey{}) != "of the caller" {
				t.Error("ready is not called under the context of Run")
			}
			time.Sleep(5 * time.Second)
			j.note("ready")
			return nil
		}, member(j, "it", time.Second, errBoom))
		run := launchUnder(context.WithValue(t.Context(), leaseKey{}, "of the caller"), t, r)
		time.Sleep(10 * time.Second)
		run.cancel(errEnd)
		if err := run.wait(); err != errBoom {
			t.Errorf("Run = %v, want what the Runner returned", err)
		}
		j.mustBe(t, "5s ready", "5s it begins", "11s it ends")
	})
}

func TestAfterFailsWhenReadyFails(t *testing.T) {
	for name, ready := range map[string]func() error{
		"error": func() error { return errBoom },
		"panic": failuresAs("error"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := reconcile.Group{Logger: unlogged()}
				g.Add("cache", reconcile.After(func(context.Context) error { time.Sleep(time.Second); return ready() },
					reconcile.RunFunc(func(context.Context) error { t.Error("it runs though it is not ready"); return nil })))
				g.Add("rest", after(time.Hour, nil))
				began := time.Now()
				err := launch(t, &g).wait()
				if !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "cache") {
					t.Errorf("Run = %v, want the error of ready, with the member's name", err)
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("Run returned after %v, want 1s", took)
				}
			})
		})
	}
}

func TestAfterEndsWellWhenCtxEndsWhileReadyWaits(t *testing.T) {
	for name, ready := range map[string]func(ctx context.Context) error{
		"its error": func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("sync: %w", ctx.Err()) },
		"its cause": func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"nil":       func(ctx context.Context) error { <-ctx.Done(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g reconcile.Group
				g.Add("cache", reconcile.After(ready, reconcile.RunFunc(func(ctx context.Context) error {
					if ctx.Err() == nil {
						t.Error("it runs under a context that has not ended")
					}
					return nil
				})))
				run := launch(t, &g)
				time.Sleep(time.Second)
				run.end()
			})
		})
	}
}

func TestAfterDoesNotRunItsRunnerOnceCtxIsDone(t *testing.T) {
	never := reconcile.RunFunc(func(context.Context) error { t.Error("it runs"); return nil })
	for name, c := range map[string]struct{ ready, want error }{
		"ready after all": {nil, nil},
		"its error":       {context.Canceled, nil},
		"another error":   {errBoom, errBoom},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := launch(t, reconcile.After(func(ctx context.Context) error { <-ctx.Done(); return c.ready }, never))
				time.Sleep(time.Second)
				run.cancel(errEnd)
				if err := run.wait(); !errors.Is(err, c.want) {
					t.Errorf("Run = %v, want %v", err, c.want)
				}
			})
		})
	}
}

// tries makes a Runner of what each run is to do, and notes when each begins.
func tries(j *journal, runs ...func(ctx context.Context) error) reconcile.Runner {
	n := 0
	return reconcile.RunFunc(func(ctx context.Context) error {
		n++
		j.note("run %d", n)
		return runs[min(n, len(runs))-1](ctx)
	})
}

func failing(context.Context) error { return errBoom }
func ending(context.Context) error  { return nil }

// lasting fails after some time.
func lasting(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return errBoom }
}

// asked is a policy that notes how many failures it is told of.
func asked(failures *[]int, p reconcile.RetryPolicy) reconcile.RetryPolicy {
	return func(err error, n int) (time.Duration, bool) {
		*failures = append(*failures, n)
		return p(err, n)
	}
}

func TestRestartRunsAgainAsThePolicySays(t *testing.T) {
	book := newLogBook()
	setDefaultLogger(t, book)
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		var failures []int
		panicking := func(name string) func(context.Context) error {
			return func(context.Context) error { return panicsHere(failuresOfUserCode[name]) }
		}
		r := reconcile.Restart(asked(&failures, minutes), tries(j, failing, panicking("panic"), panicking("Goexit"), panicking("nil"), ending))
		if err := launch(t, r).wait(); err != nil {
			t.Errorf("Run = %v, want nil: what the last run returned", err)
		}
		j.mustBe(t, "0s run 1", "1m0s run 2", "3m0s run 3", "6m0s run 4", "10m0s run 5")
		if lines := book.from(slog.LevelWarn); len(lines) != 4 {
			t.Errorf("log lines %v, want one for each restart", lines)
		}
		if diff := cmp.Diff([]int{1, 2, 3, 4}, failures); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
	})
}

func TestRestartGivesUpWhenThePolicyDoes(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		last := errors.New("third")
		r := reconcile.Restart(reconcile.RetryPolicy(minutes).Limit(2), tries(j, failing, failing, func(context.Context) error { return last }))
		if err := launch(t, r).wait(); !errors.Is(err, last) {
			t.Errorf("Run = %v, want the last error, %v", err, last)
		}
		j.mustBe(t, "0s run 1", "1m0s run 2", "3m0s run 3")
	})
}

func TestRestartReturnsAPanicWhenItGivesUp(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	for _, name := range []string{"panic", "Goexit"} {
		synctest.Test(t, func(t *testing.T) {
			r := reconcile.Restart(reconcile.NoRetry, reconcile.RunFunc(func(context.Context) error {
				return panicsHere(failuresOfUserCode[name])
			}))
			if err := launch(t, r).wait(); !isPanic(err) {
				t.Errorf("Run = %v, want a *PanicError", err)
			}
		})
	}
}

func TestRestartDoesNotRestartATerminalError(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		r := reconcile.Restart(minutes, tries(j, failing, func(context.Context) error {
			return fmt.Errorf("no access: %w", reconcile.Terminal(errBoom))
		}))
		if err := launch(t, r).wait(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "no access") {
			t.Errorf("Run = %v, want the terminal error", err)
		}
		j.mustBe(t, "0s run 1", "1m0s run 2")
	})
}

func TestRestartDoesNotRestartWhatEndedWell(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		if err := launch(t, reconcile.Restart(minutes, tries(j, ending))).wait(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		j.mustBe(t, "0s run 1")
	})
}

func TestRestartCountsAnewAfterARunOfAMinute(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	synctest.Test(t, func(t *testing.T) {
		var failures []int
		j := newJournal()
		runs := []func(context.Context) error{
			failing, failing, // 1, 2
			lasting(time.Minute - 1), // 3
			lasting(time.Minute),     // 1 again
			failing,                  // 2
			lasting(time.Hour),       // 1
			failing,                  // 2
			ending,
		}
		r := reconcile.Restart(asked(&failures, minutes), tries(j, runs...))
		if err := launch(t, r).wait(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if diff := cmp.Diff([]int{1, 2, 3, 1, 2, 1, 2}, failures); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
	})
}

func TestRestartNilPolicyMeansDefaultRetry(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Duration
		began := time.Now()
		run := launch(t, reconcile.Restart(nil, reconcile.RunFunc(func(context.Context) error {
			starts = append(starts, time.Since(began))
			return errBoom
		})))
		time.Sleep(time.Hour)
		run.end()
		full := time.Second
		for i, start := range starts[1:] {
			if gap := start - starts[i]; !within(gap, full/2, full) {
				t.Errorf("restart %d after %v, want in (%v, %v]", i+1, gap, full/2, full)
			}
			full = min(2*full, 5*time.Minute)
		}
		if len(starts) < 15 {
			t.Errorf("%d runs in an hour, want it never to give up", len(starts))
		}
	})
}

func TestRestartEndsAtOnceWhenCtxIsDone(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		waiting := launch(t, reconcile.Restart(minutes, tries(j, failing)))
		running := launch(t, reconcile.Restart(minutes, tries(j, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })))
		group := reconcile.Group{Logger: unlogged()}
		group.Add("late", reconcile.Restart(minutes, tries(j, func(ctx context.Context) error { <-ctx.Done(); return errBoom })))
		late := launch(t, &group)
		time.Sleep(10 * time.Second)
		waiting.end()
		running.end()
		late.cancel(errEnd)
		if err := late.wait(); !errors.Is(err, errBoom) {
			t.Errorf("Run = %v, want what the Runner returned, %v", err, errBoom)
		}
		if took := time.Since(j.begun); took != 10*time.Second {
			t.Errorf("they ended after %v, want 10s", took)
		}
		if j.len() != 3 {
			t.Errorf("runs %q, want no restart", j.list)
		}
	})
}

// A Reconciler whose queue fails is taken up again, and what it missed is done.
func TestRestartTakesUpAReconciler(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	synctest.Test(t, func(t *testing.T) {
		inner := reconcile.NewQueue[string]()
		var results resultBook[string]
		r := &reconcile.Reconciler[string]{
			Queue:     brokenQueue{plainly(inner), make(chan struct{})},
			Reconcile: nothing,
			OnResult:  results.add,
		}
		close(r.Queue.(brokenQueue).broken)
		var g reconcile.Group
		g.Add("buckets", reconcile.Restart(func(error, int) (time.Duration, bool) {
			r.Queue = inner // somebody mends it
			return time.Second, true
		}, r))
		run := launch(t, &g)
		inner.Enqueue("a")
		time.Sleep(2 * time.Second)
		if got := results.only(t); got.Item != "a" || got.Waited != time.Second {
			t.Errorf("result = %+v, want a to be run after the restart", got)
		}
		run.end()
	})
}
