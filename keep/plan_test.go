// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
)

// TestPlanAndApply makes a plan, applies it, and finds nothing to do.
func TestPlanAndApply(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(w *world)
		plan string
		did  []string
		err  error
	}{
		{"nothing", func(*world) {}, "", nil, nil},
		{
			"all three", func(w *world) {
				w.desired["new"], w.desired["t01"], w.desired["t02"] = "1", "2", gone
				w.desired["t00"], w.desired["t04"] = "2", "2"
				delete(w.desired, "t03")
				w.desired["more"], w.desired["most"], w.desired["all"] = "1", "1", "1"
			}, "+ all\n+ more\n+ most\n+ new\n~ t00\n~ t01\n~ t04\n- t02\n- t03\n",
			[]string{"0s +all", "0s +more", "0s +most", "0s +new", "0s +t00", "0s +t01", "0s +t04", "0s -t02", "5m0s -t03"},
			nil,
		},
		{
			"Absent and not there", func(w *world) { w.desired["never"] = gone }, "", nil, nil,
		},
		{
			"with a Lookup", func(w *world) { w.withLookup(); delete(w.desired, "t03") }, "- t03\n", []string{"5m0s -t03"}, nil,
		},
		{
			"after one listing", func(w *world) { w.set.DeleteAfter = -1; delete(w.desired, "t03") }, "- t03\n", []string{"0s -t03"}, nil,
		},
		{
			"twenty Absent", func(w *world) { marked(w.desired) }, "- t00\n- t01\n- t02\n- t03\n- t04\n",
			[]string{"0s -t00", "0s -t01", "0s -t02", "0s -t03", "0s -t04"},
			nil,
		},
		{
			"too many", func(w *world) {
				delete(w.desired, "t03")
				delete(w.desired, "t04")
				w.desired["new"] = "1"
			},
			"+ new\n! t03\n! t04\nkeep: too many things would be deleted at once: 2, first [t03 t04]\n",
			[]string{"0s +new"},
			keep.ErrTooMany,
		},
		{
			"{}", func(w *world) { w.answer(empty) },
			"! t00\n! t01\n! t02\n! t03\n! t04\nkeep: too many things would be deleted at once: 5, first [t00 t01 t02 t03 t04]\n", nil, keep.ErrTooMany,
		},
		{
			"without InSync", func(w *world) {
				w.set.InSync = nil
				w.desired["t04"] = gone
				delete(w.desired, "t03")
				w.set.DeleteAfter = -1
				delete(w.actual, "t02")
			}, "+ t02\n~ t00\n~ t01\n- t03\n- t04\n",
			[]string{"0s +t02", "0s -t03", "0s -t04"},
			nil,
		},
		{"down", func(w *world) { w.answer(down) }, "", nil, errDown},
		{"Actual is down", func(w *world) { w.answerActual(down); delete(w.actual, "t00") }, "", nil, errDown},
		{"Absent in two listings, and another thing in the second", func(w *world) {
			n := 0
			w.answer(func(all map[string]string) (map[string]string, error) {
				all["t00"] = gone
				if n++; n%2 == 0 {
					all["t01"] = gone
				}
				return all, nil
			})
		}, "- t00\n", []string{"0s -t00"}, nil},
		{"desired in the first of two listings, and then Absent, or gone", func(w *world) {
			n := 0
			w.answer(func(all map[string]string) (map[string]string, error) {
				all["t00"], all["new"], all["other"] = gone, "1", "1"
				if n++; n != 1 && n != 3 { // of Plan, and of Apply
					all["new"] = gone
					delete(all, "other")
				}
				return all, nil
			})
		}, "- t00\n", []string{"0s -t00"}, nil},
		{"Absent in one of two listings", func(w *world) {
			n := 0
			w.answer(func(all map[string]string) (map[string]string, error) {
				if n++; n%2 == 1 {
					marked(all)
				}
				return all, nil
			})
		}, "", nil, nil},
	} {
		bubble(t, 5, func(w *world) {
			c.set(w)
			t.Log(c.name)
			p, err := w.set.Plan(w.t.Context())
			if got := changes(p); got != c.plan || (c.err == errDown) != errors.Is(err, errDown) {
				t.Errorf("the plan is %q, %v, want %q", got, err, c.plan)
			}
			w.took()
			if err := w.set.Apply(w.t.Context(), nil); !errors.Is(err, c.err) {
				t.Errorf("Apply returned %v, want %v", err, c.err)
			}
			w.took(c.did...)
			if c.err == nil { // without an InSync, Apply does not know what it has ensured before
				want := map[bool]string{true: "~ t00\n~ t01\n~ t02\n"}[w.set.InSync == nil]
				if p, err := w.set.Plan(w.t.Context()); err != nil || changes(p) != want {
					t.Errorf("after Apply the plan is %q, %v, want %q", p, err, want)
				}
			}
		})
	}
}

