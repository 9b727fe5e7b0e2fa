// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

// A bubble that ends while a goroutine of it is left panics. The errors of this
// queue wrap those of a Queue. That it fails is told also if ctx is done then.
func TestRunReturnsAfterAllItsGoroutines(t *testing.T) {
	for name, end := range map[string]func(q brokenQueue, cancel func()){
		"ctx is done":     func(_ brokenQueue, cancel func()) { cancel() },
		"queue is closed": func(q brokenQueue, _ func()) { q.q.Close() },
		"queue fails":     func(q brokenQueue, _ func()) { close(q.broken) },
		"queue fails, ctx is done": func(q brokenQueue, cancel func()) {
			close(q.broken)
			time.AfterFunc(time.Second, cancel)
		},
	} {
		for _, grace := range []time.Duration{0, time.Minute} {
			runBubble(t, fmt.Sprint(name, ", Grace ", grace), func(t *testing.T) {
				q := brokenQueue{plainly(reconcile.NewQueue[string]()), make(chan struct{})}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				var runs atomic.Int32
				r := reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(context.Context, string) error {
						runs.Add(1)
						defer runs.Add(-1)
						time.Sleep(time.Hour)
						return nil
					},
					Workers: 3,
					Timeout: 10 * time.Second,
					Grace:   grace,
					Logger:  record.Unlogged(),
				}
				q.q.Enqueue("a")
				q.q.Enqueue("b")
				began := time.Now()
				time.AfterFunc(time.Second, func() { end(q, cancel) })
				err := r.Run(ctx)
				if n := runs.Load(); n != 0 {
					t.Errorf("Run returned %v after %v, when %d runs had not ended", err, time.Since(began), n)
				}
				if took := time.Since(began); took != time.Hour || q.q.Stats().InFlight != 0 {
					t.Errorf("Run returned after %v, with %+v, want 1h0m0s, and nothing in flight", took, q.q.Stats())
				}
				if !strings.HasPrefix(name, "queue fails") {
					if err != nil {
						t.Errorf("Run = %v, want nil", err)
					}
				} else if !errors.Is(err, errBoom) || !strings.HasPrefix(err.Error(), "reconcile: dequeue: ") {
					t.Errorf("Run = %v, want reconcile: dequeue: ... %v", err, errBoom)
				}
			})
		}
	}
}

// A queue that panics is one that fails: Run says so, and nothing else does.
func TestRunReturnsThePanicOfItsQueue(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("no disk") }, "Goexit": runtime.Goexit} {
		runBubble(t, name, func(t *testing.T) {
			book := record.NewLog()
			err := record.Launch(t, &reconcile.Reconciler[string]{
				Queue:     panickingQueue{plainly(reconcile.NewQueue[string]()), end},
				Reconcile: nothing,
				Workers:   3,
				Logger:    book.Logger(),
			}).Wait()
			var p *reconcile.PanicError
			if !errors.As(err, &p) || !strings.HasPrefix(err.Error(), "reconcile: dequeue: ") || !strings.Contains(string(p.Stack), "panickingQueue") {
				t.Errorf("Run = %v, want reconcile: dequeue: ... and a *PanicError whose stack leads to the queue", err)
			}
			if lines := book.From(slog.LevelDebug); len(lines) != 0 {
				t.Errorf("log lines %v, want none", lines)
			}
		})
	}
}

type panickingQueue struct {
	plainQueue[string]
	end func()
}

func (q panickingQueue) Dequeue(context.Context) (string, error) {
	q.end()
	return "", nil
}

func TestShutdownWithoutGraceEndsRunsAtOnceAndKeepsTheirItems(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		var cause error
		s := serve(t, reconcile.Reconciler[string]{
			Queue: d,
			Reconcile: func(ctx context.Context, item string) error {
				err := untilDone(ctx, item)
				cause = context.Cause(ctx)
				return err
			},
		}, "a", "b") // b is not taken, before or after
		pass(time.Minute)
		s.log.Clear()
		s.End()
		if cause != errEnd {
			t.Errorf("cause of the item's context is %v, want that of Run's context", cause)
		}
		s.results.only(t)
		if r := s.wantResult(t, "a", reconcile.OutcomeAborted, 0); r.Duration != time.Minute || r.Next != 0 || !errors.Is(r.Err, context.Canceled) {
			t.Errorf("result = %+v, want the error of a run of 1m0s", r)
		}
		s.wantItem(t, "a", reconcile.PhaseReady, 0, 0)
		s.wantItem(t, "b", reconcile.PhaseReady, 0, 0)
		s.wantSilence(t, slog.LevelDebug)
	})
}

func TestShutdownGraceLetsRunsGoOn(t *testing.T) {
	for _, c := range []struct {
		name    string
		ends    time.Duration // after ctx is done
		err     error
		outcome reconcile.Outcome
		phase   reconcile.Phase
	}{
		{"well", 4 * time.Second, nil, reconcile.OutcomeSucceeded, reconcile.PhaseIdle},
		{"at once", 1, nil, reconcile.OutcomeSucceeded, reconcile.PhaseIdle},
		{"planned", 4 * time.Second, reconcile.RequeueAfter(time.Hour), reconcile.OutcomeRequeued, reconcile.PhaseWaiting},
		{"in sync", 4 * time.Second, reconcile.RecheckWithin(time.Hour), reconcile.OutcomeSucceeded, reconcile.PhaseWaiting},
		{"failing", 4 * time.Second, errBoom, reconcile.OutcomeAborted, reconcile.PhaseReady},
		{"refused", 4 * time.Second, reconcile.Terminal(errBoom), reconcile.OutcomeAborted, reconcile.PhaseReady},
		{"too late", 5400 * time.Millisecond, context.Canceled, reconcile.OutcomeAborted, reconcile.PhaseReady},
		{"too late, but well", 5400 * time.Millisecond, nil, reconcile.OutcomeSucceeded, reconcile.PhaseIdle},
	} {
		runBubble(t, c.name, func(t *testing.T) {
			const until = 10 * time.Second // when ctx is done
			s := serve(t, reconcile.Reconciler[string]{
				Reconcile: func(ctx context.Context, item string) error {
					if item == "b" {
						t.Error("an item was taken after ctx was done")
					}
					time.Sleep(until + c.ends)
					var want error
					if c.ends > 5*time.Second {
						want = errEnd
					}
					if cause := context.Cause(ctx); cause != want {
						t.Errorf("%v after ctx was done, the cause of the item's context is %v, want %v", c.ends, cause, want)
					}
					return c.err
				},
				Grace: 5 * time.Second,
			}, "a", "b")
			pass(until)
			s.log.Clear()
			cancelled := time.Now()
			s.End()
			if took := time.Since(cancelled); took != c.ends {
				t.Errorf("Run went on for %v, want %v: until its run ends", took, c.ends)
			}
			s.wantResult(t, "a", c.outcome, 0)
			s.wantItem(t, "a", c.phase, time.Hour, 0)
			s.wantSilence(t, slog.LevelInfo)
		})
	}
}

func TestShutdownGraceEndsContextsExactlyThen(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Millisecond, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, reconcile.Reconciler[string]{Reconcile: untilDone, Grace: grace, Workers: 2}, "a", "b")
			pass(time.Minute)
			began := time.Now()
			s.End()
			if took := time.Since(began); took != grace || len(s.results.all()) != 2 {
				t.Errorf("Grace %v: contexts ended after %v, results %+v", grace, took, s.results.all())
			}
		})
	}
}

// A lateContext tells those derived from it a second later that it has ended.
type lateContext struct{ context.Context }

func (c lateContext) Value(any) any { return nil } // not to be known as what it wraps

func (c lateContext) AfterFunc(f func()) func() bool {
	return context.AfterFunc(c.Context, func() {
		time.Sleep(time.Second)
		f()
	})
}

