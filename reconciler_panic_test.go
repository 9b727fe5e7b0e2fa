// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestPanicInReconcileIsAFailureOfThatItemAlone(t *testing.T) {
	for name, end := range failuresOfUserCode {
		for _, d := range dequeuers {
			t.Run(d.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := reconcile.NewQueue[string]()
					book := newLogBook()
					var results resultBook[string]
					run := launch(t, &reconcile.Reconciler[string]{
						Queue: d.of(q),
						Reconcile: func(_ context.Context, item string) error {
							time.Sleep(time.Second)
							if item == "bad" {
								return panicsHere(end)
							}
							return nil
						},
						Name: "buckets",
						Retry: func(err error, failures int) (time.Duration, bool) {
							var p *reconcile.PanicError
							if !errors.As(err, &p) {
								t.Errorf("policy was asked about %v, want a *PanicError", err)
							}
							return minutes(err, failures)
						},
						OnResult: results.add,
						Logger:   book.logger(),
					})
					q.Enqueue("bad")
					q.Enqueue("good")
					time.Sleep(time.Second)
					synctest.Wait()
					r := results.only(t)
					var p *reconcile.PanicError
					if !errors.As(r.Err, &p) {
						t.Fatalf("result has error %v, want a *PanicError", r.Err)
					}
					if !strings.Contains(string(p.Stack), "panicsHere") {
						t.Errorf("stack does not lead to the panic:\n%s", p.Stack)
					}
					switch name {
					case "panic":
						if p.Value != "no disk" || errors.Unwrap(p) != nil {
							t.Errorf("PanicError has value %v", p.Value)
						}
					case "error":
						if p.Value != errBoom || !errors.Is(r.Err, errBoom) {
							t.Errorf("PanicError has value %v, want %v", p.Value, errBoom)
						}
					case "nil":
						if v, ok := p.Value.(*runtime.PanicNilError); !ok {
							t.Errorf("PanicError has value %v, want what panic(nil) means", v)
						}
					case "Goexit":
						if !strings.Contains(r.Err.Error(), "Goexit") {
							t.Errorf("error %q does not tell that Goexit was called", r.Err)
						}
					}
					if r.Outcome != reconcile.Retrying || r.Failures != 1 || r.Next != time.Minute || r.Duration != time.Second {
						t.Errorf("result = %+v, want failure 1", r)
					}
					if s := q.State("bad"); s.Phase != reconcile.Waiting || s.Failures != 1 || !s.Due.Equal(time.Now().Add(time.Minute)) || !errors.As(s.Err, &p) {
						t.Errorf("State(bad) = %+v, want it to wait for a retry", s)
					}
					book.onlyLine(t, slog.LevelInfo).mustSay(t, slog.LevelError,
						map[string]string{"reconciler": "buckets", "item": "bad"}, "panicsHere")

					// The only worker goes on, and the item comes back.
					time.Sleep(time.Second)
					synctest.Wait()
					if r := results.last(t); r.Item != "good" || r.Outcome != reconcile.Succeeded {
						t.Errorf("result = %+v, want good to succeed", r)
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					if r := results.last(t); r.Item != "bad" || r.Failures != 2 {
						t.Errorf("result = %+v, want failure 2", r)
					}
					run.end()
				})
			})
		}
	}
}

// A panic is a failure, whatever its value: it is never taken for a plan.
func TestPanicValueIsNotAPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		book := newLogBook()
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { panic(reconcile.RequeueAfter(time.Hour)) },
			Retry:     minutes,
			OnResult:  results.add,
			Logger:    book.logger(),
		})
		q.Enqueue("a")
		synctest.Wait()
		if r := results.only(t); r.Outcome != reconcile.Retrying || r.Failures != 1 {
			t.Errorf("result = %+v, want a failure", r)
		}
		book.onlyLine(t, slog.LevelInfo).mustSay(t, slog.LevelError, nil)
		run.end()
	})
}

func TestPanicIsLoudWhenGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		book := newLogBook()
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { return panicsHere(failuresOfUserCode["panic"]) },
			Retry:     reconcile.NoRetry,
			OnResult:  results.add,
			Logger:    book.logger(),
		})
		q.Enqueue("a")
		synctest.Wait()
		if r := results.only(t); r.Outcome != reconcile.GaveUp || r.Failures != 1 || q.Has("a") {
			t.Errorf("result = %+v, want it given up", r)
		}
		book.onlyLine(t, slog.LevelInfo).mustSay(t, slog.LevelError, map[string]string{"item": "a"}, "no disk", "panicsHere")
		run.end()
	})
}

// No worker is lost, however many runs end by Goexit.
func TestGoexitLosesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[int]()
		var results resultBook[int]
		run := launch(t, &reconcile.Reconciler[int]{
			Queue: q,
			Reconcile: func(_ context.Context, i int) error {
				time.Sleep(time.Second)
				if i < 100 {
					runtime.Goexit()
				}
				return nil
			},
			Workers:  4,
			Retry:    reconcile.NoRetry,
			OnResult: results.add,
			Logger:   unlogged(),
		})
		for i := range 200 {
			q.Enqueue(i)
		}
		q.Close()
		began := time.Now()
		if err := run.wait(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(began); took != 50*time.Second || len(results.all()) != 200 {
			t.Errorf("%d runs in %v, want 200 by 4 workers in 50s", len(results.all()), took)
		}
	})
}