// TestApplyBoundsTheDeletionsOfBothPairs together: an Absent thing makes it list twice.
func TestApplyBoundsTheDeletionsOfBothPairs(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.DeleteAfter = -1
		w.do(func() { w.desired["t00"] = gone })
		n := 0
		w.answer(func(all map[string]string) (map[string]string, error) {
			n++
			return lacks(2 * n)(all)
		})
		err := w.set.Apply(w.t.Context(), nil)
		if r := (*keep.Rejection[string])(nil); !errors.As(err, &r) || len(r.Keys) != 4 || n != 2 {
			t.Errorf("Apply returned %v after %d listings, want a Rejection of four", err, n)
		}
		w.took("0s -t00")
		if _, err := w.set.Plan(w.t.Context()); err != nil || n != 3 { // no Absent thing exists any more
			t.Errorf("Plan returned %v after %d listings, want one more", err, n)
		}
	})
}

// TestAcceptEndsWithTheFirstListing of Apply if that shows the things as desired again.
func TestAcceptEndsWithTheFirstListing(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.DeleteAfter = -1
		w.answer(lacks(8))
		if err := w.set.Accept(w.set.Apply(w.t.Context(), nil)); err != nil {
			t.Error(err)
		}
		w.do(func() { w.desired["t00"] = gone }) // so that Apply lists twice
		n := 0
		w.answer(func(all map[string]string) (map[string]string, error) { n++; return lacks(8 * (n - 1))(all) })
		for range 2 {
			if err := w.set.Apply(w.t.Context(), nil); !errors.Is(err, keep.ErrTooMany) {
				t.Errorf("Apply returned %v, want ErrTooMany", err)
			}
		}
		w.took("0s -t00")
	})
}

// TestNothingIsDeletedAfterApply, because its listings get old.
func TestNothingIsDeletedAfterApply(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.do(func() {
			delete(w.desired, "t00")
			w.deletes = func(string) error { return reconcile.Terminal(errDown) }
		})
		w.set.DeleteAfter = -1
		runs := 0
		r := &reconcile.Reconciler[string]{Logger: w.set.Logger, Reconcile: func(ctx context.Context, key string) error {
			runs++
			return w.set.Reconcile(ctx, key)
		}}
		if err := w.set.Apply(w.t.Context(), r); !errors.Is(err, errDown) || runs != 1 {
			t.Errorf("Apply returned %v after %d runs of its Reconciler", err, runs)
		}
		w.do(func() { w.deletes = nil })
		if err := w.set.Reconcile(w.t.Context(), "t00"); !errors.As(err, &reconcile.RequeueError{}) {
			t.Errorf("Reconcile returned %v, want a reason to wait", err)
		}
		w.took()
	})
}

