// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/supervise"
)

// logs has the Set log into a text, of a goroutine at a time.
func (w *world) logs() *bytes.Buffer {
	var text bytes.Buffer
	w.set.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Duration("at", time.Since(w.begun))
		}
		return a
	}}))
	return &text
}

// TestNothingHappensBeforeTheFirstPair that is complete, whichever listing fails; or before
// Actual has failed for five Periods.
func TestNothingHappensBeforeTheFirstPair(t *testing.T) {
	for _, side := range []func(*world, func(map[string]string) (map[string]string, error)){(*world).answer, (*world).answerActual} {
		bubble(t, 100, func(w *world) {
			w.set.Resync = -1
			w.do(func() { w.actual["t07"] = "0"; delete(w.actual, "t08") })
			side(w, downAt(w, 0))
			w.start()
			w.queue.Enqueue("t07")
			w.wait(500 * time.Millisecond)
			if state := w.queue.State("t07"); !strings.Contains(fmt.Sprint(state.Err), "have not been listed yet") || w.queue.Has("t08") {
				t.Errorf("the state of an event before the first pair is %+v", state)
			}
			w.wait(time.Hour)
			w.took("1s +t07", "1s +t08")
			if w.ensured != 2 {
				t.Errorf("%d things were ensured, want the two that are out of sync", w.ensured)
			}
		})
	}
	bubble(t, 3, func(w *world) {
		w.set.Resync = -1
		w.set.Period = 3 * time.Second
		w.do(func() { delete(w.actual, "t01") })
		w.answerActual(down)
		w.start()
		w.wait(time.Minute) // the listings begin at 0s, 1s, 3s, 6s, 9s, 12s, 15s
		w.took("15s +t01")
		if w.ensured != 3 {
			t.Errorf("%d things were ensured without Actual, want all three once", w.ensured)
		}
	})
}

// TestListingThatHangs deletes nothing by the listings before it, warns, and goes on.
func TestListingThatHangs(t *testing.T) {
	for _, side := range []string{"Actual", "Desired"} {
		bubble(t, 20, func(w *world) {
			text := w.logs()
			hang := make(chan struct{})
			stuck := func(_ context.Context, all map[string]string) (map[string]string, error) { <-hang; return all, nil }
			w.failsToDelete()
			w.do(func() {
				if w.listed = stuck; side == "Actual" {
					w.listed, w.existing = nil, stuck
				}
			})
			w.wait(time.Minute)
			w.do(func() { w.desired["t00"] = "1" }) // again
			w.wait(9*time.Minute + 59*time.Second)  // until the context of the listing of 11m has ended
			w.do(func() { w.deletes = nil })
			w.wait(time.Hour)
			w.took()
			if state := w.queue.State("t00"); state.Err == nil || !strings.Contains(state.Err.Error(), "has not returned, though its context ended") {
				t.Errorf("%s: the item waits because of %v", side, state.Err)
			}
			w.do(func() { w.listed, w.existing = nil, nil })
			close(hang)
			w.wait(time.Hour)
			w.took()
			for _, line := range []string{"at=21m0.5s level=WARN", "at=31m1s level=WARN", "at=51m2s level=WARN"} {
				line += ` msg="listing has not returned, though its context ended" listing=` + side
				if !strings.Contains(text.String(), line) {
					t.Errorf("%s: want %q in\n%s", side, line, text)
				}
			}
		})
	}
}

// One side has failed, and Desired is still being listed, or the sides are being compared: the
// pair before says nothing any more.
func TestFailedListingBeforeItsPairEnds(t *testing.T) {
	for _, side := range []string{"Actual", "Desired"} {
		bubble(t, 20, func(w *world) {
			var slow atomic.Bool
			w.set.InSync = func(desired, actual string) bool {
				if slow.Load() {
					time.Sleep(time.Second)
				}
				return desired == actual
			}
			w.failsToDelete()
			if w.answer(down); side == "Actual" {
				w.answerActual(down)
				w.do(func() {
					w.listed = func(ctx context.Context, _ map[string]string) (map[string]string, error) {
						<-ctx.Done()
						return nil, nil
					}
				})
			}
			slow.Store(true)
			w.wait(time.Minute)
			w.do(func() { w.deletes = nil })
			w.wait(time.Hour)
			w.took()
		})
	}
}

