// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/supervise"
)

// member is a Runner that notes when it begins and, after its context has ended,
// when it ends, which takes it some time.
func member(j *record.Journal, name string, lasts time.Duration, err error) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		j.Note("%s begins", name)
		<-ctx.Done()
		time.Sleep(lasts)
		j.Note("%s ends", name)
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

// neverRuns is a Runner that must not run.
func neverRuns(t *testing.T) reconcile.Runner {
	return reconcile.RunFunc(func(context.Context) error { t.Error("it runs"); return nil })
}

// lateFeeder is a feeder that must not run any more, and would hold up the end.
func lateFeeder(t *testing.T) reconcile.Runner {
	return reconcile.RunFunc(func(context.Context) error { t.Error("a feeder runs"); time.Sleep(time.Minute); return nil })
}

// waiting is a Reconciler that has a run in flight until its context ends.
func waiting(j *record.Journal) reconcile.Runner {
	q := reconcile.NewQueue[string]()
	q.Enqueue("a")
	return &reconcile.Reconciler[string]{Queue: q, Reconcile: func(ctx context.Context, _ string) error {
		<-ctx.Done()
		j.Note("run ends")
		return nil
	}}
}

func TestGroupReturnsNilWhenAllMembersReturnNil(t *testing.T) {
	for name, members := range map[string][]time.Duration{"none": nil, "two": {time.Second, time.Hour}} {
		runBubble(t, name, func(t *testing.T) {
			var g supervise.Group
			var last time.Duration
			own := make([]context.Context, len(members))
			for i, d := range members { // the end of the first does not end the second
				g.Add(d.String(), reconcile.RunFunc(func(ctx context.Context) error {
					own[i] = ctx
					return after(d, nil).Run(ctx)
				}))
				last = d
			}
			began := time.Now()
			if err := record.Launch(t, &g).Wait(); err != nil || time.Since(began) != last {
				t.Errorf("Run = %v after %v, want nil after %v: once every member has returned", err, time.Since(began), last)
			}
			for _, ctx := range own {
				if ctx.Err() == nil {
					t.Error("the context of a member that has returned goes on")
				}
			}
		})
	}
}

func TestGroupReturnsTheFirstErrorAfterAllMembersEnd(t *testing.T) {
	for name, c := range map[string]struct {
		fail func() error
		is   func(error) bool
	}{
		"error": {
			func() error { return errBoom },
			func(err error) bool { return err.Error() == "keys: boom" && errors.Is(err, errBoom) },
		},
		"context error too early": {
			func() error { return context.Canceled },
			func(err error) bool { return errors.Is(err, context.Canceled) },
		},
		"panic": {record.FailureAs("panic"), record.IsPanic},
		"Goexit": {
			record.FailureAs("Goexit"),
			func(err error) bool { return record.IsPanic(err) && strings.Contains(err.Error(), "Goexit") },
		},
		"panic with error": {record.FailureAs("error"), func(err error) bool { return record.IsPanic(err) && errors.Is(err, errBoom) }},
		"panic with nil":   {record.FailureAs("nil"), record.IsPanic},
	} {
		runBubble(t, name, func(t *testing.T) {
			j := record.New()
			g := supervise.Group{Logger: record.Unlogged()}
			g.Add("buckets", member(j, "buckets", 3*time.Second, errors.New("came too late")))
			g.Add("keys", reconcile.RunFunc(func(context.Context) error {
				time.Sleep(time.Second)
				return c.fail()
			}))
			g.Add("regions", member(j, "regions", 2*time.Second, nil))
			err := record.Launch(t, &g).Wait()
			if !c.is(err) || !strings.HasPrefix(err.Error(), "keys: ") {
				t.Errorf("Run = %v, want the error of the member keys, with its name", err)
			}
			if took := j.Elapsed(); took != 4*time.Second {
				t.Errorf("Run returned after %v, want 4s: once every member has returned", took)
			}
			j.WantAll(t, "0s buckets begins", "0s regions begins", "3s regions ends", "4s buckets ends")
		})
	}
}

// Once ctx is done, a member may still fail. But its own error, or that of ctx, is
// no failure; a panic with that value is one, and so is another error beside it.
func TestGroupReportsAFailureDuringItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(ctx context.Context) error
		fail bool
	}{
		"error":                {func(context.Context) error { return errBoom }, true},
		"own cause":            {func(ctx context.Context) error { return context.Cause(ctx) }, false},
		"other error":          {func(context.Context) error { return context.DeadlineExceeded }, true},
		"panic":                {func(ctx context.Context) error { panic(ctx.Err()) }, true},
		"panic further inside": {func(ctx context.Context) error { return fmt.Errorf("in: %w", &reconcile.PanicError{Value: ctx.Err()}) }, true},
		"another beside it":    {func(ctx context.Context) error { return errors.Join(ctx.Err(), errBoom) }, true},
		"another inside": {func(ctx context.Context) error {
			return fmt.Errorf("flush: %w", errors.Join(errBoom, context.Cause(ctx)))
		}, true},
		"twice, joined": {func(ctx context.Context) error {
			return errors.Join(fmt.Errorf("a: %w", ctx.Err()), errors.Join(context.Cause(ctx), fmt.Errorf("b: %w: %w", errBoom, ctx.Err())))
		}, false},
		"of a wait": {func(ctx context.Context) error { return reconcile.NewQueue[string]().EnqueueAndWait(ctx, "a", "b") }, false},
	} {
		for _, cause := range []error{errors.Join(errEnd, errBoom), &reconcile.PanicError{Value: errEnd}} {
			runBubble(t, name, func(t *testing.T) {
				g := supervise.Group{Logger: record.Unlogged()}
				g.Add("good", member(record.New(), "good", 0, nil))
				g.Add("bad", reconcile.RunFunc(func(ctx context.Context) error { <-ctx.Done(); return c.end(ctx) }))
				run := record.Launch(t, &g)
				synctest.Wait()
				run.Cancel(cause)
				if err := run.Wait(); (err != nil) != c.fail || c.fail && !strings.HasPrefix(err.Error(), "bad: ") {
					t.Errorf("Run = %v, want an error of the member bad: %v", err, c.fail)
				}
			})
		}
	}
}