// TestAcceptAndApplyAgain deletes what was rejected, and nothing that came after it.
func TestAcceptAndApplyAgain(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.answer(empty)
		err := w.set.Apply(w.t.Context(), &reconcile.Reconciler[string]{Workers: 2})
		w.do(func() { w.actual["foreign"], w.actual["other"] = "1", "1" })
		if err := w.set.Accept(err); err != nil {
			t.Error(err)
		}
		p, errPlan := w.set.Plan(w.t.Context())
		if want := "- t00\n- t01\n- t02\n- t03\n- t04\n! foreign\n! other\nkeep: too many things would be deleted at once: 2, first [foreign other]\n"; errPlan != nil || changes(p) != want {
			t.Errorf("the plan is %q, %v, want %q", p, errPlan, want)
		}
		w.do(func() { w.deletes = func(string) error { return reconcile.Terminal(errDown) } })
		if err := w.set.Apply(w.t.Context(), &reconcile.Reconciler[string]{Logger: w.set.Logger}); !errors.Is(err, errDown) {
			t.Errorf("Apply returned %v", err)
		}
		w.answerActual(down)
		if err := w.set.Apply(w.t.Context(), nil); !errors.Is(err, errDown) {
			t.Errorf("Apply returned %v", err)
		}
		w.answerActual(nil)
		w.do(func() { w.deletes = nil }) // what was accepted stays so
		time.AfterFunc(time.Minute, func() { _, err := w.set.Rejected(); _ = w.set.Accept(err) })
		if err := w.set.Apply(w.t.Context(), nil); !errors.Is(err, keep.ErrTooMany) {
			t.Errorf("Apply returned %v, want ErrTooMany of what was not accepted", err)
		}
		if _, err := w.set.Rejected(); len(w.actual) != 2 || w.deleted() != 5 || err != nil {
			t.Errorf("%v are left, rejected: %v", w.actual, err)
		}
		// What an accepted pair of an earlier call lacked counts again.
		w.do(func() {
			w.desired, w.actual, w.deletes = things(20), things(20), func(string) error { return reconcile.Terminal(errDown) }
		})
		w.answer(lacks(2))
		if err := w.set.Apply(w.t.Context(), &reconcile.Reconciler[string]{Logger: w.set.Logger}); !errors.Is(err, errDown) {
			t.Errorf("Apply returned %v", err)
		}
		w.answer(lacks(4))
		if p, err := w.set.Plan(w.t.Context()); err != nil || p.Rejected == nil {
			t.Errorf("the plan is %q, %v, want what Apply would do", p, err)
		}
		if err := w.set.Apply(w.t.Context(), nil); !errors.Is(err, keep.ErrTooMany) {
			t.Errorf("Apply returned %v, want ErrTooMany: the two of the call before are newly surplus again", err)
		}
	})
}

// TestStatsAfterApply count what Apply has ensured as in sync, also without an InSync, and
// if an Absent thing made it list twice at first.
func TestStatsAfterApply(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.InSync = nil
		w.do(func() { w.desired["t00"] = gone; delete(w.desired, "t01") })
		if err := w.set.Apply(w.t.Context(), nil); err != nil {
			t.Error(err)
		}
		w.took("0s -t00", "5m0s -t01")
		if s := w.set.Stats(); s.Desired != 19 || s.OutOfSync != 0 || w.ensured != 18 {
			t.Errorf("Stats are %+v after %d things were ensured, want none out of sync after 18", s, w.ensured)
		}
		w.do(func() { w.desired["t02"] = gone; delete(w.desired, "t03") })
		if err := w.set.ApplyPlan(w.t.Context(), keep.Plan[string]{Delete: []string{"t02", "t03"}}, nil); !strings.Contains(fmt.Sprint(err), "~ t04") {
			t.Errorf("ApplyPlan returned %v, want t04 as not done", err)
		}
		w.took("10m0s -t03", "5m0s -t02")
	})
}

// TestApplyBetweenRuns keeps why the items of the first Run wait, for the next Run to wake them.
func TestApplyBetweenRuns(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.start()
		w.wait(time.Second)
		w.do(func() { delete(w.desired, "t00") })
		w.wait(2 * time.Minute)
		w.stop()
		w.do(func() { w.deletes = func(string) error { return reconcile.Terminal(errDown) } })
		if err := w.set.Apply(w.t.Context(), nil); !errors.Is(err, errDown) {
			t.Errorf("Apply returned %v", err)
		}
		w.do(func() { w.deletes = nil })
		w.runAgain()
		w.wait(10 * time.Minute)
		w.took("12m1s -t00")
	})
}

