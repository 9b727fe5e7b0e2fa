// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// member is a Runner that notes when it begins and, after it was told to end,
// when it ends, which takes it some time.
func member(j *journal, name string, lasts time.Duration, err error) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		j.note("%s begins", name)
		<-ctx.Done()
		time.Sleep(lasts)
		j.note("%s ends", name)
		return err
	})
}

// after is a Runner that returns err after some time, or else ctx's error.
func after(d time.Duration, err error) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func TestGroupRunsItsMembersTogetherUntilCtxIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		var g reconcile.Group
		g.Add("a", member(j, "a", time.Second, nil))
		g.Add("b", member(j, "b", 2*time.Second, context.Canceled))
		g.Add("c", member(j, "c", 3*time.Second, fmt.Errorf("c: %w", errEnd))) // ctx's cause
		run := launch(t, &g)
		time.Sleep(time.Minute)
		j.mustHold(t, "0s a begins", "0s b begins", "0s c begins")
		run.end()
		j.mustHold(t, "0s a begins", "0s b begins", "0s c begins", "1m1s a ends", "1m2s b ends", "1m3s c ends")
	})
}

func TestGroupReturnsNilWhenAllMembersEndedWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Group
		g.Add("short", after(time.Second, nil)) // its end does not end the others
		g.Add("long", after(time.Hour, nil))
		began := time.Now()
		if err := g.Run(t.Context()); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("Run took %v, want 1h0m0s: until every member has returned", took)
		}
	})
}

func TestGroupWithoutMembersReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Group
		if err := launch(t, &g).wait(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func TestGroupReturnsTheFirstErrorWithTheNameAfterEndingTheOthers(t *testing.T) {
	for name, c := range map[string]struct {
		fail func() error
		is   func(error) bool
	}{
		"error": {
			func() error { return errBoom },
			func(err error) bool { return errors.Is(err, errBoom) },
		},
		"somebody else's context error": {
			func() error { return context.DeadlineExceeded },
			func(err error) bool { return errors.Is(err, context.DeadlineExceeded) },
		},
		"context error too early": {
			func() error { return context.Canceled },
			func(err error) bool { return errors.Is(err, context.Canceled) },
		},
		"panic": {failuresAs("panic"), isPanic},
		"Goexit": {
			failuresAs("Goexit"),
			func(err error) bool { return isPanic(err) && strings.Contains(err.Error(), "Goexit") },
		},
		"panic with error": {failuresAs("error"), func(err error) bool { return isPanic(err) && errors.Is(err, errBoom) }},
		"panic with nil":   {failuresAs("nil"), isPanic},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				g := reconcile.Group{Logger: unlogged()}
				g.Add("buckets", member(j, "buckets", 3*time.Second, errors.New("came too late")))
				g.Add("keys", reconcile.RunFunc(func(context.Context) error {
					time.Sleep(time.Second)
					return c.fail()
				}))
				g.Add("regions", member(j, "regions", 2*time.Second, nil))
				began := time.Now()
				err := launch(t, &g).wait()
				if !c.is(err) || !strings.Contains(err.Error(), "keys") {
					t.Errorf("Run = %v, want the error of the member keys, with its name", err)
				}
				if took := time.Since(began); took != 4*time.Second {
					t.Errorf("Run returned after %v, want 4s: once every member has returned", took)
				}
				j.mustHold(t, "0s buckets begins", "0s regions begins", "3s regions ends", "4s buckets ends")
			})
		})
	}
}

func failuresAs(name string) func() error {
	return func() error { return panicsHere(failuresOfUserCode[name]) }
}

func isPanic(err error) bool {
	var p *reconcile.PanicError
	return errors.As(err, &p) && strings.Contains(string(p.Stack), "panicsHere")
}

func TestGroupTellsMembersWhyTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Group
		var cause error
		g.Add("a", reconcile.RunFunc(func(ctx context.Context) error {
			if got := ctx.Value(leaseKey{}); got != "of the caller" {
				t.Errorf("a member's context has value %v, want that of Run's", got)
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}))
		run := launchUnder(context.WithValue(t.Context(), leaseKey{}, "of the caller"), t, &g)
		synctest.Wait()
		run.end()
		if cause != errEnd {
			t.Errorf("cause of a member's context = %v, want that of Run's", cause)
		}
	})
}

// A member that fails while the group is ending anyway did fail.
func TestGroupReportsAFailureDuringItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := reconcile.Group{Logger: unlogged()}
		g.Add("good", member(j, "good", 0, nil))
		g.Add("bad", member(j, "bad", time.Second, errBoom))
		run := launch(t, &g)
		synctest.Wait()
		run.cancel(errEnd)
		if err := run.wait(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "bad") {
			t.Errorf("Run = %v, want the error of the member bad", err)
		}
	})
}