// Two members fail: Run waits for both, and the second failure is logged. The error
// of the first, which has no name, is returned as it is.
func TestGroupLogsASecondFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := record.NewLog()
		g := supervise.Group{Logger: book.Logger()}
		g.Add("", after(time.Second, errBoom))
		second := false
		g.Add("second", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			second = true
			return errors.New("disk full")
		}))
		g.Add("third", member(record.New(), "third", time.Millisecond, nil)) // ends well, and is not logged
		err := record.Launch(t, &g).Wait()
		if err != errBoom || !second {
			t.Errorf("Run = %v, second member returned: %v; want the first error once both have returned", err, second)
		}
		book.OnlyLine(t, slog.LevelInfo).MustSay(t, slog.LevelError, map[string]string{"member": "second"}, "disk full")
	})
}

func TestGroupRunsOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g supervise.Group
		var runs atomic.Int32
		g.Add("a", reconcile.RunFunc(func(ctx context.Context) error {
			runs.Add(1)
			<-ctx.Done()
			return nil
		}))
		run := record.Launch(t, &g)
		synctest.Wait()
		for _, when := range []string{"at a time", "after it"} {
			if err := g.Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || !strings.HasPrefix(err.Error(), "supervise: ") {
				t.Errorf("second Run %s = %v, want a terminal error of the package", when, err)
			}
			if when == "at a time" && run.Returned() {
				t.Error("the second Run ended the first")
			}
			run.End()
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("the member ran %d times, want once", n)
		}
	})
}

func TestGroupAddDuringRunStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := record.New()
		var g supervise.Group
		g.Add("a", reconcile.RunFunc(func(ctx context.Context) error {
			time.Sleep(time.Second)
			g.Add("of a", member(j, "of a", 0, nil)) // also from within a member
			<-ctx.Done()
			return nil
		}))
		run := record.Launch(t, &g)
		time.Sleep(2 * time.Second)
		g.Add("b", member(j, "b", 0, nil))
		j.Want(t, "1s of a begins", "2s b begins")
		g.Add("c", after(time.Second, errBoom)) // a member that was added later counts like any other
		if err := run.Wait(); err == nil || err.Error() != "c: boom" {
			t.Errorf("Run = %v, want the error of c", err)
		}
		j.WantAll(t, "1s of a begins", "2s b begins", "3s b ends", "3s of a ends")
	})
}

// A last is a Runner that is ended after the feeders.
type last struct{ reconcile.Runner }

func (last) EndLast() {}

func TestGroupAddAfterRunReturnedNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g supervise.Group
		var stops []func()
		add := func() { stops = append(stops, g.Add("late", neverRuns(t))) }
		g.Add("a", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			add() // while the group ends
			time.Sleep(time.Second / 2)
			g.Add("late", last{neverRuns(t)}) // after the ends of the contexts of Reconcilers
			time.Sleep(time.Second / 2)
			return nil
		}))
		run := record.Launch(t, &g)
		synctest.Wait()
		run.End()
		add()
		synctest.Wait()
		for _, stop := range stops {
			stop()
			stop()
		}
	})
}

// A Group that starts while the Group around it ends starts its Reconcilers, and no
// feeders, and ends with the others: a second after the end began.
func TestGroupThatStartsDuringTheEndStartsNoFeeder(t *testing.T) {
	record.SetDefaultLogger(t, record.NewLog())
	for _, ready := range []time.Duration{250 * time.Millisecond, 750 * time.Millisecond} {
		runBubble(t, ready.String(), func(t *testing.T) {
			j := record.New()
			q := reconcile.NewQueue[string]()
			q.Enqueue("a")
			inside := groupOf(lateFeeder(t), waiting(record.New()), groupOf(lateFeeder(t), waiting(record.New())))
			late := groupOf(lateFeeder(t), groupOf(lateFeeder(t)), &reconcile.Reconciler[string]{Queue: q, Reconcile: func(ctx context.Context, item string) error {
				j.Note("%s runs", item)
				<-ctx.Done()
				j.Note("%s is cut", item)
				return nil
			}}, inside)
			began := time.Now()
			late.Add("slow", unwrapper{waiting(record.New()), func() {
				if time.Since(began) > 10*time.Second {
					t.Error("late asks which of its members are feeders when it begins")
				}
			}})
			run := record.Launch(t, groupOf(
				member(j, "feeder", time.Minute, nil),
				supervise.After(func(ctx context.Context) error { time.Sleep(10*time.Second + ready); return nil }, late),
			))
			time.Sleep(10 * time.Second)
			late.Add("feeder", lateFeeder(t))
			run.Cancel(errEnd)
			if err := run.Wait(); err != nil {
				t.Error(err)
			}
			j.Want(t, "0s feeder begins", fmt.Sprintf("%v a runs", 10*time.Second+ready), "11s a is cut", "1m10s feeder ends")
		})
	}
}