// TestOffers counts the calls of a day for one thing that stays as it is.
func TestOffers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer error
		retry  reconcile.RetryPolicy
		want   int // 1,440 listings
	}{
		{"nil", nil, reconcile.DefaultRetry, 362},
		{"Terminal", reconcile.Terminal(errDown), reconcile.DefaultRetry, 361},
		{"no retry", errDown, reconcile.NoRetry, 361},
		{"three retries", errDown, reconcile.Backoff(time.Second, time.Minute).Limit(3), 1444},
		{"the retries of DefaultRetry", errDown, reconcile.DefaultRetry, 395},
		{"the retries of Run, a Period apart at most", errDown, nil, 1936},
	} {
		for _, what := range []string{"missing", "different", "surplus", "Absent"} {
			bubble(t, 20, func(w *world) {
				calls := 0
				w.retry, w.set.Resync, w.set.DeleteAfter = c.retry, -1, -1
				w.set.Ensure = func(context.Context, string, string) error { calls++; return c.answer }
				w.set.Delete = w.set.Ensure
				switch what {
				case "missing":
					delete(w.actual, "t00")
				case "different":
					w.actual["t00"] = "0"
				case "surplus":
					delete(w.desired, "t00")
				case "Absent":
					w.desired["t00"] = gone
				}
				w.start()
				w.wait(24*time.Hour - time.Second)
				if calls < c.want-10 || calls > c.want+10 {
					t.Errorf("%s, whose function returns %s: %d calls in a day, want %d", what, c.name, calls, c.want)
				}
			})
		}
	}
}

// TestChangeInSyncIsNoEvent, whatever reflect.DeepEqual says, unless there is no InSync.
func TestChangeInSyncIsNoEvent(t *testing.T) {
	for _, c := range []struct {
		inSync func(float64, string) bool
		want   int
	}{{func(float64, string) bool { return true }, 0}, {nil, 61}} {
		bubble(t, 1, func(w *world) {
			ensured := 0
			set := &keep.Set[string, float64, string]{
				Period: time.Minute, Resync: -1, InSync: c.inSync,
				Desired: func(context.Context) (map[string]float64, error) { return map[string]float64{"a": math.NaN()}, nil },
				Actual:  func(context.Context) (map[string]string, error) { return map[string]string{"a": ""}, nil },
				Ensure:  func(context.Context, string, float64) error { ensured++; return nil },
				Delete:  func(context.Context, string, string) error { return nil },
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour+time.Second)
			defer cancel()
			if err := set.Run(ctx); err != nil || ensured != c.want {
				t.Errorf("Run returned %v, and a value that differs from itself was ensured %d times, want %d", err, ensured, c.want)
			}
		})
	}
}

// TestNothingWithoutAccept deletes only what an operator accepts, with MaxDeleted below 0.
func TestNothingWithoutAccept(t *testing.T) {
	bubble(t, 20, func(w *world) {
		text := w.logs()
		w.set.MaxDeleted = -1
		w.start()
		w.wait(time.Second)
		w.do(func() { delete(w.desired, "t00"); w.desired["t01"] = gone; delete(w.actual, "t02") })
		w.wait(time.Hour)
		w.took("1m0s +t02")
		_, shown := w.set.Rejected()
		if want := "keep: MaxDeleted is below 0, so deletions wait for Accept: 2, first [t00 t01]"; fmt.Sprint(shown) != want {
			t.Errorf("Rejected is %v, want %s", shown, want)
		}
		w.do(func() { delete(w.desired, "t03"); delete(w.desired, "t01") })
		w.wait(10 * time.Minute)
		if n := w.set.Stats().OutOfSync; n != 0 {
			t.Errorf("%d things are out of sync, want none: the last desired state of t01 was Absent", n)
		}
		if want := `at=1h1m0s level=WARN msg="listings rejected, nothing that is newly surplus is deleted" err="keep: MaxDeleted is below 0, so deletions wait for Accept: 3, first [t00 t01 t03]"`; !strings.Contains(text.String(), want) {
			t.Errorf("want %q in\n%s", want, text)
		}
		if err := w.set.Accept(shown); err != nil {
			t.Error(err)
		}
		w.wait(time.Hour)
		w.took("1h10m1s -t00", "1h10m1s -t01")
	})
}

// TestRunDuringAListing counts a run that ends while things are listed: what stays missing
// after it is offered by one listing of four.
func TestRunDuringAListing(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.set.Resync = -1
		w.do(func() { delete(w.actual, "t01") })
		w.existing = func(_ context.Context, all map[string]string) (map[string]string, error) {
			time.Sleep(30 * time.Second)
			return all, nil
		}
		calls := map[string]int{}
		w.set.Ensure = func(_ context.Context, key, _ string) error {
			w.do(func() { calls[key]++ })
			if key == "t01" {
				time.Sleep(170 * time.Second)
			}
			return nil
		}
		w.start()
		time.AfterFunc(80*time.Second, func() { w.queue.Enqueue("t02") })
		w.wait(time.Hour)
		if calls["t01"] != 16 || calls["t02"] != 1 { // t01: after the first listings, and then by one of four
			t.Errorf("Ensure was called so often in an hour: %v, want 16 times for t01, and once for t02", calls)
		}
	})
}