// mixed ends in each way that there is, by the name of the item.
func mixed(_ context.Context, item string) error {
	switch item {
	case "plan":
		return reconcile.RequeueAfter(time.Hour)
	case "fail":
		return errBoom
	case "refuse":
		return reconcile.Terminal(errBoom)
	case "panic":
		panic("no disk")
	}
	return nil
}

// mustHaveMixed checks that mixed's items are where they belong.
func mustHaveMixed(t *testing.T, q *reconcile.Queue[string]) {
	t.Helper()
	synctest.Wait()
	for item, want := range map[string]struct {
		phase    reconcile.Phase
		due      time.Duration
		failures int
	}{
		"good":   {},
		"plan":   {reconcile.Waiting, time.Hour, 0},
		"fail":   {reconcile.Waiting, time.Minute, 1},
		"refuse": {},
		"panic":  {reconcile.Waiting, time.Minute, 1},
	} {
		s := q.State(item)
		if s.Phase != want.phase || s.Failures != want.failures || want.due != 0 && !s.Due.Equal(time.Now().Add(want.due)) {
			t.Errorf("State(%s) = %+v, want %+v", item, s, want)
		}
	}
}

func TestPanicInOnResultLosesNeitherItemNorWorker(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				called := 0
				run := launch(t, &reconcile.Reconciler[string]{
					Queue:     q,
					Reconcile: mixed,
					Retry:     minutes,
					OnResult:  func(reconcile.Result[string]) { called++; panicsHere(end) },
					Logger:    book.logger(),
				})
				for item := range strings.FieldsSeq("good plan fail refuse panic") {
					q.Enqueue(item)
				}
				mustHaveMixed(t, q)
				if called != 5 {
					t.Errorf("OnResult was called %d times, want 5", called)
				}
				loud := 0
				for _, l := range book.from(slog.LevelError) {
					if strings.Contains(l.String(), "panicsHere") {
						loud++
					}
				}
				if loud != 5 {
					t.Errorf("%d of 5 panics of OnResult were logged: %v", loud, book.from(slog.LevelError))
				}
				run.end()
			})
		})
	}
}

// Reconcile panics, and so does the policy that is asked about that.
func TestPanicInRetryPolicyAfterAPanic(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				asked := 0
				var results resultBook[string]
				run := launch(t, &reconcile.Reconciler[string]{
					Queue:     q,
					Reconcile: func(context.Context, string) error { panicsHere(end); return nil },
					Retry: func(error, int) (time.Duration, bool) {
						if asked++; asked == 1 { // or for ever
							panicsHere(end)
						}
						return 0, false
					},
					OnResult: results.add,
					Logger:   unlogged(),
				})
				q.Enqueue("bad")
				synctest.Wait()
				if r := results.only(t); r.Outcome != reconcile.Retrying || asked != 1 {
					t.Errorf("result = %+v, the policy was asked %d times, want a retry by another, and once", r, asked)
				}
				run.end()
			})
		})
	}
}

func TestPanicInRetryPolicyLosesNeitherItemNorWorker(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				var results resultBook[string]
				runs := 0
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(_ context.Context, item string) error {
						if item == "bad" {
							runs++
							return errBoom
						}
						return nil
					},
					Retry:    func(error, int) (time.Duration, bool) { time.Sleep(time.Second); panicsHere(end); return 0, false },
					OnResult: results.add,
					Logger:   book.logger(),
				})
				q.Enqueue("bad")
				q.Enqueue("good")
				time.Sleep(time.Second)
				synctest.Wait()
				if r := results.last(t); r.Item != "good" || r.Outcome != reconcile.Succeeded {
					t.Errorf("result = %+v, want good to succeed", r)
				}
				if r := results.all()[0]; r.Item != "bad" || r.Outcome != reconcile.Retrying || r.Failures != 1 || r.Next <= 0 || r.Duration != 0 {
					t.Errorf("result = %+v, want a retry after some time", r)
				}
				if s := q.State("bad"); s.Phase != reconcile.Waiting || s.Failures != 1 || s.Err != errBoom {
					t.Errorf("State(bad) = %+v, want it to wait for a retry", s)
				}
				if lines := book.from(slog.LevelError); len(lines) == 0 || !strings.Contains(fmt.Sprint(lines), "panicsHere") {
					t.Errorf("the panic of the policy was not logged: %v", lines)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if runs < 2 {
					t.Error("the item was not run again within 10 minutes")
				}
				run.end()
			})
		})
	}
}

// Shutdown is silent about runs that end with an error. A panic is still a fault.
func TestPanicDuringShutdownIsLoggedAndKeepsTheItem(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				var results resultBook[string]
				run := launch(t, &reconcile.Reconciler[string]{
					Queue:     q,
					Reconcile: func(ctx context.Context, _ string) error { <-ctx.Done(); return panicsHere(end) },
					Workers:   3,
					OnResult:  results.add,
					Logger:    book.logger(),
				})
				q.Enqueue("a")
				q.Enqueue("b")
				time.Sleep(time.Second)
				run.end()
				if s := q.Stats(); s.InFlight != 0 || s.Ready+s.Waiting != 2 || len(results.all()) != 2 {
					t.Errorf("Stats = %+v after %d results, want both items kept", s, len(results.all()))
				}
				lines := book.from(slog.LevelError)
				if len(lines) != 2 {
					t.Errorf("log lines %v, want one for each panic", lines)
				}
				for _, l := range lines {
					l.mustSay(t, slog.LevelError, nil, "panicsHere")
				}
				run.end()
			})
		})
	}
}