func TestGroupErrorNamesTheWrongField(t *testing.T) {
	ready := func(context.Context) error { return nil }
	for name, r := range map[string]reconcile.Runner{
		"nil":            nil,
		"After nil":      supervise.After(ready, nil),
		"After no ready": supervise.After(nil, neverRuns(t)),
		"Restart nil":    supervise.Restart(nil, nil),
	} {
		runBubble(t, name, func(t *testing.T) {
			g := supervise.Group{Logger: record.Unlogged()}
			g.Add("good", after(time.Hour, nil))
			g.Add("bad", r)
			began := time.Now()
			err := record.Launch(t, &g).Wait()
			if !errors.Is(err, reconcile.ErrTerminal) || !strings.HasPrefix(err.Error(), "bad: supervise: ") || !strings.Contains(err.Error(), "nil") || time.Since(began) != 0 {
				t.Errorf("Run = %v after %v, want at once a terminal error that names the member and says that it is nil", err, time.Since(began))
			}
			if p := (*reconcile.PanicError)(nil); errors.As(err, &p) {
				t.Errorf("Run panicked: %v, want an error that says what is missing", err)
			}
		})
	}
	g := supervise.Group{ShutdownTimeout: -1}
	g.Add("a", neverRuns(t))
	if err := g.Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || !strings.HasPrefix(err.Error(), "supervise: Group.ShutdownTimeout ") {
		t.Errorf("Run = %v, want a terminal error that names the field", err)
	}
}

// A wrapper is a Runner of another package that runs one and has an Unwrap method.
type wrapper struct{ of reconcile.Runner }

func (w wrapper) Run(ctx context.Context) error { return w.of.Run(ctx) }

func (w wrapper) Unwrap() reconcile.Runner { return w.of }

func isReady(r reconcile.Runner) reconcile.Runner {
	return supervise.After(func(context.Context) error { return nil }, r)
}

func groupOf(members ...reconcile.Runner) *supervise.Group {
	g := &supervise.Group{Logger: record.Unlogged()}
	for _, m := range members {
		g.Add("member", m)
	}
	return g
}

// wrappings are the ways in which a Reconciler is a member.
var wrappings = map[string]func(r reconcile.Runner) reconcile.Runner{
	"itself":  func(r reconcile.Runner) reconcile.Runner { return r },
	"After":   isReady,
	"Restart": func(r reconcile.Runner) reconcile.Runner { return supervise.Restart(reconcile.NoRetry, r) },
	"Group":   func(r reconcile.Runner) reconcile.Runner { return groupOf(after(0, nil), r) },
	"wrapper": func(r reconcile.Runner) reconcile.Runner { return wrapper{r} },
	"all": func(r reconcile.Runner) reconcile.Runner {
		return wrapper{groupOf(isReady(supervise.Restart(nil, wrapper{isReady(r)})))}
	},
}

// Feeders are ended first and waited for. What they enqueue to the last is still
// served by a Reconciler whose context has not ended yet.
func TestGroupEndsFeedersBeforeReconcilers(t *testing.T) {
	record.SetDefaultLogger(t, record.NewLog())
	for name, wrap := range wrappings {
		for how, err := range map[string]error{"ctx is done": nil, "a feeder fails": errBoom} {
			runBubble(t, name+"/"+how, func(t *testing.T) {
				j := record.New()
				q := reconcile.NewQueue[string]()
				g := supervise.Group{Logger: record.Unlogged()}
				reconciler := func() reconcile.Runner {
					return wrap(&reconcile.Reconciler[string]{
						Queue: q,
						Reconcile: func(ctx context.Context, item string) error {
							j.Note("%s runs", item)
							<-ctx.Done()
							j.Note("%s ends", item)
							return nil
						},
					})
				}
				g.Add("reconciler", reconciler()) // first and last: the order of Add does not matter
				g.Add("feeder", wrap(reconcile.Feed(q, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
					<-ctx.Done()
					time.Sleep(250 * time.Millisecond)
					q.Enqueue("late")
					time.Sleep(250 * time.Millisecond)
					j.Note("feeder ends")
					return nil
				})))
				g.Add("poller", &reconcile.Poller[string]{
					Queue: q,
					GetItems: func(ctx context.Context) ([]string, error) {
						<-ctx.Done()
						time.Sleep(750 * time.Millisecond)
						j.Note("poller ends")
						return nil, nil
					},
					Period: time.Hour,
				})
				if err != nil {
					g.Add("failing", after(10*time.Second, err))
				}
				g.Add("reconciler 2", reconciler())
				run := record.Launch(t, &g)
				q.Enqueue("early")
				time.Sleep(10 * time.Second)
				if err == nil {
					run.Cancel(errEnd)
				}
				if got := run.Wait(); !errors.Is(got, err) {
					t.Errorf("Run = %v, want %v", got, err)
				}
				j.WantAll(t, "0s early runs", "10.25s late runs", "10.5s feeder ends", "10.75s poller ends",
					"10.75s early ends", "10.75s late ends") // the Reconcilers once all others have ended
			})
		}
	}
}

// A feeder hangs, in this Group or in one around or inside. The Reconcilers wait a second
// for it, and then have their whole Grace: the runs that began go on, and no other begins.
func TestGroupEndsReconcilersAlthoughAFeederHangs(t *testing.T) {
	record.SetDefaultLogger(t, record.NewLog())
	hangs := reconcile.RunFunc(func(context.Context) error { time.Sleep(time.Hour); return nil })
	for name, around := range map[string]func(reconciler reconcile.Runner) *supervise.Group{
		"beside it": func(r reconcile.Runner) *supervise.Group { return groupOf(hangs, r) },
		"around":    func(r reconcile.Runner) *supervise.Group { return groupOf(hangs, groupOf(groupOf(r))) },
		"inside":    func(r reconcile.Runner) *supervise.Group { return groupOf(r, wrapper{groupOf(groupOf(hangs), r)}) },
	} {
		runBubble(t, name, func(t *testing.T) {
			j := record.New()
			q := reconcile.NewQueue[int]()
			for i := range 100 {
				q.Enqueue(i)
			}
			g := around(&reconcile.Reconciler[int]{Queue: q, Grace: 20 * time.Second, Reconcile: func(ctx context.Context, i int) error {
				if i > 0 {
					return nil
				}
				j.Note("a run begins")
				for range 10 {
					q.Enqueue(100) // there is always an item
					time.Sleep(time.Second)
				}
				j.Note("the run ends, cut %t", ctx.Err() != nil)
				return nil
			}})
			g.ShutdownTimeout = 25 * time.Second
			run := record.Launch(t, g)
			time.Sleep(time.Second)
			run.Cancel(errEnd)
			if err := run.Wait(); !errors.Is(err, supervise.ErrStillRunning) || j.Elapsed() != 26*time.Second {
				t.Errorf("Run = %v after %v, want ErrStillRunning after 26s", err, j.Elapsed())
			}
			j.Want(t, "0s a run begins", "10s the run ends, cut false")
			if n := q.Len(); n == 0 {
				t.Error("all items were run after the end")
			}
			time.Sleep(2 * time.Hour) // until what hangs has ended
		})
	}
}