// Two members fail: Run waits for both, and the second failure is not hidden.
func TestGroupOutlivesASecondFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := newLogBook()
		g := reconcile.Group{Logger: book.logger()}
		g.Add("first", after(time.Second, errBoom))
		second := false
		g.Add("second", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			second = true
			return errors.New("disk full")
		}))
		g.Add("third", member(newJournal(), "third", 2*time.Second, nil)) // ends well, and is not logged
		err := launch(t, &g).wait()
		if !errors.Is(err, errBoom) || !second {
			t.Errorf("Run = %v, second member returned: %v; want the first error once both have returned", err, second)
		}
		book.onlyLine(t, slog.LevelWarn).mustSay(t, slog.LevelError, nil, "second", "disk full")
	})
}

func TestGroupRunsOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Group
		var runs atomic.Int32
		g.Add("a", reconcile.RunFunc(func(ctx context.Context) error {
			runs.Add(1)
			<-ctx.Done()
			return nil
		}))
		run := launch(t, &g)
		synctest.Wait()
		if err := g.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "reconcile: ") {
			t.Errorf("second Run at a time = %v, want an error of the package", err)
		}
		if run.returned() {
			t.Error("the second Run ended the first")
		}
		run.end()
		if err := g.Run(t.Context()); err == nil {
			t.Error("Run after Run = nil, want an error")
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("the member ran %d times, want once", n)
		}
	})
}

func TestGroupAddWhileItRunsStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		var g reconcile.Group
		g.Add("a", reconcile.RunFunc(func(ctx context.Context) error {
			time.Sleep(time.Second)
			g.Add("of a", member(j, "of a", 0, nil)) // also from within a member
			<-ctx.Done()
			return nil
		}))
		run := launch(t, &g)
		time.Sleep(2 * time.Second)
		g.Add("b", member(j, "b", 0, nil))
		j.mustBe(t, "1s of a begins", "2s b begins")
		g.Add("c", after(time.Second, errBoom))
		if err := run.wait(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "c") {
			t.Errorf("Run = %v, want the error of c: a member added later counts like any other", err)
		}
		if j.len() != 4 {
			t.Errorf("journal %q, want all members ended", j.list)
		}
	})
}

func TestGroupAddAfterRunReturnedNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Group
		run := launch(t, &g)
		run.end()
		stop := g.Add("late", reconcile.RunFunc(func(context.Context) error { t.Error("it runs"); return nil }))
		synctest.Wait()
		stop()
		stop()
	})
}

func TestGroupAddWhileItEndsDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Group
		var stop func()
		g.Add("a", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			stop = g.Add("late", reconcile.RunFunc(func(context.Context) error { t.Error("it runs"); return nil }))
			time.Sleep(time.Second)
			return nil
		}))
		run := launch(t, &g)
		synctest.Wait()
		run.end()
		stop()
	})
}

func TestGroupRefusesANilRunner(t *testing.T) {
	never := reconcile.RunFunc(func(context.Context) error { t.Error("it runs"); return nil })
	ready := func(context.Context) error { return nil }
	for name, r := range map[string]reconcile.Runner{
		"nil":            nil,
		"nil RunFunc":    reconcile.RunFunc(nil),
		"After nil":      reconcile.After(ready, nil),
		"After no ready": reconcile.After(nil, never),
		"Restart nil":    reconcile.Restart(reconcile.NoRetry, nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := reconcile.Group{Logger: unlogged()}
				g.Add("good", after(time.Hour, nil))
				g.Add("bad", r)
				began := time.Now()
				err := launch(t, &g).wait()
				if err == nil || !strings.Contains(err.Error(), "bad") || !strings.Contains(err.Error(), "nil") {
					t.Errorf("Run = %v, want an error that names the member and says that it is nil", err)
				}
				if p := (*reconcile.PanicError)(nil); name != "nil RunFunc" && errors.As(err, &p) {
					t.Errorf("Run panicked: %v, want an error that says what is missing", err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("Run returned after %v, want at once", took)
				}
			})
		})
	}
}

func TestGroupRunWithADoneCtxReturnsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var g reconcile.Group
		g.Add("a", after(time.Hour, nil))
		g.Add("b", reconcile.RunFunc(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		if err := g.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func TestRunFuncIsARunner(t *testing.T) {
	var r reconcile.Runner = reconcile.RunFunc(func(ctx context.Context) error {
		return fmt.Errorf("%v: %w", ctx.Value(leaseKey{}), errBoom)
	})
	err := r.Run(context.WithValue(t.Context(), leaseKey{}, "value"))
	if !errors.Is(err, errBoom) || err.Error() != "value: boom" {
		t.Errorf("Run = %v, want what the function returns", err)
	}
}
