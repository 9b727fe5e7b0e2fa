// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// wrappings are the ways in which a Reconciler is a member.
var wrappings = map[string]func(r reconcile.Runner) reconcile.Runner{
	"Reconciler": func(r reconcile.Runner) reconcile.Runner { return r },
	"After":      isReady,
	"Restart":    func(r reconcile.Runner) reconcile.Runner { return reconcile.Restart(reconcile.NoRetry, r) },
	"Restart After": func(r reconcile.Runner) reconcile.Runner {
		return reconcile.Restart(reconcile.NoRetry, isReady(r))
	},
	"After Restart After": func(r reconcile.Runner) reconcile.Runner {
		return isReady(reconcile.Restart(nil, isReady(r)))
	},
}

func isReady(r reconcile.Runner) reconcile.Runner {
	return reconcile.After(func(context.Context) error { return nil }, r)
}

// Feeders are ended first and waited for. What they enqueue to the last is still
// served by a Reconciler that has not been told yet.
func TestGroupEndsFeedersBeforeItTellsReconcilers(t *testing.T) {
	for name, wrap := range wrappings {
		for _, how := range []string{"ctx is done", "a feeder fails"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := newJournal()
					q := reconcile.NewQueue[string]()
					g := reconcile.Group{Logger: unlogged()}
					fail := make(chan struct{})
					// The Reconciler is first and last, so the order of Add does not matter.
					reconciler := func() reconcile.Runner {
						return wrap(&reconcile.Reconciler[string]{
							Queue: q,
							Reconcile: func(ctx context.Context, item string) error {
								j.note("%s runs", item)
								<-ctx.Done()
								j.note("%s ends", item)
								return nil
							},
						})
					}
					g.Add("reconciler", reconciler())
					g.Add("feeder", reconcile.Feed(q, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
						select {
						case <-fail:
							return errBoom
						case <-ctx.Done():
						}
						time.Sleep(time.Second)
						q.Enqueue("late")
						time.Sleep(2 * time.Second)
						j.note("feeder ends")
						return nil
					}))
					g.Add("poller", &reconcile.Poller[string]{
						Queue: q,
						GetItems: func(ctx context.Context) ([]string, error) {
							<-ctx.Done()
							time.Sleep(5 * time.Second)
							j.note("poller ends")
							return nil, nil
						},
						Period: time.Hour,
					})
					g.Add("other", reconcile.RunFunc(func(ctx context.Context) error {
						select {
						case <-fail:
							<-ctx.Done()
						case <-ctx.Done():
						}
						time.Sleep(4 * time.Second)
						j.note("other ends")
						return nil
					}))
					g.Add("failing", reconcile.RunFunc(func(ctx context.Context) error {
						select {
						case <-fail:
							return errBoom
						case <-ctx.Done():
							return nil
						}
					}))
					g.Add("reconciler 2", reconciler())
					run := launch(t, &g)
					q.Enqueue("early")
					time.Sleep(10 * time.Second)
					if how == "ctx is done" {
						run.end()
						j.mustHold(t, "0s early runs", "11s late runs", "13s feeder ends", "14s other ends", "15s poller ends",
							"15s early ends", "15s late ends") // the Reconcilers once all others have ended
						return
					}
					close(fail)
					if err := run.wait(); !errors.Is(err, errBoom) {
						t.Errorf("Run = %v, want %v", err, errBoom)
					}
					j.mustHold(t, "0s early runs", "14s other ends", "15s poller ends", "15s early ends")
				})
			})
		}
	}
}