// The context that workers wait under is derived from that of Run, and so ends
// later than that of the runs.
func TestAbortedItemIsNotTakenAgain(t *testing.T) {
	calls := 0
	slow := func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
		if calls++; calls > 1 {
			time.Sleep(time.Minute + time.Second/2) // until the runs have ended, and taking has not
		}
		return nil, nil
	}
	for name, admit := range map[string]admit{"no Admit": nil, "Admit": places(1), "slow Admit": slow} {
		runBubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			q := reconcile.NewQueue[string]()
			q.Enqueue("a")
			q.Enqueue("b") // runs too, or waits for Admit
			r := reconcile.Reconciler[string]{Queue: q, Reconcile: untilDone, Workers: 2, Logger: record.Unlogged(), Admit: admit}
			defer time.Sleep(time.Hour) // until all have been told
			r.OnResult = func(r reconcile.Result[string]) {
				if n := q.Stats().Taken; n != 2 || r.Outcome != reconcile.OutcomeAborted {
					t.Errorf("result %+v, of %d items taken, want 2", r, n)
					time.Sleep(time.Hour) // or for ever
				}
			}
			if err := r.Run(lateContext{ctx}); err != nil {
				t.Fatal(err)
			}
			if s := q.Stats(); s.Taken != 2 || s.Ready != 2 {
				t.Errorf("Stats = %+v, want 2 taken, and given back", s)
			}
		})
	}
}

// The failures of an item do not count anew because the service was restarted
// in the middle of a run. The next Run goes on from there.
func TestAbortedRunKeepsTheCountOfFailures(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		s := serve(t, reconcile.Reconciler[string]{
			Queue:     d,
			Reconcile: fails(2, func(ctx context.Context) error { return untilDone(ctx, "") }),
		}, "a")
		pass((1 + 2 + 1) * time.Minute)
		s.End()
		s.wantResult(t, "a", reconcile.OutcomeAborted, 2)
		s.wantItem(t, "a", reconcile.PhaseReady, 0, 2)
		if err := s.q.State("a").Err; err == nil || err.Error() != "failure 2" {
			t.Errorf("last error of the item is %v, want failure 2", err)
		}
		s = serve(t, reconcile.Reconciler[string]{Queue: d, Reconcile: func(context.Context, string) error { return errBoom }})
		s.wantResult(t, "a", reconcile.OutcomeRetrying, 3)
		s.End()
	})
}

// A watchingQueue embeds a Queue and has its own way to give items back.
type watchingQueue struct {
	*reconcile.Queue[string]
	journal *record.Journal
}

func (q watchingQueue) inside() *reconcile.Queue[string] { return q.Queue }

func (q watchingQueue) Dequeue(ctx context.Context) (string, error) {
	item, err := q.Queue.Dequeue(ctx)
	if err == nil {
		q.journal.Note("dequeue %s", item)
	}
	return item, err
}

func (q watchingQueue) Done(item string) {
	q.journal.Note("done %s", item)
	q.Queue.Done(item)
}

func (q watchingQueue) Requeue(item string, w reconcile.RequeueOptions) {
	q.journal.Note("requeue %s %+v", item, w)
	q.Queue.Requeue(item, w)
}

func TestCustomDequeuerGetsTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := watchingQueue{reconcile.NewQueue[string](), record.New()}
		s := serve(t, reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, item string) error {
				switch item {
				case "look":
					return reconcile.RecheckWithin(time.Hour)
				case "long":
					return untilDone(ctx, item)
				}
				return mixed(ctx, item)
			},
			HoldRetries: true,
			Workers:     2,
			Admit:       places(1), // for which the last item waits
		}, strings.Fields("good refuse plan look fail long wait")...)
		s.End()
		q.journal.WantAll(t,
			"0s dequeue good", "0s done good",
			"0s dequeue refuse", "0s requeue refuse {Delay:0s MinDelay:1s Err:boom Recheck:false Reason:<nil> Done:true Aborted:false}",
			"0s dequeue plan", "0s requeue plan {Delay:1h0m0s MinDelay:1h0m0s Err:<nil> Recheck:false Reason:<nil> Done:false Aborted:false}",
			"0s dequeue look", "0s requeue look {Delay:1h0m0s MinDelay:0s Err:<nil> Recheck:true Reason:<nil> Done:false Aborted:false}",
			"0s dequeue fail", "0s requeue fail {Delay:1m0s MinDelay:1m0s Err:boom Recheck:false Reason:<nil> Done:false Aborted:false}",
			"0s dequeue long", "0s requeue long {Delay:0s MinDelay:0s Err:<nil> Recheck:false Reason:<nil> Done:false Aborted:true}",
			"0s dequeue wait", "0s requeue wait {Delay:0s MinDelay:0s Err:<nil> Recheck:false Reason:<nil> Done:false Aborted:true}")
	})
}

// A badQueue is a ledger that ends badly in one of its methods, each time.
type badQueue struct {
	ledger
	method string
}

func (q *badQueue) fail(method string) {
	if q.method == method {
		q.ledger.end()
	}
}

func (q *badQueue) Done(item string) { q.ledger.Done(item); q.fail("Done") }

func (q *badQueue) Requeue(item string, w reconcile.RequeueOptions) {
	q.ledger.Requeue(item, w)
	q.fail("Requeue")
}

func (q *badQueue) State(item string) (state reconcile.State) {
	q.fail("State")
	return reconcile.State{}
}

func TestReconcilerGivesEachItemBackOnceAlthoughTheQueuePanics(t *testing.T) {
	ends := map[string]func() error{"an error returned": func() error { return errBoom }}
	for name := range record.Failures {
		ends[name] = record.FailureAs(name)
	}
	for name, end := range ends {
		for method, want := range map[string]string{
			"Dequeue": "take good, done good, take fail, requeue fail, no more",
			"Done":    "take good, done good",
			"Requeue": "take good, done good, take fail, requeue fail",
			"State":   "take good, requeue good",
		} {
			if method != "Dequeue" && name == "an error returned" {
				continue
			}
			for admitted, admit := range map[string]admit{"": nil, ", Admit": places(1)} {
				runBubble(t, method+"/"+name+admitted, func(t *testing.T) {
					q := &badQueue{ledger{record.New(), strings.Fields("good fail"), end}, method}
					s := serve(t, reconcile.Reconciler[string]{Queue: q, Reconcile: mixed, Admit: admit})
					err := s.Wait()
					if returned := name == "an error returned"; record.IsPanic(err) == returned || returned && !errors.Is(err, errBoom) {
						t.Errorf("Run = %v, want how Dequeue ended", err)
					}
					if got := strings.ReplaceAll(strings.Join(q.Lines(), ", "), "0s ", ""); got != want {
						t.Errorf("the queue was called for %q, want %q", got, want)
					}
				})
			}
		}
	}
}

// A lostLease is a brokenQueue whose leases are lost at once, and which forgets
// what comes back.
type lostLease struct{ brokenQueue }

func (q lostLease) Requeue(item string, _ reconcile.RequeueOptions) { q.q.Done(item) }

func (q lostLease) Lease(ctx context.Context, _ string) context.Context {
	ctx, lose := context.WithCancelCause(ctx)
	lose(reconcile.ErrLeaseLost)
	return ctx
}

// A worker whose last run was aborted is woken like any other when the queue
// fails for one of them.
func TestRunEndsWithItsQueueAfterALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := lostLease{brokenQueue{plainly(reconcile.NewQueue[string]()), make(chan struct{})}}
		s := serve(t, reconcile.Reconciler[string]{
			Queue: q, Workers: 2,
			Reconcile: func(ctx context.Context, item string) error {
				time.Sleep(time.Second) // so that the other one waits longer
				return ctx.Err()
			},
		}, "a")
		pass(time.Minute)
		q.broken <- struct{}{}
		if err := s.Wait(); !errors.Is(err, errBoom) || time.Since(s.began) != time.Minute {
			t.Errorf("Run = %v after %v, want %v at once", err, time.Since(s.began), errBoom)
		}
	})
}

func TestLostLeaseAbortsOnlyThatRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		outcome reconcile.Outcome
		runs    int
	}{
		{"ends with an error", context.Canceled, reconcile.OutcomeAborted, 2},
		{"ends with another error", errBoom, reconcile.OutcomeAborted, 2},
		{"ends well", nil, reconcile.OutcomeSucceeded, 1},
		{"ends with a plan", reconcile.RequeueAfter(time.Hour), reconcile.OutcomeRequeued, 1},
	} {
		for _, timeout := range []time.Duration{0, time.Hour} {
			runBubble(t, fmt.Sprint(c.name, ", Timeout ", timeout), func(t *testing.T) {
				q, runs := newLeasing(), 0
				s := serve(t, reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(ctx context.Context, item string) error {
						if got := ctx.Value(leaseKey{}); got != "lease of "+item {
							t.Errorf("run of %s has %v", item, got)
						}
						if runs++; runs > 1 {
							return ctx.Err()
						}
						<-ctx.Done()
						if cause := context.Cause(ctx); cause != reconcile.ErrLeaseLost {
							t.Errorf("cause = %v, want %v", cause, reconcile.ErrLeaseLost)
						}
						return c.err
					},
					Timeout: timeout,
					Grace:   time.Hour,
				}, "a")
				pass(time.Minute)
				q.loseLease("a")
				synctest.Wait()
				if first := s.results.all()[0]; first.Outcome != c.outcome || first.Failures != 0 {
					t.Errorf("result = %+v, want %s", first, c.outcome)
				}
				if runs != c.runs {
					t.Errorf("%d runs, want %d: a second one of an aborted item", runs, c.runs)
				}
				s.q.Enqueue("b") // the worker goes on
				synctest.Wait()
				s.wantResult(t, "b", reconcile.OutcomeSucceeded, 0)
				s.wantSilence(t, slog.LevelInfo)
				s.End()
			})
		}
	}
}

// A leaser makes the leases of a plainQueue of one function.
type leaser struct {
	plainQueue[string]
	lease func(ctx context.Context) context.Context
}

func (l leaser) Lease(ctx context.Context, item string) context.Context {
	if item == "bad" {
		return l.lease(ctx)
	}
	return ctx
}

// A poorContext ends badly in one of its methods, from one moment to another.
type poorContext struct {
	context.Context
	method   string
	from, to time.Time
	end      func()
}

func (c poorContext) fail(method string) {
	if now := time.Now(); c.method == method && !now.Before(c.from) && now.Before(c.to) {
		c.end()
	}
}

func (c poorContext) Done() <-chan struct{} { c.fail("Done"); return c.Context.Done() }

func (c poorContext) Err() error { c.fail("Err"); return c.Context.Err() }

func (c poorContext) Deadline() (time.Time, bool) { c.fail("Deadline"); return c.Context.Deadline() }

func (c poorContext) Value(key any) any { c.fail("Value"); return c.Context.Value(key) }

// A Lease that ends badly, or gives no context, is a failure of that item alone.
func TestPanicInLeaseFailsOnlyThatItem(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		for _, lease := range []func(context.Context) context.Context{
			func(context.Context) context.Context { end(); return nil },
			func(context.Context) context.Context { return nil },
		} {
			for _, admit := range []admit{nil, places(1)} {
				s := serve(t, reconcile.Reconciler[string]{
					Queue: leaser{plainly(reconcile.NewQueue[string]()), lease}, Admit: admit,
				}, "first", "bad", "good")
				pass(2 * time.Second)
				s.wantResult(t, "good", reconcile.OutcomeSucceeded, 0)
				bad := s.results.all()[1]
				if st := s.q.State("bad"); bad.Outcome != reconcile.OutcomeRetrying || bad.Next != time.Minute || st.Phase != reconcile.PhaseWaiting || st.Failures != 1 {
					t.Errorf("result %+v, the item is %+v, want a retry in 1m0s", bad, st)
				}
				s.log.OnlyLine(t, slog.LevelInfo).MustSay(t, slog.LevelError, map[string]string{"item": "bad"}, "run panicked", "Lease")
				s.End()
			}
		}
	})
}

// An overContext is of a lease that is over by the clock, and says so when asked.
type overContext struct{ context.Context }

func (overContext) Err() error { return reconcile.ErrLeaseLost }

// A Timeout does not hide what the context of a lease knows.
func TestRunUsesTheContextOfItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		runs := 0
		s := serve(t, reconcile.Reconciler[string]{
			Queue: leaser{plainly(q), func(ctx context.Context) context.Context { return overContext{ctx} }},
			Reconcile: func(ctx context.Context, _ string) error {
				if runs++; runs > 1 {
					return nil
				}
				return ctx.Err()
			},
			Timeout: time.Hour,
		}, "bad")
		s.End()
		if r := s.results.all()[0]; r.Outcome != reconcile.OutcomeAborted {
			t.Errorf("result %+v, want %s", r, reconcile.OutcomeAborted)
		}
	})
}

// The context of a lease is user code too, whenever its methods are called: as
// the run begins, when its end is looked for, and as the run ends. The run fails,
// or ends as it would have.
func TestPanicInLeaseContextFailsOnlyThatItem(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		for method := range strings.FieldsSeq("Done Err Deadline Value") {
			for _, timeout := range []time.Duration{0, time.Hour} {
				for _, err := range []error{nil, errBoom} {
					for _, from := range []time.Duration{0, time.Millisecond} {
						at := fmt.Sprintf("%s fails after %v, Timeout %v, Reconcile returns %v", method, from, timeout, err)
						began := time.Now()
						q := leaser{plainly(reconcile.NewQueue[string]()), func(ctx context.Context) context.Context {
							return poorContext{ctx, method, began.Add(from), began.Add(time.Hour), end}
						}}
						ran := false
						s := serve(t, reconcile.Reconciler[string]{
							Queue:     q,
							Timeout:   timeout,
							Reconcile: func(context.Context, string) error { ran = true; time.Sleep(30 * time.Second); return err },
						}, "bad")
						pass(30 * time.Second)
						st, failures := s.q.State("bad"), 1
						if ran && err == nil {
							failures = 0
						}
						if waits := st.Phase == reconcile.PhaseWaiting; st.Failures != failures || waits != (failures > 0) {
							t.Errorf("%s: the item is %+v, want %d failures", at, st, failures)
						}
						s.End()
					}
				}
			}
		}
	})
}

// Nor does the context that Run was called with harm more than a run.
func TestPanicInContextErrFailsOnlyThatItem(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		ctx := poorContext{t.Context(), "Err", time.Now().Add(time.Second), time.Now().Add(30 * time.Second), end}
		q := reconcile.NewQueue[string]()
		q.Enqueue("bad")
		log := record.NewLog()
		r := reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(ctx context.Context, item string) error { time.Sleep(time.Second); return errBoom },
			Timeout:   900 * time.Millisecond,
			Logger:    log.Logger(),
		}
		time.AfterFunc(time.Minute, q.Close)
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		for _, l := range log.From(slog.LevelWarn) {
			if strings.Contains(l.Message, "has not returned") {
				t.Errorf("log line %v about a run that has returned", l)
			}
		}
		if s := q.Stats(); s.InFlight != 0 || s.Taken < 5 {
			t.Errorf("Stats = %+v, want a run again and again, and none in flight", s)
		}
	})
}

// The context of a run ends after its Timeout, and at once when it returns.
func TestTimeoutEndsTheContextOfARunWithACause(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		if plain, ok := d.(plainQueue[string]); ok {
			d = leasingOf(plain) // a lease that is not lost
		}
		var cause error
		var quick context.Context
		s := serve(t, reconcile.Reconciler[string]{
			Queue: d,
			Reconcile: func(ctx context.Context, item string) error {
				if item == "quick" {
					quick = ctx
					return nil
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ctx.Err()
			},
			Timeout: 10 * time.Second,
		}, "quick", "a")
		if quick.Err() != context.Canceled {
			t.Error("the context of a run goes on after it")
		}
		pass(30 * time.Second)
		if cause != reconcile.ErrTimeout {
			t.Errorf("cause = %v, want %v", cause, reconcile.ErrTimeout)
		}
		if r := s.wantResult(t, "a", reconcile.OutcomeRetrying, 1); r.Duration != 10*time.Second || r.Err != context.DeadlineExceeded {
			t.Errorf("result = %+v, want a failure after 10s", r)
		}
		s.log.OnlyLine(t, slog.LevelInfo).MustSay(t, slog.LevelWarn, map[string]string{"item": "a"}, "deadline exceeded")
		s.End()
	})
}

func TestTimeoutZeroMeansNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, reconcile.Reconciler[string]{Reconcile: func(ctx context.Context, _ string) error {
			if _, ok := ctx.Deadline(); ok {
				t.Error("the item's context has a deadline")
			}
			time.Sleep(1000 * time.Hour)
			return ctx.Err()
		}}, "a")
		pass(1000 * time.Hour)
		s.wantResult(t, "a", reconcile.OutcomeSucceeded, 0)
		s.wantSilence(t, slog.LevelInfo) // a long run is not warned about
		s.End()
	})
}