// TestRunsDuringAListingWithoutInSync ends runs of things while Actual is listed, which took what
// existed before. They are ensured again only if a value has changed, or if they are missing.
func TestRunsDuringAListingWithoutInSync(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.InSync, w.set.Resync = nil, -1
		calls := map[string]int{}
		ensure := w.set.Ensure
		w.set.Ensure = func(ctx context.Context, key, desired string) error {
			time.Sleep(7 * time.Second) // 140 s for all, so that t08 to t11 end in the second listing
			if calls[key]++; key == "t05" && calls[key] == 2 {
				return errDown
			}
			return ensure(ctx, key, desired)
		}
		w.existing = func(_ context.Context, all map[string]string) (map[string]string, error) {
			if time.Since(w.begun) > 0 {
				time.Sleep(30 * time.Second)
			}
			return all, nil
		}
		delete(w.actual, "t10")
		time.AfterFunc(80*time.Second, func() { w.do(func() { w.desired["t09"] = "2" }) })
		time.AfterFunc(171*time.Second, func() { w.set.Enqueue("t05") }) // its retry ends in the fourth listing
		time.AfterFunc(91*time.Second, func() {
			if s := w.set.Stats(); s.Missing != 1 {
				t.Errorf("Stats are %+v, want t10 missing in the second listing too", s)
			}
		})
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
		defer cancel()
		if err := w.set.Run(ctx); err != nil { // with one worker
			t.Error(err)
		}
		for key, n := range calls { // of t09 and t10, the other value then changes too
			if want := cmp.Or(map[string]int{"t05": 3, "t09": 3, "t10": 3}[key], 1); n != want {
				t.Errorf("%s was ensured %d times, want %d", key, n, want)
			}
		}
	})
}

// TestEventBeforeTheListing makes Run list, and says what its item waits for.
func TestEventBeforeTheListing(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(w *world)
		deleted string
	}{
		{"Absent", func(w *world) { w.desired["t00"] = gone }, "2m30s -t00"},
		{"not desired", func(w *world) { delete(w.desired, "t00") }, "6m30s -t00"},
		{"the listings lag", func(w *world) {
			delete(w.desired, "t00")
			w.listed = func(_ context.Context, all map[string]string) (map[string]string, error) {
				if time.Since(w.begun) < 10*time.Minute {
					all["t00"] = "1"
				}
				return all, nil
			}
		}, "15m30s -t00"},
	} {
		bubble(t, 20, func(w *world) {
			w.set.Resync = -1
			w.withLookup()
			w.start()
			w.wait(90 * time.Second)
			w.do(func() { c.change(w) })
			w.queue.Enqueue("t00")
			w.wait(500 * time.Millisecond)
			if state := w.queue.State("t00"); !strings.Contains(fmt.Sprint(state.Err), "must say") && !strings.Contains(fmt.Sprint(state.Err), "must confirm that") {
				t.Errorf("%s: the item waits because of %v", c.name, state.Err)
			}
			w.wait(30 * time.Minute)
			w.took(c.deleted)
			if n := w.queue.Stats().Taken; n > 14 {
				t.Errorf("%s: %d runs", c.name, n)
			}
		})
	}
}

// TestLookupFailsWithoutARow ends the item of a thing that neither listing has, because
// nothing can be ensured or deleted, and finds one that the listings do not have yet.
func TestLookupFailsWithoutARow(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.Resync = -1
		lookups, listings := 0, 0
		w.answer(func(all map[string]string) (map[string]string, error) { listings++; return all, nil })
		w.set.Lookup = func(_ context.Context, key, _ string) (string, bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			lookups++
			if desired, ok := w.desired[key]; ok && lookups != 1 {
				return desired, true, nil
			}
			return "", false, errDown
		}
		w.start()
		w.wait(90 * time.Second)
		w.do(func() { w.desired["new"] = "1" })
		w.queue.Enqueue("new")
		w.wait(time.Second)
		w.took("1m30s +new")
		w.do(func() { w.desired["t00"] = gone })
		w.wait(10 * time.Minute)
		w.took("3m30s -t00")
		w.do(func() { delete(w.desired, "t00") })
		w.wait(24 * time.Hour)
		if state := w.queue.State("t00"); state.Err != nil || lookups != 5 || listings != 1453 {
			t.Errorf("after %d Lookups and %d listings the item of what is gone has %v", lookups, listings, state.Err)
		}
		w.answerActual(down)
		for range 2 {
			w.queue.Enqueue("other")
			w.wait(time.Minute)
		}
		w.answerActual(nil)
		if w.wait(time.Hour); lookups != 8 {
			t.Errorf("%d Lookups, want two in an outage, and one after the next complete pair", lookups-5)
		}
	})
}