// The feeders of a Group inside end at the same moment as those of the Group around, and its
// Reconcilers with the others; what its feeders enqueue meanwhile is run.
func TestGroupsEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := record.New()
		q := reconcile.NewQueue[string]()
		feeds := func(name string, ends time.Duration) reconcile.Runner {
			return reconcile.RunFunc(func(ctx context.Context) error {
				<-ctx.Done()
				j.Note("%s is ended by %v", name, context.Cause(ctx))
				time.Sleep(ends)
				q.Enqueue(name)
				return nil
			})
		}
		inner := groupOf(feeds("inner", 0), &reconcile.Reconciler[string]{Queue: q, Reconcile: func(ctx context.Context, item string) error {
			j.Note("%s runs", item)
			<-ctx.Done()
			j.Note("%s is cut", item)
			return nil
		}})
		run := record.Launch(t, groupOf(feeds("outer", time.Second/2), supervise.Restart(nil, inner)))
		synctest.Wait()
		run.Cancel(errEnd)
		if err := run.Wait(); err != nil {
			t.Error(err)
		}
		j.WantAll(t, fmt.Sprintf("0s inner is ended by %v", errEnd), fmt.Sprintf("0s outer is ended by %v", errEnd),
			"0s inner runs", "500ms inner is cut")
	})
}

// The Reconcilers of a Group go on while a feeder of a Group inside ends, of each that has
// not ended, whenever it began.
func TestGroupWaitsForFeedersInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := record.New()
		inside := func(lasts time.Duration) reconcile.Runner {
			return groupOf(member(record.New(), "feeder", lasts, nil), waiting(record.New()))
		}
		g := groupOf(waiting(j), inside(time.Second/2))
		run := record.Launch(t, g)
		time.Sleep(10 * time.Second)
		g.Add("second", inside(time.Second/4))
		for range 100 {
			stop := g.Add("ended", inside(0))
			synctest.Wait()
			stop()
		}
		run.Cancel(errEnd)
		if err := run.Wait(); err != nil {
			t.Error(err)
		}
		j.Want(t, "10.5s run ends")
	})
}

func TestGroupStopEndsOnlyThatMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := record.New()
		var g supervise.Group
		stop := g.Add("a", member(j, "a", 3*time.Second, context.Canceled))
		stopLast := g.Add("b", member(j, "b", 0, nil))
		run := record.Launch(t, &g)
		time.Sleep(time.Second)
		var stops sync.WaitGroup
		for range 3 { // each of them waits
			stops.Go(func() {
				stop()
				j.Note("stopped")
			})
		}
		stops.Wait()
		j.WantAll(t, "0s a begins", "0s b begins", "4s a ends", "4s stopped", "4s stopped", "4s stopped")
		if run.Returned() {
			t.Fatal("Run returned because one member was stopped")
		}
		stop() // again
		stopLast()
		if err := run.Wait(); err != nil {
			t.Errorf("Run = %v, want nil: the last member was stopped, it did not fail", err)
		}
		stop() // and after Run returned
	})
}

func TestGroupStopBeforeRunKeepsTheMemberFromRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := record.New()
		var g supervise.Group
		stop := g.Add("a", neverRuns(t))
		g.Add("b", member(j, "b", 0, nil))
		stop()
		stop()
		run := record.Launch(t, &g)
		synctest.Wait()
		stop()
		run.End()
		j.Want(t, "0s b begins", "0s b ends")
	})
}

// Many members fail before Run gets to see the first failure: each of them ends
// the group.
func TestGroupHandlesSimultaneousFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := supervise.Group{Logger: record.Unlogged()}
		for range 100 {
			g.Add("", after(time.Second, errBoom))
		}
		if err := g.Run(slowDone{t.Context()}); err != errBoom {
			t.Errorf("Run = %v, want the error itself: the members have no names", err)
		}
	})
}

// slowDone is a context whose Done takes a minute.
type slowDone struct{ context.Context }

func (c slowDone) Done() <-chan struct{} {
	time.Sleep(time.Minute)
	return c.Context.Done()
}

// A member may know ctx by another way. Its error is no failure then, even if the
// member's own context has not ended yet.
func TestGroupTreatsTheErrorOfItsContextAsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var g supervise.Group
		g.Add("feeder", member(record.New(), "feeder", time.Second, nil))
		g.Add("last", outsider{wrapper{waiting(record.New())}, ctx})
		run := record.LaunchUnder(ctx, t, &g)
		synctest.Wait()
		cancel()
		if err := run.Wait(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// An outsider waits for the end of another context. It counts as what it wraps.
type outsider struct {
	wrapper
	ctx context.Context
}

func (o outsider) Run(context.Context) error { <-o.ctx.Done(); return o.ctx.Err() }

func TestGroupLogsAMemberThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := record.NewLog()
		j := record.New()
		g := supervise.Group{Logger: book.Logger()}
		g.Add("quick", member(j, "quick", time.Second, nil))
		g.Add("stuck", member(j, "stuck", time.Hour, nil))
		run := record.Launch(t, &g)
		synctest.Wait()
		run.End()
		var after []string
		for _, line := range book.From(slog.LevelInfo) {
			line.MustSay(t, slog.LevelWarn, map[string]string{"member": "stuck"}, "has not ended")
			after = append(after, line.Attrs["for"].Duration().String())
		}
		wantSame(t, "warnings after", after, []string{"10s", "20s", "40s", "1m20s", "2m40s", "5m20s", "10m40s", "21m20s", "42m40s"})
	})
}