// stuckFor is a Reconcile that ignores its context.
func stuckFor(d time.Duration, err error) func(context.Context, string) error {
	return func(_ context.Context, item string) error {
		if item != "quick" {
			time.Sleep(d)
		}
		return err
	}
}

// wantWarnings checks the warnings about a run that began at one instant, whose
// context ended at another, and that returned long after: the first comes 0.5 to 1
// second after the end of the context, the next ones each time the age of the run
// has doubled, and half a second later at most.
func (s *service) wantWarnings(t *testing.T, item string, began, over, ended time.Duration, cause error) {
	t.Helper()
	const tick = 500 * time.Millisecond
	soonest, warned := over+tick, 0
	for _, l := range s.log.From(slog.LevelWarn) {
		if l.Attrs["item"].String() != item || !strings.Contains(l.Message, "has not returned") {
			continue
		}
		at := l.At.Sub(s.began)
		l.MustSay(t, slog.LevelWarn, map[string]string{"reconciler": "buckets", "age": (at - began).String(), "cause": cause.Error()})
		if at < soonest || at > soonest+tick || at > ended {
			t.Errorf("warning %d about %s after %v, want it within %v of %v, and by %v", warned+1, item, at, tick, soonest, ended)
		}
		soonest = began + 2*(at-began)
		warned++
	}
	if ended > soonest+tick {
		t.Errorf("%d warnings about %s, want another at %v: the run goes on until %v", warned, item, soonest, ended)
	}
}

func TestRunThatIgnoresItsTimeoutIsLogged(t *testing.T) {
	for _, c := range []struct{ timeout, lasts time.Duration }{
		{10 * time.Second, time.Hour},
		{time.Hour, 5 * time.Hour},
		{time.Second, time.Minute},
		{1234 * time.Millisecond, time.Minute},
		{time.Millisecond, time.Minute},
		{time.Millisecond, 400 * time.Millisecond}, // returns in time
	} {
		t.Run(c.timeout.String(), func(t *testing.T) {
			eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
				s := serve(t, reconcile.Reconciler[string]{
					Queue: d, Reconcile: stuckFor(c.lasts, nil), Name: "buckets", Workers: 3, Timeout: c.timeout,
				}, "stuck", "quick")
				pass(7100 * time.Millisecond)
				s.q.Enqueue("second")
				pass(10 * c.lasts)
				s.wantWarnings(t, "stuck", 0, c.timeout, c.lasts, reconcile.ErrTimeout)
				s.wantWarnings(t, "second", 7100*time.Millisecond, 7100*time.Millisecond+c.timeout, 7100*time.Millisecond+c.lasts, reconcile.ErrTimeout)
				for _, l := range s.log.From(slog.LevelWarn) {
					if l.Attrs["item"].String() == "quick" {
						t.Errorf("warning about a run that ended in time: %v", l)
					}
				}
				s.End()
			})
		})
	}
}

func TestRunThatIgnoresShutdownIsWaitedForAndLogged(t *testing.T) {
	for _, grace := range []time.Duration{0, 3 * time.Second} {
		for _, timeout := range []time.Duration{0, 2 * time.Hour} {
			for _, err := range []error{nil, errBoom} {
				synctest.Test(t, func(t *testing.T) {
					s := serve(t, reconcile.Reconciler[string]{
						Reconcile: stuckFor(time.Hour, err), Name: "buckets", Grace: grace, Timeout: timeout,
					}, "stuck")
					pass(1300 * time.Millisecond)
					s.End()
					if ended := time.Since(s.began); ended != time.Hour {
						t.Errorf("Run returned %v after the run began, want it to wait", ended)
					}
					s.wantWarnings(t, "stuck", 0, 1300*time.Millisecond+grace, time.Hour, errEnd)
					want := reconcile.OutcomeSucceeded
					if err != nil {
						want = reconcile.OutcomeAborted
					}
					s.wantResult(t, "stuck", want, 0)
				})
			}
		}
	}
}

// The run begins when its context has ended already: Run ended while its start
// was logged, or the lease was lost at once.
func TestRunThatBeganAfterShutdownIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := lostLease{brokenQueue{plainly(reconcile.NewQueue[string]()), make(chan struct{})}}
		s := serve(t, reconcile.Reconciler[string]{Queue: lost, Reconcile: stuckFor(time.Hour, nil), Name: "buckets"}, "stuck")
		pass(time.Hour)
		s.wantWarnings(t, "stuck", 0, 0, time.Hour, reconcile.ErrLeaseLost)
		s.End()
	})
	synctest.Test(t, func(t *testing.T) {
		log := record.NewLog()
		slow := funcHandler{log, func(r slog.Record) {
			if r.Message == "run starts" {
				time.Sleep(time.Minute)
			}
		}}
		s := serve(t, reconcile.Reconciler[string]{Reconcile: stuckFor(time.Hour, nil), Logger: slog.New(slow)}, "stuck")
		s.End()
		if n := len(log.From(slog.LevelWarn)); n < 10 || n > 20 {
			t.Errorf("%d warnings of a run that went on for an hour after its context ended, want about a dozen", n)
		}
	})
}

// The ticker runs while there is a run that could get stuck, and no longer.
func TestTickerRunsOnlyDuringRuns(t *testing.T) {
	for name, c := range map[string]struct {
		lease          bool
		timeout, grace time.Duration
		want           string // idle, in a run, after it, in the next one, as Run ends
	}{
		"nothing to watch": {want: "no no no no yes"},
		"Timeout":          {timeout: time.Hour, want: "no yes no yes yes"},
		"lease":            {lease: true, want: "no yes no yes yes"},
		"Grace":            {grace: time.Minute, want: "no no no no no"},
	} {
		runBubble(t, name, func(t *testing.T) {
			q := newLeasing()
			r := reconcile.Reconciler[string]{
				Queue: q.q, Reconcile: stuckFor(10*time.Second, nil), Timeout: c.timeout, Grace: c.grace, Logger: record.Unlogged(),
			}
			if c.lease {
				r.Queue = q
			}
			run, ticking := reconcile.RunOf(&r)
			loop := record.Launch(t, reconcile.RunFunc(run))
			var got []string
			look := func(d time.Duration) {
				pass(d)
				got = append(got, map[bool]string{false: "no", true: "yes"}[ticking()])
			}
			look(time.Minute)
			q.q.Enqueue("a")
			look(5 * time.Second)
			look(time.Minute)
			q.q.Enqueue("b")
			look(5 * time.Second)
			loop.Cancel(errEnd)
			look(time.Second)
			loop.End()
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("the ticker runs: %s, want %s", got, c.want)
			}
		})
	}
}

func TestPanicInReconcileFailsOnlyThatItem(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		for _, other := range []bool{false, true} {
			var d reconcile.Dequeuer[string]
			if other {
				d = plainly(reconcile.NewQueue[string]())
			}
			j := record.New()
			s := serve(t, reconcile.Reconciler[string]{
				Queue: d,
				Reconcile: func(_ context.Context, item string) error {
					time.Sleep(time.Second)
					if item == "bad" {
						end()
					}
					return nil
				},
				Name: "buckets",
				Retry: func(err error, failures int) (time.Duration, bool) {
					j.Note("%T, %d", err, failures)
					return minutes(err, failures)
				},
			}, "bad", "good")
			pass(time.Second)
			r := s.wantResult(t, "bad", reconcile.OutcomeRetrying, 1)
			if r.Next != time.Minute || r.Duration != time.Second {
				t.Errorf("result %+v, want a retry in 1m0s of what took 1s", r)
			}
			p, ok := r.Err.(*reconcile.PanicError)
			if !ok || !strings.Contains(string(p.Stack), "panicsHere") {
				t.Fatalf("result has error %#v, want a *PanicError whose stack leads to the panic", r.Err)
			}
			var err error
			wantErr, _ := map[string]error{"error": errBoom}[name]
			switch v := p.Value.(type) {
			case error:
				err = v
			case string:
				ok = v == "no disk" && name != "Goexit"
			}
			if _, isNil := err.(*runtime.PanicNilError); !ok || isNil != (name == "nil") || wantErr != nil && !errors.Is(r.Err, wantErr) ||
				name == "Goexit" && !strings.Contains(r.Err.Error(), "runtime.Goexit called") {
				t.Errorf("PanicError of %s has value %#v", name, p.Value)
			}
			s.wantItem(t, "bad", reconcile.PhaseWaiting, time.Minute, 1)
			if got := s.q.State("bad").Err; got != r.Err {
				t.Errorf("last error in the queue is %v, want %v", got, r.Err)
			}
			s.log.OnlyLine(t, slog.LevelInfo).MustSay(t, slog.LevelError,
				map[string]string{"reconciler": "buckets", "item": "bad", "outcome": "retrying", "failures": "1"}, "run panicked", "panicsHere")

			pass(time.Second) // the only worker goes on, and the item comes back
			s.wantResult(t, "good", reconcile.OutcomeSucceeded, 0)
			pass(time.Minute)
			s.wantResult(t, "bad", reconcile.OutcomeRetrying, 2)
			j.Want(t, "1s *reconcile.PanicError, 1", "1m2s *reconcile.PanicError, 2")
			s.End()
		}
	})
}