// TestEventOfANewThing makes Run list, if there is no Lookup to ask.
func TestEventOfANewThing(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.Period, w.set.Resync = time.Hour, -1
		w.start()
		w.wait(time.Minute)
		w.do(func() { w.desired["new"] = "1" })
		w.queue.Enqueue("new")
		w.queue.Enqueue("never")
		w.wait(time.Minute)
		w.took("1m0s +new")
		if state := w.queue.State("never"); state.Err != nil || w.queue.Stats().Taken > 4 {
			t.Errorf("after %d runs the item of what is not listed has %v", w.queue.Stats().Taken, state.Err)
		}
	})
}

// TestLookupDisagrees says why a thing that only Lookup has, as Absent, is not deleted.
func TestLookupDisagrees(t *testing.T) {
	bubble(t, 20, func(w *world) {
		var lookups atomic.Int32
		var agrees atomic.Bool
		w.set.Lookup = func(_ context.Context, key, _ string) (string, bool, error) {
			lookups.Add(1)
			if agrees.Load() {
				return "", false, nil
			}
			if key != "t00" {
				return "1", true, nil
			}
			return gone, true, nil
		}
		w.start()
		w.wait(time.Second)
		w.do(func() { delete(w.desired, "t00") })
		w.wait(24 * time.Hour)
		w.took()
		if state := w.queue.State("t00"); !strings.Contains(fmt.Sprint(state.Err), "Desired does not list it") || lookups.Load() > 24*20+40 {
			t.Errorf("after %d Lookups the item waits because of %v", lookups.Load(), state.Err)
		}
		agrees.Store(true)
		w.wait(time.Hour)
		if n := w.deleted(); n != 1 {
			t.Errorf("%d deletions, want 1", n)
		}
	})
}

// TestTerminalLookup is not called more often because its item has waited before.
func TestTerminalLookup(t *testing.T) {
	bubble(t, 20, func(w *world) {
		calls := 0
		w.set.Resync = -1
		w.set.Lookup = func(context.Context, string, string) (string, bool, error) {
			if time.Since(w.begun) < 3*time.Minute {
				return "", false, nil
			}
			calls++
			return "", false, reconcile.Terminal(errDown)
		}
		w.start()
		w.wait(time.Second)
		w.do(func() { delete(w.desired, "t00") })
		w.wait(24 * time.Hour)
		if calls > 361 {
			t.Errorf("%d calls in a day", calls)
		}
	})
}

// TestUnlistedWaitsForACompletePair runs an item that waits for a listing once that is
// complete, and not after each that fails.
func TestUnlistedWaitsForACompletePair(t *testing.T) {
	bubble(t, 3, func(w *world) {
		calls := 0
		w.set.Resync = -1
		w.set.Lookup = func(_ context.Context, key, _ string) (string, bool, error) {
			if key == "new" {
				return "", false, errDown
			}
			calls++
			return "", false, nil
		}
		w.start()
		w.wait(time.Second)
		w.answer(down)
		w.queue.Enqueue("t00")
		w.queue.Enqueue("new")
		w.wait(30 * time.Minute)
		if state := w.queue.State("new"); calls != 1 || !strings.Contains(fmt.Sprint(state.Err), "look up the desired state: 503") {
			t.Errorf("after %d calls of Lookup while Desired fails, want 1, the item of a thing that is not listed has %v", calls, state.Err)
		}
	})
}

// TestResyncWithoutActual offers what is out of sync once each Resync while Actual fails, and
// by one listing of four before that.
func TestResyncWithoutActual(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.set.Resync = time.Hour
		calls := 0
		w.do(func() { delete(w.actual, "t01") })
		w.ensures = func() error { calls++; return reconcile.Terminal(errDown) }
		w.set.InSync = func(desired, actual string) bool { return true }
		w.start()
		w.wait(10*time.Hour + 30*time.Second)
		listed := calls
		w.answerActual(down)
		w.wait(10 * time.Hour)
		if listed != 151+2*10 || calls-listed != 30 {
			t.Errorf("%d and %d calls in ten hours, want 171 and 30", listed, calls-listed)
		}
	})
}