// Run returns when the time is over, though members have not, and names them. By
// then the contexts of all of them have ended.
func TestGroupReturnsAfterItsShutdownTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		stuck, took time.Duration // what the feeder takes to end; what Run takes
		fails       error         // of another member, which ends the group
		late        error         // what the feeder returns
		want        string        // the names of those that still run
	}{
		"in time":              {time.Minute, time.Minute, nil, nil, ""},
		"in time, after error": {time.Minute, time.Minute, errBoom, nil, ""},
		"stuck":                {time.Hour, 2 * time.Minute, nil, nil, `["feeder"]`},
		"stuck, after error":   {time.Hour, 2 * time.Minute, errBoom, nil, `["feeder"]`},
		"stuck, fails late":    {time.Hour, 2 * time.Minute, nil, errors.New("disk full"), `["feeder"]`},
	} {
		runBubble(t, name, func(t *testing.T) {
			book := record.NewLog()
			j := record.New()
			g := supervise.Group{Logger: book.Logger(), ShutdownTimeout: 2 * time.Minute}
			g.Add("quick", member(record.New(), "quick", time.Second, nil))
			stop := g.Add("feeder", member(record.New(), "feeder", c.stuck, c.late))
			q := reconcile.NewQueue[string]()
			q.Enqueue("a")
			g.Add("reconciler", &reconcile.Reconciler[string]{Queue: q, Reconcile: func(ctx context.Context, _ string) error {
				<-ctx.Done()
				j.Note("context ends")
				return nil
			}})
			if c.fails != nil {
				g.Add("failing", after(time.Second, c.fails))
			}
			run := record.Launch(t, &g)
			time.Sleep(time.Second)
			if c.fails == nil {
				run.Cancel(errEnd)
			}
			err := run.Wait()
			if took := j.Elapsed() - time.Second; took != c.took {
				t.Errorf("Run returned after %v, want %v", took, c.took)
			}
			if c.fails != nil && !errors.Is(err, c.fails) {
				t.Errorf("Run = %v, want the error of the member that failed in it", err)
			}
			if errors.Is(err, supervise.ErrStillRunning) != (c.want != "") || c.want != "" && !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("Run = %v, want an error that matches ErrStillRunning and names %s", err, c.want)
			}
			if c.fails == nil && c.want == "" && err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
			j.Want(t, "2s context ends") // a second after the end began
			book.Clear()
			stop() // waits for the one that is late
			if took := j.Elapsed() - time.Second; took < c.stuck {
				t.Errorf("stop returned after %v, want %v: when the member had", took, c.stuck)
			}
			synctest.Wait()
			if c.late != nil {
				book.OnlyLine(t, slog.LevelInfo).MustSay(t, slog.LevelError, map[string]string{"member": "feeder"}, "disk full")
			} else if lines := book.From(slog.LevelInfo); len(lines) > 0 {
				t.Errorf("log lines %v, want none", lines)
			}
		})
	}
}

// The logger of a member's context is that of the group, with the member's name.
func TestGroupContextsCarryTheLoggerOfTheMember(t *testing.T) {
	book, other, fallback := record.NewLog(), record.NewLog(), record.NewLog()
	record.SetDefaultLogger(t, fallback)
	synctest.Test(t, func(t *testing.T) {
		says := func(text string) reconcile.Runner {
			return reconcile.RunFunc(func(ctx context.Context) error {
				reconcile.Logger(ctx).Info(text)
				return nil
			})
		}
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		q.Close()
		inner, ours, nameless, lone := new(supervise.Group), &supervise.Group{Logger: other.Logger()}, new(supervise.Group), new(supervise.Group)
		outer := &supervise.Group{Logger: book.Logger()}
		inner.Add("keys", says("in a group"))
		ours.Add("keys", says("in a group with a logger"))
		nameless.Add("", says("without any name"))
		outer.Add("feeder", says("alone"))
		outer.Add("", says("without a name"))
		outer.Add("cloud", inner)
		outer.Add("ours", ours)
		outer.Add("", nameless)
		outer.Add("reconciler", &reconcile.Reconciler[string]{Queue: q, Name: "buckets", Reconcile: func(ctx context.Context, _ string) error {
			reconcile.Logger(ctx).Info("run")
			inRun, ourInRun := new(supervise.Group), &supervise.Group{Logger: other.Logger()}
			inRun.Add("disk", says("in a group in a run"))
			ourInRun.Add("disk", says("in a group with a logger in a run"))
			return errors.Join(inRun.Run(ctx), ourInRun.Run(ctx))
		}})
		lone.Add("feeder", says("without a logger"))
		for _, g := range []*supervise.Group{outer, lone} {
			if err := record.Launch(t, g).Wait(); err != nil {
				t.Fatal(err)
			}
		}
		reconcile.Logger(t.Context()).Info("elsewhere")
	})
	got := make(map[string]string)
	for where, b := range map[string]*record.Log{"book": book, "other": other, "fallback": fallback} {
		for _, line := range b.From(slog.LevelInfo) {
			member, ok := line.Attrs["member"]
			got[line.Message] = fmt.Sprint(where, " ", ok, " ", member, " ", line.Attrs["reconciler"])
		}
	}
	want := map[string]string{
		"alone":                             "book true feeder <nil>",
		"in a group":                        "book true cloud/keys <nil>",
		"in a group with a logger":          "other true ours/keys <nil>",
		"without a name":                    "book false <nil> <nil>",
		"without any name":                  "book false <nil> <nil>",
		"run":                               "book true reconciler buckets",
		"in a group in a run":               "book true reconciler/disk <nil>",
		"in a group with a logger in a run": "other true reconciler/disk <nil>",
		"without a logger":                  "fallback true feeder <nil>",
		"elsewhere":                         "fallback false <nil> <nil>",
	}
	wantSame(t, "logger, whether there is a member, member, reconciler", got, want)
}