// What is wrapped like a Reconciler, but is none, is ended first.
func TestGroupEndsWrappedFeedersBeforeItTellsReconcilers(t *testing.T) {
	setDefaultLogger(t, newLogBook())
	for name, wrap := range wrappings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				q := reconcile.NewQueue[string]()
				var g, feeders reconcile.Group
				feeders.Add("inner", member(j, "inner", 2*time.Second, nil))
				g.Add("feeder", wrap(member(j, "feeder", 3*time.Second, nil)))
				g.Add("reconciler", &reconcile.Reconciler[string]{
					Queue:     q,
					Reconcile: func(ctx context.Context, _ string) error { <-ctx.Done(); j.note("run ends"); return nil },
				})
				g.Add("feeders", wrap(&feeders))
				run := launch(t, &g)
				q.Enqueue("a")
				time.Sleep(time.Second)
				run.end()
				j.mustHold(t, "0s feeder begins", "0s inner begins", "3s inner ends", "4s feeder ends", "4s run ends")
			})
		})
	}
}

func TestGroupEndsFeedersBeforeTheOtherReconcilersWhenAReconcilerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		q := reconcile.NewQueue[string]()
		broken := brokenQueue{plainly(reconcile.NewQueue[string]()), make(chan struct{})}
		g := reconcile.Group{Logger: unlogged()}
		g.Add("good", &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(ctx context.Context, _ string) error { <-ctx.Done(); j.note("run ends"); return nil },
		})
		g.Add("bad", &reconcile.Reconciler[string]{Queue: broken, Reconcile: nothing})
		g.Add("feeder", member(j, "feeder", 3*time.Second, nil))
		run := launch(t, &g)
		q.Enqueue("a")
		time.Sleep(time.Second)
		close(broken.broken)
		if err := run.wait(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "bad") {
			t.Errorf("Run = %v, want the error of the member bad", err)
		}
		j.mustHold(t, "0s feeder begins", "4s feeder ends", "4s run ends")
	})
}

func TestGroupStopEndsThatMemberAloneAndWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		var g reconcile.Group
		stop := g.Add("a", member(j, "a", 3*time.Second, context.Canceled))
		g.Add("b", member(j, "b", 0, nil))
		run := launch(t, &g)
		time.Sleep(time.Second)
		var stops sync.WaitGroup
		for range 3 { // each of them waits
			stops.Go(func() {
				stop()
				j.note("stopped")
			})
		}
		stops.Wait()
		j.mustHold(t, "0s a begins", "0s b begins", "4s a ends", "4s stopped", "4s stopped", "4s stopped")
		if run.returned() {
			t.Fatal("Run returned because one member was stopped")
		}
		stop() // again
		run.end()
		stop() // and after Run returned
	})
}

func TestGroupStopOfTheLastMemberEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Group
		stop := g.Add("a", after(time.Hour, nil))
		run := launch(t, &g)
		synctest.Wait()
		stop()
		if err := run.wait(); err != nil {
			t.Errorf("Run = %v, want nil: it was stopped, it did not fail", err)
		}
	})
}

func TestGroupStopBeforeRunKeepsTheMemberFromRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		var g reconcile.Group
		stop := g.Add("a", reconcile.RunFunc(func(context.Context) error { t.Error("it runs"); return nil }))
		g.Add("b", member(j, "b", 0, nil))
		stop()
		run := launch(t, &g)
		time.Sleep(time.Second)
		stop()
		run.end()
		j.mustBe(t, "0s b begins", "1s b ends")
	})
}

func TestGroupStopOfAMemberThatHasEndedReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := reconcile.Group{Logger: unlogged()}
		well := g.Add("well", after(0, nil))
		g.Add("rest", after(time.Hour, nil))
		run := launch(t, &g)
		time.Sleep(time.Second)
		well()
		badly := g.Add("badly", after(0, errBoom))
		if err := run.wait(); !errors.Is(err, errBoom) {
			t.Errorf("Run = %v, want %v", err, errBoom)
		}
		began := time.Now()
		badly()
		if took := time.Since(began); took != 0 {
			t.Errorf("stop took %v", took)
		}
	})
}

func TestGroupStopOfAReconcilerWaitsForItsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var results resultBook[string]
		var g reconcile.Group
		stop := g.Add("reconciler", &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { time.Sleep(10 * time.Second); return nil },
			Grace:     time.Hour,
			OnResult:  results.add,
		})
		g.Add("rest", after(time.Hour, nil))
		run := launch(t, &g)
		q.Enqueue("a")
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took != 9*time.Second || results.only(t).Outcome != reconcile.Succeeded {
			t.Errorf("stop took %v, results %+v, want it to wait for the run", took, results.all())
		}
		run.end()
	})
}