// TestFirstActualThatTimesOut delays the first Ensure for its ten Periods, and not for more.
func TestFirstActualThatTimesOut(t *testing.T) {
	bubble(t, 2, func(w *world) {
		w.desired["new"] = "1"
		w.existing = func(ctx context.Context, _ map[string]string) (map[string]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w.start()
		w.wait(15 * time.Minute)
		w.took("10m0s +new")
	})
}

// TestApplyPlanAndLookup leaves what the plan deletes as it is if Lookup says that it is desired.
func TestApplyPlanAndLookup(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.do(func() { delete(w.desired, "t00"); delete(w.actual, "t01") })
		w.set.Lookup = func(context.Context, string, string) (string, bool, error) { return "2", true, nil }
		plan, err := w.set.Plan(w.t.Context())
		if err == nil {
			err = w.set.ApplyPlan(w.t.Context(), plan, nil)
		}
		if !strings.Contains(fmt.Sprint(err), "t00: keep: it is desired, and the plan does not ensure it") {
			t.Errorf("ApplyPlan returned %v", err)
		}
		w.took("0s +t01")
	})
}

// TestApplyAndLookup says what is not ensured or deleted because only Lookup says so.
func TestApplyAndLookup(t *testing.T) {
	for _, ok := range []bool{false, true} {
		bubble(t, 20, func(w *world) {
			want := "t00: keep: Lookup says that it is not desired"
			if ok {
				delete(w.desired, "t00")
				want = "t00: keep: Lookup says that it is Absent, and Desired does not list it"
			} else {
				delete(w.actual, "t00")
			}
			w.set.Lookup = func(context.Context, string, string) (string, bool, error) { return gone, ok, nil }
			ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
			defer cancel()
			if err := w.set.Apply(ctx, nil); !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("Apply returned %v, want %s", err, want)
			}
			w.took()
		})
	}
}

// TestSlowLookup takes so long that the next pair lists the thing as desired. Run lists soon.
func TestSlowLookup(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.Period, w.set.Resync = time.Hour, -1
		w.set.Lookup = func(context.Context, string, string) (string, bool, error) {
			time.Sleep(30 * time.Minute)
			return "", false, nil
		}
		lists := 0
		w.answer(func(all map[string]string) (map[string]string, error) { lists++; return all, nil })
		delete(w.desired, "t00")
		w.start()
		w.wait(45 * time.Minute)
		w.do(func() { w.desired["t00"] = "1" })
		w.queue.Enqueue("t00") // at an hour, it is listed as desired
		w.wait(40 * time.Minute)
		if lists != 3 {
			t.Errorf("%d pairs were listed, want one more than each hour", lists)
		}
	})
}

// TestApplyPlanNamesWhatComesLater, in the listings before its deletions.
func TestApplyPlanNamesWhatComesLater(t *testing.T) {
	bubble(t, 20, func(w *world) {
		delete(w.desired, "t00")
		plan, err := w.set.Plan(w.t.Context())
		time.AfterFunc(time.Minute, func() { w.do(func() { delete(w.actual, "t01") }) })
		if err == nil {
			err = w.set.ApplyPlan(w.t.Context(), plan, nil)
		}
		if want := "keep: not in the plan, and not done:\n+ t01\n1 to create, 0 to update, 0 to delete"; fmt.Sprint(err) != want {
			t.Errorf("ApplyPlan returned %v, want %s", err, want)
		}
		w.took("5m0s -t00")
	})
}

// TestKeysOfOneText are always in the same order.
func TestKeysOfOneText(t *testing.T) {
	all := map[any]string{}
	for n := range 10 {
		all[n], all[fmt.Sprint(n)], all[int8(n)] = "", "", ""
	}
	set := &keep.Set[any, string, string]{
		Desired: func(context.Context) (map[any]string, error) { return nil, nil },
		Actual:  func(context.Context) (map[any]string, error) { return all, nil },
		Ensure:  func(context.Context, any, string) error { return nil },
		Delete:  func(context.Context, any, string) error { return nil },
	}
	var first []any
	for range 20 {
		plan, err := set.Plan(t.Context())
		rejected := (*keep.Rejection[any])(nil)
		if err != nil || !errors.As(plan.Rejected, &rejected) {
			t.Fatalf("the plan is %v, %v", plan, err)
		}
		if first == nil {
			first = rejected.Keys
		}
		if !slices.Equal(first, rejected.Keys) {
			t.Fatalf("the order is %#v after %#v", rejected.Keys, first)
		}
	}
}