// When Run returns nothing runs any more, however it came about; and the bubble
// would not end if a goroutine were left.
func TestGroupLeavesNoGoroutineBehind(t *testing.T) {
	record.SetDefaultLogger(t, record.NewLog())
	for _, how := range []string{"ctx", "error", "panic", "Goexit"} {
		runBubble(t, how, func(t *testing.T) {
			var busy atomic.Int32 // calls that go on
			enter := func() (leave func()) { busy.Add(1); return func() { busy.Add(-1) } }
			slow := func(ctx context.Context) error { // heeds ctx, but not at once
				defer enter()()
				<-ctx.Done()
				time.Sleep(2 * time.Second)
				return ctx.Err()
			}
			q := reconcile.NewQueue[string]()
			g := supervise.Group{Logger: record.Unlogged()}
			g.Add("poller", &reconcile.Poller[string]{
				Queue:    q,
				GetItems: func(ctx context.Context) ([]string, error) { return []string{"a", "b", "c"}, nil },
				Period:   time.Second,
			})
			g.Add("slow poller", &reconcile.Poller[string]{
				Queue:    q,
				GetItems: func(ctx context.Context) ([]string, error) { return nil, slow(ctx) },
				Period:   time.Hour,
			})
			g.Add("channel", reconcile.Feed(q, reconcile.FromChan(make(chan string))))
			g.Add("restarted", supervise.Restart(nil, after(time.Second, errBoom)))
			g.Add("waiting", supervise.After(slow, after(0, errBoom)))
			g.Add("reconciler", &reconcile.Reconciler[string]{
				Queue: q,
				Reconcile: func(ctx context.Context, item string) error {
					switch item {
					case "a":
						return slow(ctx)
					case "b":
						return record.FailureAs("Goexit")()
					}
					return errBoom
				},
				Workers: 3,
				Grace:   time.Second,
				Logger:  record.Unlogged(),
			})
			run := record.Launch(t, &g)
			time.Sleep(25 * time.Second)
			switch how {
			case "ctx":
				run.Cancel(errEnd)
			case "error":
				g.Add("cause", after(0, errBoom))
			default:
				g.Add("cause", reconcile.RunFunc(func(context.Context) error { return record.FailureAs(how)() }))
			}
			if err := run.Wait(); (err == nil) != (how == "ctx") {
				t.Errorf("Run = %v", err)
			}
			if n := busy.Load(); n != 0 {
				t.Errorf("%d calls go on after Run returned, want none", n)
			}
		})
	}
}

// A countedContext counts what waits for its end.
type countedContext struct {
	context.Context
	waiting *atomic.Int64
}

// Value hides what is inside, so that all that derives from it has to ask it.
func (c countedContext) Value(any) any { return nil }

func (c countedContext) AfterFunc(f func()) (stop func() bool) {
	c.waiting.Add(1)
	inner := context.AfterFunc(c.Context, f)
	return func() bool {
		stopped := inner()
		if stopped {
			c.waiting.Add(-1)
		}
		return stopped
	}
}

// A service may call Run with the same context again and again. What has ended
// leaves nothing on it.
func TestRunStopsItsContextCallbacks(t *testing.T) {
	reconciler := func() *reconcile.Reconciler[string] {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		q.Close()
		return &reconcile.Reconciler[string]{Queue: q, Reconcile: func(context.Context, string) error { return nil }}
	}
	for name, runner := range map[string]func() reconcile.Runner{
		"Reconciler": func() reconcile.Runner { return reconciler() },
		"Reconciler, with Grace": func() reconcile.Runner {
			r := reconciler()
			r.Grace, r.Timeout = time.Hour, time.Hour
			return r
		},
		"Feed": func() reconcile.Runner {
			ch := make(chan string)
			close(ch)
			return reconcile.Feed(reconcile.NewQueue[string](), reconcile.FromChan(ch))
		},
		"After":          func() reconcile.Runner { return isReady(after(0, nil)) },
		"Restart":        func() reconcile.Runner { return supervise.Restart(reconcile.NoRetry, after(0, errBoom)) },
		"Group":          func() reconcile.Runner { return groupOf(after(0, nil), after(time.Second, nil)) },
		"Group, failing": func() reconcile.Runner { return groupOf(after(0, errBoom), after(time.Second, nil)) },
	} {
		runBubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			counted := countedContext{ctx, new(atomic.Int64)}
			_ = runner().Run(counted)
			synctest.Wait()
			if n := counted.waiting.Load(); n != 0 {
				t.Errorf("%d functions wait for the end of the context after Run returned, want none", n)
			}
		})
	}
}

func TestAfterFailsWhenReadyFails(t *testing.T) {
	for name, ready := range map[string]func() error{
		"error": func() error { return errBoom },
		"panic": record.FailureAs("error"),
	} {
		runBubble(t, name, func(t *testing.T) {
			g := supervise.Group{Logger: record.Unlogged()}
			g.Add("cache", supervise.After(func(context.Context) error { time.Sleep(time.Second); return ready() }, neverRuns(t)))
			g.Add("rest", after(time.Hour, nil))
			began := time.Now()
			err := record.Launch(t, &g).Wait()
			if took := time.Since(began); !errors.Is(err, errBoom) || !strings.HasPrefix(err.Error(), "cache: ") || took != time.Second {
				t.Errorf("Run = %v after %v, want the error of ready after 1s, with the member's name", err, took)
			}
		})
	}
}