// TestAcceptEndsWithTheDeletion, so that Apply rejects the deletion of a thing that exists
// again, also if Delete ended with a recheck.
func TestAcceptEndsWithTheDeletion(t *testing.T) {
	for _, result := range []error{nil, reconcile.RecheckWithin(time.Hour)} {
		bubble(t, 5, func(w *world) {
			w.answer(empty)
			remove := w.set.Delete
			w.set.Delete = func(ctx context.Context, key, actual string) error {
				return cmp.Or(remove(ctx, key, actual), result)
			}
			if err := w.set.Accept(w.set.Apply(w.t.Context(), nil)); err != nil {
				t.Error(err)
			}
			if err := w.set.Apply(w.t.Context(), nil); err != nil || len(w.actual) > 0 {
				t.Errorf("Apply returned %v, and %v are left", err, w.actual)
			}
			w.do(func() { w.actual = things(5) })
			if err := w.set.Apply(w.t.Context(), nil); !errors.Is(err, keep.ErrTooMany) || len(w.actual) != 5 {
				t.Errorf("Apply returned %v, and %v are left, want ErrTooMany", err, w.actual)
			}
		})
	}
}

// TestApplyChecksItsReconciler before it lists, and not only after DeleteAfter.
func TestApplyChecksItsReconciler(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.do(func() { delete(w.desired, "t00") })
		w.answerActual(func(all map[string]string) (map[string]string, error) {
			t.Error("Actual is listed")
			return all, nil
		})
		for want, r := range map[string]*reconcile.Reconciler[string]{"Workers is -1": {Workers: -1}, "NewQueue": {Queue: new(reconcile.Queue[string])}} {
			if err := w.set.Apply(w.t.Context(), r); !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("Apply returned %v, want %s", err, want)
			}
		}
		if took := time.Since(w.begun); took != 0 {
			t.Errorf("Apply took %v", took)
		}
	})
}

// TestApplyRunsNothingBeforeItLists, not even an event; a fault shows in most runs.
func TestApplyRunsNothingBeforeItLists(t *testing.T) {
	for range 300 {
		bubble(t, 1, func(w *world) {
			r := &reconcile.Reconciler[string]{Queue: reconcile.NewQueue[string](), Workers: 4, Logger: w.set.Logger}
			if err := w.set.Apply(w.t.Context(), r); err != nil {
				t.Error(err)
			}
			w.answerActual(down)
			r.Queue.(*reconcile.Queue[string]).Enqueue("t00")
			if err := w.set.Apply(w.t.Context(), r); !errors.Is(err, errDown) || w.ensured > 0 {
				t.Errorf("Apply returned %v, and ensured %d things", err, w.ensured)
			}
		})
	}
}

// TestApplyEndsWithItsContext while it waits DeleteAfter.
func TestApplyEndsWithItsContext(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.do(func() { delete(w.desired, "t00") })
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		if err := w.set.Apply(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(w.begun) != time.Minute {
			t.Errorf("Apply returned %v after %v", err, time.Since(w.begun))
		}
		w.took()
	})
}

// TestPlanBesideRun changes nothing that Run knows, and knows what Run knows.
func TestPlanBesideRun(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.start()
		w.wait(time.Second)
		if err := w.set.Apply(w.t.Context(), nil); err == nil || !strings.Contains(err.Error(), "goes on already") {
			t.Errorf("Apply beside Run returned %v", err)
		}
		ended, cancel := context.WithCancel(w.t.Context())
		cancel()
		if err := w.set.Run(ended); err == nil || !strings.Contains(err.Error(), "goes on already") {
			t.Errorf("Run beside Run returned %v", err)
		}
		plan := func(want string) {
			t.Helper()
			if p, err := w.set.Plan(w.t.Context()); err != nil || changes(p) != want {
				t.Errorf("the plan is %q, %v, want %q", p, err, want)
			}
		}
		w.do(func() { delete(w.desired, "t00"); delete(w.desired, "t01") })
		for range 10 {
			plan("- t00\n- t01\n")
		}
		w.wait(time.Minute) // accepted
		w.do(func() { delete(w.desired, "t02"); delete(w.desired, "t03") })
		plan("- t00\n- t01\n- t02\n- t03\n")
		w.wait(5 * time.Minute)
		w.took("6m0s -t00", "6m0s -t01")
		w.answer(empty)
		w.wait(time.Minute)
		w.do(func() { w.actual["t05"] = "drifted" }) // and rejected
		if p, err := w.set.Plan(w.t.Context()); err != nil || p.Rejected == nil || len(p.Update)+len(p.Create) > 0 {
			t.Errorf("the plan is %q, %v, want a rejection alone and earlier deletions", p, err)
		}
	})
}