// TestAcceptedPlan is applied once an operator has accepted what the first ApplyPlan
// rejected, and no more than that.
func TestAcceptedPlan(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.MaxDeleted = -1
		w.do(func() { delete(w.desired, "t00"); delete(w.desired, "t01") })
		plan, err := w.set.Plan(w.t.Context())
		if err == nil {
			err = w.set.ApplyPlan(w.t.Context(), plan, nil)
		}
		if err := w.set.Accept(err); err != nil {
			t.Error(err)
		}
		w.do(func() { delete(w.desired, "t02") })
		if err := w.set.ApplyPlan(w.t.Context(), plan, nil); fmt.Sprint(err) != "keep: MaxDeleted is below 0, so deletions wait for Accept: 1, first [t02]" {
			t.Errorf("ApplyPlan returned %v", err)
		}
		w.took("5m0s -t00", "5m0s -t01")
	})
}

// TestDeletedAgain warns of a thing that another name creates, and only of that.
func TestDeletedAgain(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Minute, 2 * time.Hour} {
		bubble(t, 20, func(w *world) {
			text := w.logs()
			w.set.Name = "things"
			w.desired["WWW"] = "1"
			ensure, removed := w.set.Ensure, w.set.Delete
			w.set.Ensure = func(ctx context.Context, key, desired string) error {
				return ensure(ctx, strings.ToLower(key), desired)
			}
			late := 0
			w.set.Delete = func(ctx context.Context, key, actual string) error {
				defer time.Sleep(90 * time.Second) // more than a Period
				if late++; late < 3 {
					return nil // the provider takes two listings to delete it
				}
				return removed(ctx, key, actual)
			}
			w.set.DeleteAfter = after
			w.start()
			w.wait(12 * after)
			w.stop()
			lines := strings.Count(text.String(), `level=WARN msg="deleted again: do Desired and Actual spell this key alike?" set=things key=www`)
			if n := w.deleted(); n < 5 || lines != n-1 {
				t.Errorf("%d deletions, and %d warnings, want one for each after the first:\n%s", n, lines, text)
			}
		})
	}
}

// TestRunWithoutAQueue runs the items too, as the Reconciler says, and takes events before Run.
func TestRunWithoutAQueue(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.do(func() { delete(w.actual, "t00"); delete(w.actual, "t01") })
		var results atomic.Int32
		w.set.Resync = -1
		w.set.Reconciler = &reconcile.Reconciler[string]{
			Queue: reconcile.NewQueue[string](), Workers: 3,
			OnResult: func(reconcile.Result[string]) { results.Add(1) },
		}
		ensure := w.set.Ensure
		w.set.Ensure = func(ctx context.Context, key, desired string) error {
			time.Sleep(10 * time.Second)
			return ensure(ctx, key, desired)
		}
		var callers sync.WaitGroup
		for range 2 {
			callers.Go(func() { w.set.Enqueue("t02") })
		}
		callers.Wait()
		ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
		defer cancel()
		time.AfterFunc(25*time.Second, func() { w.set.Enqueue("t03") }) // finished by its Grace
		w.set.Reconciler.Grace = time.Minute
		group := supervise.Group{Logger: w.set.Logger}
		group.Add("set", w.set)
		group.Add("feeder", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second / 2)
			w.set.Enqueue("t04") // is still taken
			time.Sleep(time.Second / 4)
			return nil
		}))
		if err := group.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(w.begun); took != 40*time.Second+time.Second/2 || results.Load() < 5 || w.ensured != 5 {
			t.Errorf("after %v there were %d results, and %d things were ensured, want 40.5s, 5 and 5", took, results.Load(), w.ensured)
		}
		w.took("10s +t00", "10s +t01")
	})
}