func TestAfterReturnsNilWhenCtxEndsWhileReadyWaits(t *testing.T) {
	for name, c := range map[string]struct {
		ready func(ctx context.Context) error
		want  error
	}{
		"ready after all": {func(context.Context) error { return nil }, nil},
		"its error":       {func(ctx context.Context) error { return fmt.Errorf("sync: %w", ctx.Err()) }, nil},
		"its cause":       {context.Cause, nil},
		"another error":   {func(context.Context) error { return errBoom }, errBoom},
	} {
		runBubble(t, name, func(t *testing.T) {
			run := record.Launch(t, supervise.After(func(ctx context.Context) error { <-ctx.Done(); return c.ready(ctx) }, neverRuns(t)))
			time.Sleep(time.Second)
			run.Cancel(errEnd)
			if err := run.Wait(); !errors.Is(err, c.want) {
				t.Errorf("Run = %v, want %v", err, c.want)
			}
		})
	}
}

// A function that waits for a cache may ignore its context for ever.
func TestAfterWarnsOfAFunctionThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := record.NewLog()
		ctx := reconcile.WithLogger(t.Context(), book.Logger())
		hang := make(chan struct{})
		run := record.LaunchUnder(ctx, t, supervise.After(func(context.Context) error { <-hang; return nil }, neverRuns(t)))
		time.Sleep(time.Hour)
		run.Cancel(errEnd)
		time.Sleep(3 * time.Hour)
		close(hang)
		if err := run.Wait(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		var ages []string
		for _, l := range book.From(slog.LevelInfo) {
			l.MustSay(t, slog.LevelWarn, nil, "ready has not returned", "the test ends")
			ages = append(ages, l.Attrs["age"].String())
		}
		wantSame(t, "ages", ages, []string{"1h0m0.5s", "2h0m1s"})
	})
}

// A try is one run of a Runner that is restarted.
type try func(ctx context.Context) error

// tries makes a Runner of what each run does, and notes when each begins.
func tries(j *record.Journal, runs ...try) reconcile.Runner {
	n := 0
	return reconcile.RunFunc(func(ctx context.Context) error {
		n++
		j.Note("run %d", n)
		return runs[min(n, len(runs))-1](ctx)
	})
}

func failing(context.Context) error { return errBoom }

func ending(context.Context) error { return nil }

// failsAfter fails after some time.
func failsAfter(d time.Duration) try {
	return func(context.Context) error { time.Sleep(d); return errBoom }
}

func TestRestartRunsAgainAsThePolicySays(t *testing.T) {
	terminal := fmt.Errorf("no access: %w", reconcile.Terminal(errBoom))
	joined := errors.Join(terminal, reconcile.Terminal(errBoom))
	last := errors.New("third")
	for name, c := range map[string]struct {
		policy reconcile.RetryPolicy
		runs   []try
		want   error
		starts []string
	}{
		"until it ends well": {
			minutes,
			[]try{
				failing, func(context.Context) error { return record.FailureAs("panic")() },
				func(context.Context) error { return record.FailureAs("Goexit")() }, ending,
			},
			nil,
			[]string{"0s run 1", "1m0s run 2", "3m0s run 3", "6m0s run 4"},
		},
		"until the policy gives up": {
			reconcile.RetryPolicy(minutes).Limit(2),
			[]try{failing, failing, func(context.Context) error { return last }},
			last,
			[]string{"0s run 1", "1m0s run 2", "3m0s run 3"},
		},
		"until it is terminal": {
			minutes,
			[]try{failing, func(context.Context) error { return terminal }},
			terminal,
			[]string{"0s run 1", "1m0s run 2"},
		},
		"until each failure of a join is terminal": {
			minutes,
			[]try{
				func(context.Context) error { return errors.Join(terminal, errBoom) },
				func(context.Context) error { panic(terminal) },
				func(context.Context) error { return joined },
			},
			joined,
			[]string{"0s run 1", "1m0s run 2", "3m0s run 3"},
		},
		"a run of ten times the pause begins the count anew": {
			func(_ error, failures int) (time.Duration, bool) { return time.Duration(failures) * time.Second, true },
			[]try{failing, failsAfter(10*time.Second - 1), failsAfter(20 * time.Second), failing, ending},
			nil,
			[]string{"0s run 1", "1s run 2", "12.999999999s run 3", "33.999999999s run 4", "35.999999999s run 5"},
		},
		"also for Limit": {
			reconcile.RetryPolicy(func(error, int) (time.Duration, bool) { return time.Second, true }).Limit(2),
			[]try{failing, failsAfter(10 * time.Second), failing, failing},
			errBoom,
			[]string{"0s run 1", "1s run 2", "12s run 3", "13s run 4"},
		},
		"a RequeueError is a failure as any other": {
			reconcile.RetryPolicy(minutes).Limit(2),
			[]try{
				func(context.Context) error { return fmt.Errorf("no: %w", reconcile.RequeueAfter(time.Hour)) },
				func(context.Context) error { return errors.Join(errBoom, reconcile.RequeueWithin(0)) },
				func(context.Context) error { return last },
			},
			last,
			[]string{"0s run 1", "1m0s run 2", "3m0s run 3"},
		},
		"as after a run of a minute": {
			reconcile.RetryPolicy(minutes).Limit(2),
			[]try{failing, failing, failsAfter(time.Minute), failing, failing},
			errBoom,
			[]string{"0s run 1", "1m0s run 2", "3m0s run 3", "5m0s run 4", "7m0s run 5"},
		},
		"a delay that overflowed, and none": {
			func(_ error, failures int) (time.Duration, bool) { return []time.Duration{0, 0, -1}[failures-1], true },
			[]try{failing, failing, failing, ending},
			nil,
			[]string{"0s run 1", "0s run 2", "1s run 3", "5m1s run 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			record.SetDefaultLogger(t, record.NewLog())
			synctest.Test(t, func(t *testing.T) {
				j := record.New()
				if err := record.Launch(t, supervise.Restart(c.policy, tries(j, c.runs...))).Wait(); err != c.want {
					t.Errorf("Run = %v, want %v", err, c.want)
				}
				j.Want(t, c.starts...)
			})
		})
	}
}