// A panic is a failure, whatever its value, and it is loud when it is given up.
func TestPanicValueSchedulesNoRun(t *testing.T) {
	for _, value := range []error{reconcile.RequeueAfter(time.Hour), reconcile.RecheckWithin(time.Hour), reconcile.Terminal(errBoom)} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, reconcile.Reconciler[string]{
				Reconcile: func(context.Context, string) error { panic(value) },
				Retry:     reconcile.RetryPolicy(minutes).Limit(1),
			}, "a")
			s.wantResult(t, "a", reconcile.OutcomeRetrying, 1)
			s.log.Clear()
			pass(time.Minute)
			s.wantResult(t, "a", reconcile.OutcomeGaveUp, 2)
			s.log.OnlyLine(t, slog.LevelInfo).MustSay(t, slog.LevelError, map[string]string{"outcome": "gave_up"}, "run panicked", value.Error())
			s.End()
		})
	}
}

// A hookError calls functions when it is looked into.
type hookError struct{ as, is func() }

func (e *hookError) Error() string { return "hooked" }

func (e *hookError) As(any) bool { e.as(); return false }

func (e *hookError) Is(error) bool { e.is(); return false }

// The hooks of a failed run, in their order; what fails in one is logged, ends those
// that were still to come in that run, except for those that decide, and the item is
// given back as was decided by then.
func TestPanicInAHookSkipsTheLaterHooks(t *testing.T) {
	const all = "start, run, As, Is, Retry, done, outcome, result"
	for _, c := range []struct{ bad, want, logged string }{
		{"none", all, ""},
		{"start", "start, run, As, Is, Retry, done", "the Logger panicked"},
		{"As", "start, run, As, done", "Retry, or a method of the error, panicked; a back-off of the kernel is used instead"},
		{"Is", "start, run, As, Is, done", "Retry, or a method of the error, panicked; a back-off of the kernel is used instead"},
		{"Retry", "start, run, As, Is, Retry, done", "Retry, or a method of the error, panicked; a back-off of the kernel is used instead"},
		{"done", "start, run, As, Is, Retry, done", "done of Admit panicked"},
		{"outcome", "start, run, As, Is, Retry, done, outcome", "the Logger panicked"},
		{"result", all, "OnResult panicked"},
	} {
		t.Run(c.bad, func(t *testing.T) {
			record.EachFailure(t, func(t *testing.T, name string, end func()) {
				var hooks []string
				first := true
				hook := func(name string) {
					hooks = append(hooks, name)
					time.Sleep(time.Second)
					if name == c.bad && first {
						end()
					}
				}
				log := record.NewLog()
				s := serve(t, reconcile.Reconciler[string]{
					Reconcile: func(context.Context, string) error {
						hook("run")
						return &hookError{func() { hook("As") }, func() { hook("Is") }}
					},
					Retry:    func(error, int) (time.Duration, bool) { hook("Retry"); return time.Hour, true },
					OnResult: func(reconcile.Result[string]) { hook("result") },
					Admit: func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
						return func(reconcile.Outcome, error, time.Duration) { hook("done") }, nil
					},
					Logger: slog.New(funcHandler{log, func(r slog.Record) {
						if name, ok := map[string]string{"run starts": "start", "run failed, retrying": "outcome"}[r.Message]; ok {
							hook(name)
						}
					}}),
				}, "a")
				pass(time.Duration(strings.Count(c.want, ",")+1) * time.Second)
				if got := strings.Join(hooks, ", "); got != c.want {
					t.Errorf("hooks: %s, want %s", got, c.want)
				}
				least, most := time.Hour, time.Hour
				if strings.Contains(c.logged, "of the kernel") {
					least, most = time.Second/2, time.Second
				}
				st := s.q.State("a")
				if in := time.Until(st.Due); st.Phase != reconcile.PhaseWaiting || st.Failures != 1 || in < least || in > most {
					t.Errorf("the item is %+v, due in %v, want that in %v to %v", st, in, least, most)
				}
				var logged strings.Builder
				for _, l := range log.From(slog.LevelError) {
					l.MustSay(t, slog.LevelError, map[string]string{"item": "a"}, "panicsHere")
					logged.WriteString(l.Message)
				}
				if logged.String() != c.logged {
					t.Errorf("logged: %q, want %q", logged.String(), c.logged)
				}
				hooks, first = nil, false
				s.q.EnqueueNow("a")
				pass(8 * time.Second)
				if got := strings.Join(hooks, ", "); got != all {
					t.Errorf("hooks of the next run: %s, want %s", got, all)
				}
				s.End()
			})
		})
	}
}

// Not even the line that says what failed can be logged, nor a warning.
func TestPanicInLoggerLosesNeitherItemNorWorker(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		for where, h := range map[string]badHandler{
			"Enabled":   {end: end, enabled: true},
			"Handle":    {end: end, handle: true},
			"WithAttrs": {end: end, with: true},
		} {
			s := serve(t, reconcile.Reconciler[string]{
				Reconcile: func(ctx context.Context, item string) error {
					if item == "stuck" {
						time.Sleep(time.Hour)
					}
					return mixed(ctx, item)
				},
				Timeout: time.Minute,
				Logger:  slog.New(h),
			}, strings.Fields("good plan fail refuse panic")...)
			s.wantItem(t, "good", reconcile.PhaseIdle, 0, 0)
			s.wantItem(t, "plan", reconcile.PhaseWaiting, time.Hour, 0)
			s.wantItem(t, "fail", reconcile.PhaseWaiting, time.Minute, 1)
			s.wantItem(t, "refuse", reconcile.PhaseIdle, 0, 0)
			s.wantItem(t, "panic", reconcile.PhaseWaiting, time.Minute, 1)
			s.q.Remove("plan")
			s.q.Enqueue("stuck")
			time.Sleep(time.Second)
			s.End()
			if took := time.Since(s.began); took != time.Hour || s.q.Has("stuck") {
				t.Errorf("%s: Run returned after %v, stuck is %+v, want it done after an hour", where, took, s.q.State("stuck"))
			}
		}
	})
}

// Reconcile panics, and so does the policy that is asked about that: once. That
// the worker's last run was aborted does not matter.
func TestPanicInRetryPolicyAfterAPanicKeepsTheItem(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		q, asked, runs := newLeasing(), 0, 0
		s := serve(t, reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				if item == "bad" {
					end()
				}
				if runs++; runs == 1 {
					q.loseLease(item)
					return errBoom
				}
				return nil
			},
			Retry: func(error, int) (time.Duration, bool) { asked++; end(); return 0, false },
		}, "lost", "bad")
		if st := s.q.State("bad"); asked != 1 || st.Phase != reconcile.PhaseWaiting || st.Failures != 1 || !within(time.Until(st.Due), 0, time.Second) {
			t.Errorf("the policy was asked %d times, and the item is %+v, want a retry by DefaultRetry, and once", asked, st)
		}
		s.End()
	})
}