// A Group can be a member of a Group. Its Reconcilers are told last, too.
func TestGroupInAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inner, outer reconcile.Group
		outer.Logger = unlogged()
		inner.Add("keys", after(time.Second, errBoom))
		outer.Add("cloud", &inner)
		outer.Add("rest", after(time.Hour, nil))
		err := launch(t, &outer).wait()
		if !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "cloud") || !strings.Contains(err.Error(), "keys") {
			t.Errorf("Run = %v, want the error with both names", err)
		}
	})
}

func TestGroupEndsFeedersBeforeTheReconcilersOfAGroupWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		q := reconcile.NewQueue[string]()
		var inner, outer reconcile.Group
		inner.Add("reconciler", &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(ctx context.Context, _ string) error { <-ctx.Done(); j.note("run ends"); return nil },
		})
		outer.Add("inner", &inner)
		outer.Add("feeder", member(j, "feeder", 3*time.Second, nil))
		run := launch(t, &outer)
		q.Enqueue("a")
		time.Sleep(time.Second)
		run.end()
		j.mustHold(t, "0s feeder begins", "4s feeder ends", "4s run ends")
	})
}

func TestGroupWarnsOfAMemberThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := newLogBook()
		j := newJournal()
		g := reconcile.Group{Logger: book.logger()}
		g.Add("quick", member(j, "quick", time.Second, nil))
		g.Add("stuck", member(j, "stuck", time.Hour, nil))
		run := launch(t, &g)
		synctest.Wait()
		run.end()
		lines := book.from(slog.LevelWarn)
		if len(lines) < 2 || len(lines) > 20 {
			t.Fatalf("%d warnings in an hour, want it again and again, but not often", len(lines))
		}
		for _, l := range lines {
			l.mustSay(t, slog.LevelWarn, nil, "stuck")
		}
	})
}

// All of its goroutines have ended when Run returns, however it came about: the
// bubble would not end otherwise. And none of them runs any more.
func TestGroupLeavesNoGoroutineBehind(t *testing.T) {
	for _, how := range []string{"ctx", "error", "panic", "Goexit", "well"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				g := reconcile.Group{Logger: unlogged()}
				ending := make(chan struct{})
				g.Add("poller", &reconcile.Poller[string]{
					Queue:    q,
					GetItems: func(context.Context) ([]string, error) { return []string{"a", "b", "c"}, errBoom },
					Period:   time.Second,
					Logger:   unlogged(),
				})
				g.Add("channel", reconcile.Feed(q, reconcile.FromChan(make(chan string))))
				setDefaultLogger(t, newLogBook())
				g.Add("restarted", reconcile.Restart(minutes, after(time.Second, errBoom)))
				g.Add("waiting", reconcile.After(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, after(0, errBoom)))
				g.Add("reconciler", &reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(ctx context.Context, item string) error {
						switch item {
						case "a":
							return untilDone(ctx, item)
						case "b":
							panicsHere(failuresOfUserCode["Goexit"])
						}
						return errBoom
					},
					Workers: 3,
					Timeout: 10 * time.Second,
					Grace:   time.Second,
					Logger:  unlogged(),
				})
				g.Add("cause", reconcile.RunFunc(func(ctx context.Context) error {
					select {
					case <-ending:
					case <-ctx.Done(): // the test failed
						return nil
					}
					switch how {
					case "panic", "Goexit":
						return panicsHere(failuresOfUserCode[how])
					case "error":
						return errBoom
					}
					return nil
				}))
				run := launch(t, &g)
				time.Sleep(25 * time.Second)
				close(ending)
				synctest.Wait()
				if how == "ctx" || how == "well" {
					run.end()
				} else if err := run.wait(); err == nil {
					t.Error("Run = nil, want an error")
				}
			})
		})
	}
}