// A method of an error that panics when it is asked whether the error is Terminal does not
// end Restart: a back-off of the kernel's own replaces what the policy says.
func TestRestartContinuesAfterAPanicInsideAnError(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		var typedNil *fs.PathError
		for _, err := range []error{typedNil, record.BadTree{End: end}} {
			j := record.New()
			book := record.NewLog()
			g := supervise.Group{Logger: book.Logger()}
			g.Add("watch", supervise.Restart(minutes, tries(j, func(context.Context) error { return err }, ending)))
			if got := record.Launch(t, &g).Wait(); got != nil || len(j.Lines()) != 2 || !within(j.Elapsed(), 0, time.Second) {
				t.Errorf("%T: Run = %v after %v and the runs %v, want nil after two runs within a second", err, got, j.Elapsed(), j.Lines())
			}
			if lines := book.From(slog.LevelError); len(lines) != 1 || !strings.Contains(lines[0].Message, "panicked") {
				t.Errorf("%T: log lines %v, want one that says what panicked", err, lines)
			}
		}
	})
}

// Restart logs the first failure, and those by which their number has doubled, whatever
// their texts, and that its Runner ended without one: a stream that a server ends in order
// is not heard of again. A run of a minute begins a new count.
func TestRestartLogsFailuresByTheirCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := record.NewLog()
		panics := func(context.Context) error { return record.FailureAs("panic")() }
		runs := []try{failing, failing, panics, panics, failing, panics, failing, failsAfter(time.Minute), failing, failing, ending}
		g := supervise.Group{Logger: book.Logger()}
		g.Add("watch", supervise.Restart(minutes, tries(record.New(), runs...)))
		if err := record.Launch(t, &g).Wait(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range book.From(slog.LevelInfo) {
			got = append(got, fmt.Sprintf("%v %v %v %v %v", line.Level, line.Attrs["member"], line.Attrs["failures"], line.Attrs["err"], line.Attrs["next"]))
			if stack := line.Attrs["stack"]; strings.Contains(stack.String(), "panicsHere") != strings.Contains(line.String(), "panic: ") {
				t.Errorf("line %q, want a stack if it is a panic", line)
			}
		}
		want := []string{
			"WARN watch 1 boom 1m0s", "WARN watch 2 boom 2m0s", "WARN watch 4 panic: no disk 4m0s",
			"WARN watch 1 boom 1m0s", "WARN watch 2 boom 2m0s", "INFO watch <nil> <nil> <nil>",
		}
		wantSame(t, "log lines", got, want)
	})
}

// An unwrapper is a Runner whose Unwrap calls a function.
type unwrapper struct {
	reconcile.Runner
	unwrap func()
}

func (u unwrapper) Unwrap() reconcile.Runner { u.unwrap(); return u.Runner }

// A Runner whose Unwrap panics is none that runs a Reconciler, and an error whose Error
// method does not return has the text of that.
func TestGroupHandlesPanicsOfItsMembersMethods(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		j := record.New()
		g := groupOf(waiting(j), unwrapper{member(j, "feeder", time.Second/2, nil), end}, groupOf(unwrapper{after(time.Hour, nil), end}))
		g.Add("bad", after(time.Minute, record.BadMessage{End: end}))
		if err := record.Launch(t, g).Wait(); err == nil || !strings.HasPrefix(err.Error(), "bad: ") {
			t.Errorf("Run = %v, want the failure of the member bad", err)
		}
		j.WantAll(t, "0s feeder begins", "1m0.5s feeder ends", "1m0.5s run ends")
	})
}

// The methods of members and of their errors may call the Group: it has no lock then.
func TestGroupCallsNoUserCodeUnderItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := groupOf()
		calls := 0
		add := func() { calls++; g.Add("added", neverRuns(t)) }
		g.Add("feeder", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			g.Add("late", unwrapper{neverRuns(t), add})
			return record.BadMessage{End: add}
		}))
		g.Add("reconciler", waiting(record.New()))
		run := record.Launch(t, g)
		synctest.Wait()
		run.Cancel(errEnd)
		if err := run.Wait(); err == nil || calls != 2 {
			t.Errorf("Run = %v after %d calls, want the error of the feeder after 2", err, calls)
		}
	})
}

func TestGroupHandlesPanicOfLogHandler(t *testing.T) {
	for name, end := range record.Failures {
		runBubble(t, name, func(t *testing.T) {
			j := record.New()
			g := supervise.Group{Logger: slog.New(badHandler{slog.NewTextHandler(io.Discard, nil), end})}
			g.Add("first", after(time.Second, errBoom))
			g.Add("second", member(j, "second", time.Second, errors.New("disk full")))
			g.Add("slow", member(j, "slow", time.Hour, nil)) // which may be warned about
			if err := record.Launch(t, &g).Wait(); !errors.Is(err, errBoom) {
				t.Errorf("Run = %v, want %v", err, errBoom)
			}
			if len(j.Lines()) != 4 {
				t.Errorf("journal %q, want all members ended", j.Lines())
			}
		})
	}
}