// In the log, and where the tree of the error is looked through.
func TestPanicInsideAnErrorLosesNeitherItemNorWorker(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		var typedNil *fs.PathError
		for _, err := range []error{typedNil, record.BadMessage{End: end}, record.BadTree{End: end}} {
			s := serve(t, reconcile.Reconciler[string]{
				Reconcile: func(ctx context.Context, item string) error {
					switch item {
					case "bad":
						return err
					case "aborted":
						<-ctx.Done()
						return err
					}
					return nil
				},
				Logger: record.Unlogged(),
			}, "bad", "good")
			s.wantResult(t, "good", reconcile.OutcomeSucceeded, 0)
			if st := s.q.State("bad"); st.Phase != reconcile.PhaseWaiting || st.Failures != 1 {
				t.Errorf("%T: the item is %+v, want it to wait for a retry", err, st)
			}
			s.q.Enqueue("aborted")
			pass(time.Millisecond)
			s.End()
			s.wantItem(t, "aborted", reconcile.PhaseReady, 0, 0)
		}
	})
}

// Shutdown is silent about runs that end with an error. A panic is still a fault.
func TestPanicDuringShutdownIsLoggedAndKeepsTheItem(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		s := serve(t, reconcile.Reconciler[string]{
			Reconcile: func(ctx context.Context, _ string) error { <-ctx.Done(); end(); return nil },
			Workers:   3,
		}, "a", "b")
		pass(time.Second)
		s.End()
		s.wantItem(t, "a", reconcile.PhaseWaiting, time.Minute, 1)
		s.wantItem(t, "b", reconcile.PhaseWaiting, time.Minute, 1)
		lines := s.log.From(slog.LevelError)
		if len(lines) != 2 {
			t.Errorf("log lines %v, want one for each panic", lines)
		}
		for _, l := range lines {
			l.MustSay(t, slog.LevelError, nil, "run panicked", "panicsHere")
		}
	})
}

// admitAfter returns an Admit that takes that long, whatever its context says, and a
// journal of its calls and of those of done.
func admitAfter(d time.Duration) (*record.Journal, admit) {
	j := record.New()
	return j, func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
		j.Note("admit")
		time.Sleep(d)
		return func(o reconcile.Outcome, err error, took time.Duration) { j.Note("left %s, %v, %v", o, err, took) }, nil
	}
}

func TestAdmitIsCalledBeforeEachRunAndDoneAfterIt(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		j, admit := admitAfter(time.Second)
		s := serve(t, reconcile.Reconciler[string]{
			Queue: d, Admit: admit, Workers: 4,
			Reconcile: func(ctx context.Context, item string) error {
				time.Sleep(10 * time.Second)
				j.Note("run %s", item) // not when it begins: the next Admit begins at that instant too
				return mixed(ctx, item)
			},
			OnResult: func(r reconcile.Result[string]) { j.Note("result %s after %v and %v", r.Outcome, r.Waited, r.Duration) },
			Logger:   slog.New(slog.DiscardHandler), // nothing else looks at the clock
		}, "good", "fail")
		pass(time.Minute)
		waited := 2 * time.Second // until it is taken, and then for Admit
		if d != reconcile.Dequeuer[string](s.q) {
			waited = time.Second // what is ready in it is not known
		}
		j.Want(t,
			"0s admit", "1s admit", // one worker at a time: the others wait for it
			"11s run good", "11s left succeeded, <nil>, 10s", "11s result succeeded after 1s and 10s",
			"12s run fail", "12s left retrying, boom, 10s", fmt.Sprintf("12s result retrying after %v and 10s", waited))
		s.End()
	})
}

// The worker that waits for Admit has the one item in hand; the others wait in the
// queue, where an event finds them.
func TestAdmitDelaysOneItemPerRun(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		_, admit := admitAfter(time.Hour)
		s := serve(t, reconcile.Reconciler[string]{Queue: q, Admit: admit, Workers: 8}, "a", "b", "c")
		pass(time.Minute)
		wantStats(t, q, reconcile.Stats{Ready: 2, InFlight: 1, Enqueued: 3, Taken: 1})
		q.Remove("a") // does not stop the run of the item in hand
		q.Enqueue("a")
		pass(time.Hour)
		s.wantResult(t, "a", reconcile.OutcomeSucceeded, 0)
		q.Remove("b") // in hand
		q.Remove("c")
		pass(2 * time.Hour)
		if got := len(s.results.all()); got != 3 { // a for its event
			t.Errorf("%d runs, want 3: %v", got, s.results.all())
		}
		s.End()
	})
}

// A Run with an Admit ends when its queue is closed, however many workers wait.
func TestRunWithAdmitEndsWithItsQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		_, admit := admitAfter(0)
		s := serve(t, reconcile.Reconciler[string]{Queue: q, Admit: admit, Workers: 3}, "a")
		pass(time.Minute)
		q.Close()
		if err := s.Wait(); err != nil || time.Since(s.began) != time.Minute {
			t.Errorf("Run = %v after %v, want nil at once", err, time.Since(s.began))
		}
	})
}

// Once its context has ended, what Admit returns does not matter: the item is given
// back as if it had not run, and done is called.
func TestAdmitThatReturnsAfterShutdownStartsNoRun(t *testing.T) {
	for name, ends := range map[string]struct {
		admit func(ctx context.Context, j *record.Journal) (func(reconcile.Outcome, error, time.Duration), error)
		want  []string
	}{
		"obeys its context": {func(ctx context.Context, _ *record.Journal) (func(reconcile.Outcome, error, time.Duration), error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, nil},
		"admits all the same": {func(ctx context.Context, j *record.Journal) (func(reconcile.Outcome, error, time.Duration), error) {
			<-ctx.Done()
			return func(o reconcile.Outcome, err error, took time.Duration) { j.Note("left %s, %v, %v", o, err, took) }, nil
		}, []string{"1m0s left aborted, the test ends, 0s"}},
		"fails as well": {func(ctx context.Context, j *record.Journal) (func(reconcile.Outcome, error, time.Duration), error) {
			<-ctx.Done()
			return func(o reconcile.Outcome, err error, took time.Duration) { j.Note("left %s", o) }, errBoom
		}, []string{"1m0s left aborted"}},
		"has a done that panics": {func(ctx context.Context, j *record.Journal) (func(reconcile.Outcome, error, time.Duration), error) {
			<-ctx.Done()
			return func(reconcile.Outcome, error, time.Duration) { j.Note("left"); panic("no disk") }, nil
		}, []string{"1m0s left"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
				j := record.New()
				s := serve(t, reconcile.Reconciler[string]{
					Queue: d, Workers: 2,
					Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
						return ends.admit(ctx, j)
					},
				}, "a", "b")
				pass(time.Minute)
				s.End()
				j.Want(t, ends.want...)
				if len(s.results.all()) != 0 {
					t.Errorf("results %v, want none", s.results.all())
				}
				s.wantItem(t, "a", reconcile.PhaseReady, 0, 0)
				s.wantItem(t, "b", reconcile.PhaseReady, 0, 0)
				if lines := s.log.From(slog.LevelDebug); (len(lines) != 0) != strings.Contains(name, "panics") {
					t.Errorf("log: %v", lines)
				}
			})
		})
	}
}

// An item whose lease is lost while it waits is given back, and the next one waits.
func TestAdmitContextEndsWhenLeaseIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		j := record.New()
		leased := make(chan context.Context, 9)
		s := serve(t, reconcile.Reconciler[string]{
			Queue: leaser{plainly(q), func(ctx context.Context) context.Context {
				if leased <- ctx; len(leased) > 1 {
					return ctx
				}
				ctx, lose := context.WithCancelCause(ctx)
				time.AfterFunc(time.Minute, func() { lose(reconcile.ErrLeaseLost) })
				return ctx
			}},
			Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
				select {
				case <-ctx.Done():
					return func(o reconcile.Outcome, err error, _ time.Duration) { j.Note("left %s, %v", o, err) }, context.Cause(ctx)
				case <-time.After(2 * time.Minute):
					j.Note("admitted")
					return nil, nil
				}
			},
		}, "bad", "other")
		pass(4 * time.Minute)
		j.Want(t, "1m0s left aborted, reconcile: lease lost", "3m0s admitted")
		s.wantResult(t, "other", reconcile.OutcomeSucceeded, 0)
		if n := len(leased); n != 2 { // of bad, which waits again
			t.Errorf("%d leases, want 2", n)
		}
		pass(2 * time.Minute)
		s.wantResult(t, "bad", reconcile.OutcomeSucceeded, 0)
		if n := len(leased); n != 3 {
			t.Errorf("%d leases, want 3: of the wait that ended well and of the run", n)
		}
		for range 2 {
			if ctx := <-leased; ctx.Err() == nil {
				t.Error("what was leased for a wait does not end with it")
			}
		}
		s.End()
	})
}