// TestApplyPlan makes only the changes of the plan, and names the others.
func TestApplyPlan(t *testing.T) {
	bubble(t, 30, func(w *world) {
		text := w.logs()
		w.do(func() {
			delete(w.desired, "t00")
			w.actual["t05"], w.actual["t10"] = "0", "0"
			delete(w.actual, "t06")
			w.desired["t07"] = "2"
		})
		plan, err := w.set.Plan(w.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.do(func() {
			delete(w.desired, "t01")
			delete(w.desired, "t02")
			delete(w.actual, "t05")
			delete(w.actual, "t08")
			w.actual["t07"] = "2"
			w.actual["t09"] = "0"
		})
		q := reconcile.NewQueue[string]()
		q.Enqueue("t09") // an event is not lost, and no part of the plan either
		err = w.set.ApplyPlan(w.t.Context(), plan, &reconcile.Reconciler[string]{Queue: q, Logger: w.set.Logger})
		if want := "keep: not in the plan, and not done:\n+ t08\n~ t09\n- t01\n- t02\n1 to create, 1 to update, 2 to delete"; err == nil || err.Error() != want {
			t.Errorf("ApplyPlan returned %v, want %q", err, want)
		}
		w.took("0s +t05", "0s +t06", "0s +t10", "5m0s -t00")
		if state := q.State("t09"); !strings.Contains(fmt.Sprint(state.Err), "keep: the plan has no change for it") {
			t.Errorf("the event is %+v", state)
		}
		if err := w.set.Reconcile(w.t.Context(), "t09"); err != nil { // the plan has ended
			t.Error(err)
		}
		w.took("5m0s +t09")
		if want := `at=0s level=INFO msg="waiting before the next listings, which must confirm deletions" deletions=1 for=5m0s`; !strings.Contains(text.String(), want) {
			t.Errorf("want %q in\n%s", want, text)
		}
		w.answer(empty)
		w.wait(time.Minute)
		if err := w.set.ApplyPlan(w.t.Context(), keep.Plan[string]{Delete: []string{"t01"}}, nil); !errors.Is(err, keep.ErrTooMany) || w.set.Age() != time.Minute {
			t.Errorf("ApplyPlan returned %v %v after the last accepted pair, want ErrTooMany and 1m", err, w.set.Age())
		}
	})
}

// TestPlanText has a line for each key, whatever its text is, and logs nothing.
func TestPlanText(t *testing.T) {
	bubble(t, 5, func(w *world) {
		text := w.logs()
		w.actual["x\n- t00"], w.actual["\x1b[1A"], w.actual["\xff"] = "1", "1", "1"
		w.desired[""], w.desired[" a"] = "1", "1"
		w.set.MaxDeleted = 0.5
		if p, err := w.set.Plan(w.t.Context()); err != nil || p.String() != `+ ""`+"\n"+`+ " a"`+"\n"+`- "\x1b[1A"`+"\n"+`- "x\n- t00"`+"\n"+`- "\xff"`+"\n2 to create, 0 to update, 3 to delete" {
			t.Errorf("the plan is %s, %v", p, err)
		}
		w.set.MaxDeleted = 0.1
		p, err := w.set.Plan(w.t.Context())
		if want := `+ ""` + "\n" + `+ " a"` + "\n" + `! "\x1b[1A"` + "\n" + `! "x\n- t00"` + "\n" + `! "\xff"` + "\n" + `keep: too many things would be deleted at once: 3, first ["\x1b[1A" "x\n- t00" "\xff"]` + "\n2 to create, 0 to update, 0 to delete, 3 rejected"; err != nil || p.String() != want {
			t.Errorf("the plan is %s, %v, want %s", p, err, want)
		}
		if text.Len() > 0 {
			t.Errorf("Plan logs %s", text)
		}
	})
}

// TestRunBeginsAgainDuringLookup has the item wait for the listings of that Run.
func TestRunBeginsAgainDuringLookup(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.set.Lookup = func(context.Context, string, string) (string, bool, error) {
			time.Sleep(10 * time.Minute)
			return "1", true, nil
		}
		w.start()
		w.wait(time.Second)
		done := make(chan error)
		go func() { done <- w.set.Reconcile(w.t.Context(), "t00") }()
		w.wait(time.Second)
		w.answer(down)
		w.restart()
		if err := <-done; !strings.Contains(fmt.Sprint(err), "have not been listed yet") || w.ensured > 0 {
			t.Errorf("Reconcile returned %v, and ensured %d things", err, w.ensured)
		}
	})
}

// TestEventWhileApplyPlanLists waits, though an earlier Apply has listed, unless the plan has it.
func TestEventWhileApplyPlanLists(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		bubble(t, 5, func(w *world) {
			if earlier && w.set.Apply(w.t.Context(), nil) != nil {
				t.Error("Apply failed")
			}
			w.do(func() { w.actual["t00"], w.actual["t01"] = "0", "0" })
			w.answerActual(func(all map[string]string) (map[string]string, error) {
				if err := w.set.Reconcile(w.t.Context(), "t00"); !strings.Contains(fmt.Sprint(err), "the plan has no change for it") {
					t.Errorf("Reconcile returned %v", err)
				}
				if err := w.set.Reconcile(w.t.Context(), "t01"); (err == nil) != earlier {
					t.Errorf("Reconcile returned %v of what the plan has", err)
				}
				return all, nil
			})
			_ = w.set.ApplyPlan(w.t.Context(), keep.Plan[string]{Update: []string{"t01"}}, nil)
			w.took("0s +t01")
		})
	}
}