// TestPlanAfterARun lacks a thing whose run ends while Plan lists, unless it is missing, or InSync
// says that it is not in sync.
func TestPlanAfterARun(t *testing.T) {
	for want, inSync := range map[string]func(string, string) bool{"+ t00\n~ t04\n~ t05\n": nil, "+ t00\n~ t01\n~ t02\n~ t03\n~ t04\n~ t05\n": func(string, string) bool { return false }} {
		bubble(t, 6, func(w *world) { // of which t04 and t05 still run
			w.set.InSync, w.set.Resync, w.set.Period = inSync, -1, time.Hour
			delete(w.actual, "t00")
			w.existing = func(_ context.Context, all map[string]string) (map[string]string, error) {
				time.Sleep(time.Since(w.begun)) // ten minutes in Plan
				return all, nil
			}
			w.ensures = func() error { time.Sleep(15 * time.Minute); return nil }
			w.start()
			w.wait(10 * time.Minute)
			if p, err := w.set.Plan(w.t.Context()); err != nil || changes(p) != want {
				t.Errorf("the plan is %q, %v, want %q", p, err, want)
			}
		})
	}
}

// TestReasonAfterAnOutage is the rejection, and no longer the outage.
func TestReasonAfterAnOutage(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.start()
		w.wait(time.Second)
		w.answer(empty)
		for i, want := range []string{"not complete", "too many"} {
			w.answerActual([]func(map[string]string) (map[string]string, error){down, nil}[i])
			w.wait(2 * time.Minute)
			if err := w.queue.State("t00").Err; !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("t00 waits because of %v, want %s", err, want)
			}
		}
	})
}

// TestPlanAfterRun knows no more than Apply does.
func TestPlanAfterRun(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.do(func() { delete(w.desired, "t00"); delete(w.desired, "t01") })
		w.start()
		w.wait(time.Second) // accepted
		w.stop()
		w.do(func() { delete(w.desired, "t02") })
		if p, err := w.set.Plan(w.t.Context()); err != nil || p.Rejected == nil {
			t.Errorf("the plan is %q, %v, want three that are newly surplus", p, err)
		}
	})
}

// TestRaces calls everything at once, for the race detector.
func TestRaces(t *testing.T) {
	for _, inSync := range []func(string, string) bool{nil, func(desired, actual string) bool { return desired == actual }} {
		testRaces(t, inSync)
	}
}

func testRaces(t *testing.T, inSync func(desired, actual string) bool) {
	bubble(t, 20, func(w *world) {
		w.set.InSync = inSync
		w.set.Period = 10 * time.Second
		w.start()
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				for n := range 200 {
					time.Sleep(time.Duration(i+1) * time.Second)
					key := fmt.Sprintf("t%02d", n%20)
					_, _ = w.set.Rejected()
					_ = w.set.Accept(&keep.Rejection[string]{Keys: []string{key}})
					w.set.Age()
					w.set.Listed(key)
					w.set.Trigger()
					w.queue.Enqueue(key)
					_, _ = w.set.Plan(w.t.Context())
					w.do(func() {
						switch n % 3 {
						case 0:
							delete(w.desired, key)
						case 1:
							w.desired[key] = gone
						default:
							w.desired[key] = "1"
						}
					})
				}
			})
		}
		w.wait(time.Minute)
		w.stop()
		w.runAgain()
		callers.Wait()
	})
}