// An Admit that cannot go on ends Run, and keeps the item.
func TestAdmitThatFailsEndsRun(t *testing.T) {
	ends := map[string]func() error{"an error returned": func() error { return errBoom }}
	for name := range record.Failures {
		ends[name] = record.FailureAs(name)
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
				admitted := 0
				s := serve(t, reconcile.Reconciler[string]{
					Queue: d, Workers: 3,
					Reconcile: func(context.Context, string) error { time.Sleep(time.Minute); return nil },
					Admit: func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
						if admitted++; admitted == 1 {
							return nil, nil
						}
						return nil, end()
					},
				}, "a", "b", "c")
				err := s.Wait()
				if returned := name == "an error returned"; record.IsPanic(err) == returned || returned && !errors.Is(err, errBoom) || !strings.HasPrefix(err.Error(), "reconcile: admit: ") {
					t.Errorf("Run = %v, want how Admit ended", err)
				}
				if took := time.Since(s.began); took != time.Minute || admitted != 2 { // the run in flight is waited for
					t.Errorf("Run returned after %v, and %d calls of Admit, want 1m0s and 2", took, admitted)
				}
				s.wantResult(t, "a", reconcile.OutcomeSucceeded, 0)
				s.wantItem(t, "b", reconcile.PhaseReady, 0, 0)
				s.wantItem(t, "c", reconcile.PhaseReady, 0, 0)
				s.wantSilence(t, slog.LevelInfo) // Run says it
			})
		})
	}
}

// A done that Admit returns beside an error is called all the same, as when the second
// of two limits fails and the first has let the run in.
func TestDoneIsCalledAlthoughAdmitFailed(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		var left []string
		s := serve(t, reconcile.Reconciler[string]{
			Queue: d,
			Admit: func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
				return func(o reconcile.Outcome, err error, took time.Duration) {
					left = append(left, fmt.Sprint(o, " ", err, " ", took))
				}, errBoom
			},
		}, "a")
		if err := s.Wait(); !errors.Is(err, errBoom) {
			t.Errorf("Run = %v, want the error of Admit", err)
		}
		if diff := cmp.Diff([]string{"aborted boom 0s"}, left); diff != "" {
			t.Errorf("calls of done (-want +got):\n%s", diff)
		}
		s.wantItem(t, "a", reconcile.PhaseReady, 0, 0)
	})
}

// An Admit that outlasts its context is warned about, as a run is, and waited for.
func TestAdmitThatIgnoresItsContextIsLogged(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Hour} {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			_, admit := admitAfter(10 * time.Minute)
			s := serve(t, reconcile.Reconciler[string]{Queue: q, Admit: admit, Grace: grace}, "a")
			pass(time.Minute)
			s.End()
			if took := time.Since(s.began); took != 10*time.Minute {
				t.Errorf("Run returned after %v, want 10m0s", took)
			}
			var ages []string
			for _, l := range s.log.From(slog.LevelDebug) {
				l.MustSay(t, slog.LevelWarn, map[string]string{"item": "a", "cause": errEnd.Error()}, "Admit has not returned")
				ages = append(ages, l.Attrs["age"].String())
			}
			if want := []string{"1m0.5s", "2m1s", "4m2s", "8m4s"}; !slices.Equal(ages, want) {
				t.Errorf("warnings at the ages %v, want %v", ages, want)
			}
		})
	}
}

// Nothing is warned about once Admit has returned, also if its worker has ended.
func TestAdmitThatHasReturnedIsNotLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		s := serve(t, reconcile.Reconciler[string]{
			Queue: q, Workers: 2, Grace: time.Hour, Admit: places(1),
			Reconcile: func(context.Context, string) error { time.Sleep(10 * time.Minute); return nil },
		}, "a", "b") // b waits for Admit until the end
		pass(time.Minute)
		s.End()
		if lines := s.log.From(slog.LevelWarn); len(lines) > 0 {
			t.Errorf("lines %v, want none", lines)
		}
	})
}

// A second call of Admit is warned about for its own age, not for that of the first.
func TestWarningsAboutAdmitNameTheCurrentCall(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		calls := 0
		s := serve(t, reconcile.Reconciler[string]{
			Queue: leaser{plainly(q), func(ctx context.Context) context.Context {
				ctx, lose := context.WithCancelCause(ctx)
				time.AfterFunc(900*time.Millisecond, func() { lose(reconcile.ErrLeaseLost) })
				return ctx
			}},
			Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
				if calls++; calls > 2 {
					<-ctx.Done()
				} else {
					time.Sleep(2 * time.Second)
				}
				return nil, nil
			},
		}, "bad")
		pass(4200 * time.Millisecond)
		s.End()
		var ages []string
		for _, l := range s.log.From(slog.LevelWarn) {
			ages = append(ages, l.Attrs["age"].String())
		}
		if want := []string{"1.5s", "1.5s"}; !slices.Equal(ages, want) {
			t.Errorf("warnings at the ages %v, want %v", ages, want)
		}
	})
}

// A Lease or its context that ends badly while its item waits for Admit is a failure
// of that item, or none, and loses nothing. No run starts without Admit.
func TestPanicInLeaseContextDuringAdmit(t *testing.T) {
	record.EachFailure(t, func(t *testing.T, name string, end func()) {
		for method := range strings.FieldsSeq("Lease Done Err Deadline Value") {
			began, left, admitted := time.Now(), 0, 0
			leases, runs, aborted := 0, 0, 0
			s := serve(t, reconcile.Reconciler[string]{
				Queue: leaser{plainly(reconcile.NewQueue[string]()), func(ctx context.Context) context.Context {
					if leases++; leases == 1 {
						ctx, lose := context.WithCancelCause(ctx)
						time.AfterFunc(time.Minute, func() { lose(reconcile.ErrLeaseLost) })
						if method == "Lease" {
							end()
						}
						return poorContext{ctx, method, began, began.Add(time.Hour), end}
					}
					return ctx
				}},
				Reconcile: func(context.Context, string) error { runs++; time.Sleep(time.Second); return nil },
				Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
					admitted++
					time.Sleep(2 * time.Minute)
					return func(o reconcile.Outcome, err error, _ time.Duration) {
						left++
						if o == reconcile.OutcomeAborted {
							aborted++
						}
						if o == reconcile.OutcomeAborted && method == "Deadline" && err != reconcile.ErrLeaseLost {
							t.Errorf("done of an aborted wait gets the error %v, want %v", err, reconcile.ErrLeaseLost)
						}
					}, nil
				},
			}, "first", "bad", "good")
			pass(time.Hour)
			if runs != admitted-aborted {
				t.Errorf("%s: %d runs, and %d were admitted", method, runs, admitted-aborted)
			}
			for _, r := range s.results.all() {
				if r.Outcome == reconcile.OutcomeRetrying && (r.Item != "bad" || r.Waited != 0 || r.Duration != 0) {
					t.Errorf("%s: result %+v, want one of bad, which did not wait and took no time", method, r)
				}
			}
			s.wantItem(t, "bad", reconcile.PhaseIdle, 0, 0)
			s.wantItem(t, "good", reconcile.PhaseIdle, 0, 0)
			if admitted == 0 || left != admitted {
				t.Errorf("%s: admitted %d times, and left %d times", method, admitted, left)
			}
			s.End()
		}
	})
}

// A run is one that has not returned until it is decided what becomes of its item:
// an error that hangs when it is looked into is found by the log.
func TestRunWhoseErrorHangsIsLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		s := serve(t, reconcile.Reconciler[string]{
			Queue: q, Timeout: time.Minute,
			Reconcile: func(context.Context, string) error {
				return &hookError{func() { time.Sleep(5 * time.Minute) }, func() {}}
			},
		}, "a")
		pass(4 * time.Minute)
		for _, l := range s.log.From(slog.LevelWarn) {
			l.MustSay(t, slog.LevelWarn, map[string]string{"item": "a", "cause": reconcile.ErrTimeout.Error()}, "run has not returned")
		}
		if n := len(s.log.From(slog.LevelWarn)); n != 2 {
			t.Errorf("%d warnings, want 2", n)
		}
		s.End()
	})
}