// TestEventBesideAListing has Run list what changed after Desired had been read, once.
func TestEventBesideAListing(t *testing.T) {
	for name, c := range map[string]struct {
		before func(w *world)
		lists  int
	}{
		"the first pair":          {func(*world) {}, 2},
		"that an event asked for": {func(w *world) { w.wait(time.Minute); w.set.Enqueue("new") }, 3},
		"that showed that it left": {func(w *world) {
			w.wait(time.Minute)
			w.do(func() { delete(w.desired, "left") })
			w.set.Trigger()
			w.wait(time.Minute)
		}, 3},
	} {
		bubble(t, 3, func(w *world) {
			w.set.Period, w.set.Resync = time.Hour, -1
			w.desired["left"] = gone
			lists, key := 0, "new"
			w.answer(func(all map[string]string) (map[string]string, error) {
				lists++
				time.Sleep(30 * time.Second)
				return all, nil
			})
			w.start()
			if c.before(w); w.desired["left"] == "" {
				key = "left"
			}
			w.wait(10 * time.Second)
			w.do(func() { w.desired[key] = "1" })
			w.set.Enqueue(key)
			w.wait(10 * time.Minute)
			if w.actual[key] != "1" || lists != c.lists {
				t.Errorf("beside a listing, %s: %q, %d pairs, want %d and no event lost", name, w.actual[key], lists, c.lists)
			}
		})
	}
}

// TestPlanBesideARunThatFails has its thing, which was in sync when Plan began.
func TestPlanBesideARunThatFails(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.set.InSync, w.set.Resync, w.set.Period = nil, -1, time.Hour
		w.set.Absent = func(desired string) bool { return desired == "bad" && panics() }
		w.start()
		w.wait(time.Minute)
		w.do(func() { w.ensures, w.desired["t01"] = func() error { return reconcile.Terminal(errDown) }, "bad" })
		w.answerActual(func(all map[string]string) (map[string]string, error) {
			w.set.Enqueue("t00")
			w.wait(time.Minute)
			return all, nil
		})
		if p, err := w.set.Plan(w.t.Context()); err != nil || changes(p) != "~ t00\n" {
			t.Errorf("the plan is %q, %v", p, err)
		}
	})
}

// TestDriftOfRejectedThings counts, without an InSync, until Ensure has returned nil: not while
// Lookup says that the thing is not desired, and not while the first Ensure hangs.
func TestDriftOfRejectedThings(t *testing.T) {
	for lookup, wants := range map[bool][]int{false: {1, 1, 0, 0, 0}, true: {1, 1, 1, 1, 0}} {
		bubble(t, 4, func(w *world) {
			if w.set.InSync, w.set.Resync = nil, -1; lookup {
				w.withLookup()
			}
			w.start()
			w.wait(time.Second)
			all := w.desired
			w.do(func() { w.desired = map[string]string{} })
			w.wait(2 * time.Minute)
			w.do(func() { w.actual["t00"] = "drifted" })
			for i, want := range wants {
				w.wait(time.Minute)
				if s := w.set.Stats(); s.OutOfSync != want {
					t.Errorf("with a Lookup: %v, pair %d: %+v, want %d out of sync", lookup, i+1, s, want)
				}
				switch i {
				case 1:
					w.do(func() { w.desired, w.ensures = all, func() error { time.Sleep(90 * time.Second); return nil } })
				case 3: // it runs once more when it has been ensured
					time.AfterFunc(40*time.Second, func() { w.set.Enqueue("t00") })
				}
			}
		})
	}
}

// TestListingsPause though Lookup disagrees with Desired, whose value changes with each pair.
func TestListingsPause(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.set.Lookup = func(context.Context, string, string) (string, bool, error) {
			time.Sleep(time.Second)
			return "", false, nil
		}
		lists := 0
		w.answer(func(all map[string]string) (map[string]string, error) {
			time.Sleep(5 * time.Second)
			lists++
			return map[string]string{"new": fmt.Sprint(lists)}, nil // such as a time
		})
		w.start()
		w.wait(7 * time.Second)
		w.set.Enqueue("new")
		if w.wait(time.Hour); lists > 65 {
			t.Errorf("%d pairs in 60 Periods", lists)
		}
	})
}