// A badRequeue is a queue whose Requeue panics, once.
type badRequeue struct {
	plainQueue[string]
	calls *int
}

func (q badRequeue) Requeue(string, reconcile.RequeueOptions) {
	*q.calls++
	_ = panicsHere(func() { panic("no disk") })
}

// A queue that panics when the item in hand is given back ends Run with that panic,
// however Admit ended; the item is given back once.
func TestPanicInRequeueAfterAdmitEndsRun(t *testing.T) {
	for name, c := range map[string]struct {
		admit func(ctx context.Context) error
		want  []string // in what Run returns
	}{
		"too late": {func(ctx context.Context) error { <-ctx.Done(); return nil }, []string{"reconcile: dequeue: panic: no disk"}},
		"fails":    {func(context.Context) error { return errBoom }, []string{"reconcile: admit: boom", "reconcile: requeue: panic: no disk"}},
		"panics":   {func(context.Context) error { panic("no gate") }, []string{"reconcile: admit: panic: no gate", "reconcile: requeue: panic: no disk"}},
	} {
		runBubble(t, name, func(t *testing.T) {
			calls, left := 0, 0
			s := serve(t, reconcile.Reconciler[string]{
				Queue: badRequeue{plainly(reconcile.NewQueue[string]()), &calls}, Workers: 2,
				Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
					return func(reconcile.Outcome, error, time.Duration) { left++ }, c.admit(ctx)
				},
			}, "a", "b")
			pass(time.Minute)
			s.Cancel(errEnd)
			err := s.Wait()
			for _, text := range c.want {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("Run = %v, want %q in it", err, text)
				}
			}
			if calls != 1 || left != map[string]int{"too late": 1, "fails": 1}[name] {
				t.Errorf("Requeue was called %d times, done %d times", calls, left)
			}
		})
	}
}

// What replaces a policy that panics calls no method of the error.
func TestPolicyThatPanicsIsReplaced(t *testing.T) {
	asked := func(err error, _ int) (time.Duration, bool) { panic(err.Error()) }
	for _, err := range []error{errBoom, (*hookError)(nil)} {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			r := record.Launch(t, &reconcile.Reconciler[string]{Queue: q, Retry: asked, Logger: slog.New(slog.DiscardHandler), Reconcile: func(context.Context, string) error { return err }})
			q.Enqueue("x")
			synctest.Wait()
			s := q.State("x")
			if in := time.Until(s.Due); s.Phase != reconcile.PhaseWaiting || s.Failures != 1 || in < time.Second/2 || in > time.Second {
				t.Errorf("the item is %+v, due in %v, want it retried within a second", s, in)
			}
			r.End()
		})
	}
}

// The context of a run ends when the run has, for those that asked for its end in the run,
// and for those that ask later.
func TestContextOfARunEndsWithTheRun(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"without a Timeout": 0, "with a Timeout": time.Hour} {
		runBubble(t, name, func(t *testing.T) {
			type key struct{}
			var kept, derived context.Context
			stop := func() {}
			helpers, after := 0, 0
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
			defer cancel()
			q := reconcile.NewQueue[int]()
			r := &reconcile.Reconciler[int]{Queue: q, Timeout: timeout, Logger: record.Unlogged(), Reconcile: func(ctx context.Context, i int) error {
				kept = ctx
				if i > 0 {
					return nil // asks for nothing
				}
				if err := ctx.Err(); err != nil {
					t.Errorf("in the run Err = %v, want nil", err)
				}
				go func() { <-ctx.Done(); helpers++ }()
				context.AfterFunc(ctx, func() { after++ })
				derived, stop = context.WithCancel(ctx) // which nothing stops before the check
				if n := goroutinesOf("created by context.(*cancelCtx).propagateCancel"); n > 0 {
					t.Errorf("%d goroutines wait for the end of the run, want none", n)
				}
				return nil
			}}
			done := startWait(func() error { return r.Run(ctx) })
			for i := range 2 {
				q.Enqueue(i)
				synctest.Wait()
				if !errors.Is(kept.Err(), context.Canceled) || kept.Value(key{}) != "value" {
					t.Errorf("run %d: after the run Err = %v, want %v, and its values", i, kept.Err(), context.Canceled)
				}
				select {
				case <-kept.Done():
				default:
					t.Errorf("run %d: Done is open after the run", i)
				}
				wantCause(t, kept, context.Canceled)
			}
			if helpers != 1 || after != 1 || derived.Err() == nil {
				t.Errorf("%d helpers and %d functions saw the end, and the derived context has %v; want 1, 1 and an error", helpers, after, derived.Err())
			}
			stop()
			cancel()
			mustReturn(t, done)
		})
	}
}

// The context with the Timeout, from which a lease is made, ends with the run.
func TestTimeoutEndsWithTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		var under context.Context
		s := serve(t, reconcile.Reconciler[string]{
			Queue:     leaser{plainly(q), func(ctx context.Context) context.Context { under = ctx; return ctx }},
			Timeout:   time.Hour,
			Reconcile: func(context.Context, string) error { return nil },
		}, "bad")
		pass(time.Minute)
		wantCause(t, under, context.Canceled)
		s.End()
	})
}

// The error of a context of a run that has ended stays, although the context of Run ends
// later by its deadline.
func TestContextOfARunKeepsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := reconcile.NewQueue[int]()
		q.Enqueue(1)
		var kept context.Context
		r := &reconcile.Reconciler[int]{Queue: q, Logger: record.Unlogged(), Reconcile: func(ctx context.Context, _ int) error { kept = ctx; return nil }}
		done := startWait(func() error { return r.Run(ctx) })
		synctest.Wait()
		before := kept.Err()
		time.Sleep(time.Second)
		mustReturn(t, done)
		if after := kept.Err(); before != context.Canceled || after != before {
			t.Errorf("Err = %v after the run, and %v after the deadline of Run; want %v both times", before, after, context.Canceled)
		}
	})
}

// The cause of the end of a context reaches the run, also if it asks for Done first.
func TestContextOfARunHasTheCauseOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		q := reconcile.NewQueue[int]()
		q.Enqueue(1)
		r := &reconcile.Reconciler[int]{Queue: q, Reconcile: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			wantCause(t, ctx, errEnd)
			return ctx.Err()
		}}
		done := startWait(func() error { return r.Run(ctx) })
		synctest.Wait()
		cancel(errEnd)
		if err := mustReturn(t, done).err; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// A rate limiter waits until the deadline of Run or of the lease: it cannot know of it, so
// it does not report it in advance, which would end Run.
func TestAdmitIsToldNoDeadline(t *testing.T) {
	for name, leased := range map[string]bool{"of Run": false, "of a lease": true} {
		runBubble(t, name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			q := reconcile.NewQueue[string]()
			q.Enqueue("a")
			r := &reconcile.Reconciler[string]{
				Queue: q, Logger: record.Unlogged(),
				Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
					if deadline, ok := ctx.Deadline(); ok {
						return nil, fmt.Errorf("the wait would end after %v", deadline)
					}
					<-ctx.Done()
					return nil, ctx.Err()
				},
				Reconcile: func(context.Context, string) error { t.Error("a run, though none was admitted"); return nil },
			}
			if leased {
				r.Queue = leaser{plainly(q), func(ctx context.Context) context.Context {
					ctx, cancel := context.WithTimeout(ctx, 7*time.Minute)
					context.AfterFunc(ctx, cancel)
					return ctx
				}}
			}
			began := time.Now()
			err := r.Run(ctx)
			if took := time.Since(began); err != nil || took != time.Hour || q.State("a").Phase != reconcile.PhaseReady {
				t.Errorf("Run = %v after %v, want nil at the deadline; the item is %v", err, took, q.State("a").Phase)
			}
		})
	}
}

// Apply on a queue of its own leaves nothing, also if the item is to be rechecked.
func TestApplyClosesItsOwnQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := new([64]byte)
		gone := weak.Make(box)
		r := &reconcile.Reconciler[boxed]{Logger: record.Unlogged(), Reconcile: func(context.Context, boxed) error { return reconcile.RecheckWithin(time.Hour) }}
		if err := r.Apply(t.Context(), boxed{1, box}); err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(box)
		box = nil
		synctest.Wait()
		runtime.GC()
		runtime.GC()
		if gone.Value() != nil {
			t.Error("the item is still reachable, by the timer of its recheck")
		}
	})
}
