// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
)

// TestSurplusIsDeleted at exact times: by the first accepted listing that begins DeleteAfter
// after the first one that lacks the thing, also with a Lookup.
func TestSurplusIsDeleted(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(w *world)
		after time.Duration // the listing that lacks it first, at 1m
	}{
		{"five Periods", func(*world) {}, 5 * time.Minute},
		{"DeleteAfter", func(w *world) { w.set.DeleteAfter = 90 * time.Second }, 2 * time.Minute},
		{"one listing", func(w *world) { w.set.DeleteAfter = -1 }, 0},
		{"Lookup", func(w *world) { w.withLookup() }, 5 * time.Minute},
		{"Lookup and one listing", func(w *world) { w.withLookup(); w.set.DeleteAfter = -1 }, 0},
		{"a listing of Desired that fails in between, and is retried after a second", func(w *world) { w.answer(downAt(w, 3*time.Minute)) }, 5*time.Minute + time.Second},
		{"the same of Actual", func(w *world) { w.answerActual(downAt(w, 3*time.Minute)) }, 5*time.Minute + time.Second},
		{"listings that take a while", func(w *world) {
			w.answer(func(all map[string]string) (map[string]string, error) {
				time.Sleep(10 * time.Second)
				return all, nil
			})
		}, 6*time.Minute + 10*time.Second},
	} {
		bubble(t, 5, func(w *world) {
			c.set(w)
			w.set.Resync = -1
			w.start()
			w.wait(time.Second)
			w.do(func() { delete(w.desired, "t00") })
			w.wait(20 * time.Minute)
			t.Log(c.name)
			if n := w.queue.Stats().Taken; n > 2 { // to wait for a listing, and to delete it
				t.Errorf("%d runs for one deletion", n)
			}
			w.took(fmt.Sprintf("%v -t00", time.Minute+c.after))
		})
	}
}

// downAt returns answers that are an error at that time of the world.
func downAt(w *world, at time.Duration) func(map[string]string) (map[string]string, error) {
	return func(all map[string]string) (map[string]string, error) {
		if time.Since(w.begun) == at {
			return nil, errDown
		}
		return all, nil
	}
}

// TestActualIsListedBeforeDesired creates a thing between any two listings of a side,
// which the other order would take for surplus.
func TestActualIsListedBeforeDesired(t *testing.T) {
	bubble(t, 20, func(w *world) {
		n := 0
		w.set.DeleteAfter = -1
		then := func(all map[string]string) (map[string]string, error) {
			w.do(func() {
				n++
				w.desired[fmt.Sprint("new", n)], w.actual[fmt.Sprint("new", n)] = "1", "1"
			})
			return all, nil
		}
		w.answer(then)
		w.answerActual(then)
		w.start()
		w.wait(time.Hour)
		w.took()
	})
}

// TestNothingIsDeletedWhileAListingFails lets a deletion be possible again only then.
func TestNothingIsDeletedWhileAListingFails(t *testing.T) {
	for _, side := range []func(w *world, f func(map[string]string) (map[string]string, error)){(*world).answer, (*world).answerActual} {
		for _, absent := range []bool{false, true} {
			bubble(t, 5, func(w *world) {
				w.withLookup()
				w.do(func() { w.deletes = func(string) error { return errors.New("in use") } })
				w.start()
				w.wait(time.Second)
				w.do(func() {
					if delete(w.desired, "t00"); absent {
						w.desired["t00"] = gone
					}
				})
				w.wait(30 * time.Minute)
				side(w, down)
				w.wait(time.Minute)
				w.do(func() { w.deletes = nil })
				w.wait(time.Hour)
				w.took()
				side(w, nil)
				w.wait(2 * time.Minute)
				if w.deleted() != 1 {
					t.Error("the thing is not deleted when the listings are complete again")
				}
			})
		}
	}
}

// TestLookupDecides asks Lookup before Ensure and Delete.
func TestLookupDecides(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.withLookup()
		w.start()
		w.wait(time.Second)
		w.answer(lacks(1)) // and Lookup does not
		w.wait(10 * time.Minute)
		w.took()
		w.do(func() { w.actual["t04"] = "broken" })
		w.wait(time.Minute)
		w.took("11m0s +t04")

		w.answer(func(all map[string]string) (map[string]string, error) { return marked(all), nil })
		w.wait(10 * time.Minute)
		w.took()

		w.answer(nil)
		w.do(func() { w.lookupErr = errDown; delete(w.desired, "t00"); delete(w.actual, "t01") })
		w.wait(10 * time.Minute)
		w.took()
		w.do(func() { w.lookupErr = nil })
		w.wait(5 * time.Minute)
		if w.deleted() != 1 || len(w.actual) != 4 {
			t.Errorf("when Lookup answers again, there are %v", w.actual)
		}
	})
}

// TestLookupAloneDoesNotDelete says Absent, and the listings do not.
func TestLookupAloneDoesNotDelete(t *testing.T) {
	for _, listed := range []string{"1", ""} { // desired, and not
		bubble(t, 5, func(w *world) {
			w.set.Lookup = func(_ context.Context, key, _ string) (string, bool, error) { return gone, true, nil }
			w.do(func() {
				if delete(w.desired, "t00"); listed != "" {
					w.desired["t00"] = listed
				}
			})
			w.start()
			for range 60 {
				w.wait(time.Minute)
				w.queue.Enqueue("t00")
			}
			w.took()
		})
	}
}

// TestNothingHappensOnceTheContextHasEnded, also if Lookup then returns no error, such as
// a search over pages that stops.
func TestNothingHappensOnceTheContextHasEnded(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.set.Lookup = func(ctx context.Context, _, _ string) (string, bool, error) { <-ctx.Done(); return "", false, nil }
		w.start()
		w.wait(time.Second)
		w.do(func() { delete(w.desired, "t00") })
		w.wait(time.Minute)
		ctx, cancel := context.WithTimeoutCause(w.t.Context(), time.Second, errDown)
		defer cancel()
		if err := w.set.Reconcile(ctx, "t00"); !errors.Is(err, errDown) {
			t.Errorf("Reconcile returned %v after a Lookup that stopped at the end of its context", err)
		}
		w.took()
	})
	bubble(t, 5, func(w *world) {
		w.start()
		w.wait(time.Second)
		ended, cancel := context.WithCancelCause(w.t.Context())
		cancel(errDown)
		w.do(func() { w.actual["t00"] = "broken" })
		if err := w.set.Reconcile(ended, "t00"); !errors.Is(err, errDown) {
			t.Errorf("Reconcile returned %v after the end of its context", err)
		}
		w.took()
	})
}

// TestNothingIsDeletedAfterRun, because its listings get old.
func TestNothingIsDeletedAfterRun(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.start()
		w.wait(time.Second)
		w.do(func() { w.deletes = func(string) error { return errors.New("in use") }; delete(w.desired, "t01") })
		w.wait(10 * time.Minute)
		w.stop()
		w.do(func() { w.deletes = nil })
		if err := w.set.Reconcile(w.t.Context(), "t01"); err == nil || !errors.As(err, &reconcile.RequeueError{}) {
			t.Errorf("after Run, Reconcile returned %v, want a reason to wait", err)
		}
		w.took()
	})
}

// TestRejection shows the reason on each item, and keeps the last desired state.
func TestRejection(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.Resync = -1
		w.start()
		w.wait(time.Second)
		w.do(func() { delete(w.desired, "t00") })
		w.wait(time.Minute) // accepted
		lists := 0
		w.answer(func(map[string]string) (map[string]string, error) {
			if lists++; lists%2 == 0 {
				return map[string]string{"t19": "1"}, nil
			}
			return nil, nil
		})
		w.wait(30 * time.Second)
		since := time.Now()
		w.wait(30 * time.Second)
		at, err := w.set.Rejected()
		var r *keep.Rejection[string]
		if !errors.As(err, &r) || !errors.Is(err, keep.ErrTooMany) || len(r.Keys) != 19 || r.Keys[0] != "t01" || !at.Equal(since.Add(29*time.Second)) {
			t.Fatalf("Rejected returned %v, %v", at, err)
		}
		if want := "keep: too many things would be deleted at once: 19, first [t01 t02 t03 t04 t05]"; r.Error() != want {
			t.Errorf("the error is %q, want %q", r, want)
		}
		for _, key := range r.Keys {
			if state := w.queue.State(key); !errors.Is(state.Err, keep.ErrTooMany) || state.Recheck {
				t.Errorf("the state of %s is %+v", key, state)
			}
		}
		if d, isDesired, a, exists := w.set.Listed("t01"); d != "1" || !isDesired || a != "1" || !exists {
			t.Errorf("Listed returned %q %v %q %v for what is rejected", d, isDesired, a, exists)
		}
		if _, isDesired, _, exists := w.set.Listed("t00"); isDesired || !exists {
			t.Error("what was accepted is still desired")
		}
		if got, want := w.set.Stats(), (keep.Stats{Actual: 20, Surplus: 20, Rejected: 19, Completed: at}); got != want {
			t.Errorf("Stats are %+v, want %+v", got, want)
		}
		if names := r.Names(); !slices.Equal(names, r.Keys) {
			t.Errorf("Names are %q", names)
		}
		if age := w.set.Age(); age != time.Minute+time.Second {
			t.Errorf("Age is %v", age)
		}
		if w.set.Accept(&keep.Rejection[string]{Keys: []string{"t00"}}) == nil {
			t.Error("Accept takes what was accepted")
		}
		w.do(func() { w.actual["t01"], w.actual["t00"] = "broken", "broken"; delete(w.actual, "t05") })
		w.wait(time.Minute)
		w.took("3m0s +t01")
		w.wait(10 * time.Minute)
		if lists != 12 { // each Period: a rejection is no failed poll
			t.Errorf("%d listings in 11 minutes of rejections, want 12", lists)
		}
		w.took() // the rejected pairs do not confirm the deletion that was accepted before
		w.do(func() {
			if w.ensured > 40 { // each once, t01, and t19 when it is desired again
				t.Errorf("%d things were ensured in ten minutes of rejections", w.ensured)
			}
			w.desired["never"] = gone
		})
		if now, _ := w.set.Rejected(); !now.Equal(at) {
			t.Errorf("listings are rejected since %v, want since %v", now, at)
		}
		w.answer(nil)
		w.wait(time.Minute)
		w.took("14m0s +t05", "14m0s -t00")
		w.do(func() { w.actual["never"] = "1" })
		w.answer(empty)
		w.wait(time.Minute)
		if d, isDesired, _, exists := w.set.Listed("never"); isDesired || !exists {
			t.Errorf("Listed says that %q is desired of what was Absent", d)
		}
		w.do(func() { delete(w.desired, "never"); delete(w.actual, "never") })

		w.answer(nil)
		w.wait(time.Minute)
		if _, err := w.set.Rejected(); err != nil {
			t.Errorf("Rejected returned %v", err)
		}
		if n := w.queue.Stats(); n.Ready+n.Waiting+n.InFlight != 0 {
			t.Errorf("the queue has %+v when nothing is rejected any more", n)
		}
		ensured := w.ensured
		w.wait(time.Hour)
		if w.ensured != ensured {
			t.Errorf("%d things were ensured in an hour in which nothing happened", w.ensured-ensured)
		}
	})
}

// TestDeletedKeyLeavesTheQueue, also if its item waits for a listing.
func TestDeletedKeyLeavesTheQueue(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.withLookup()
		w.start()
		w.wait(time.Second)
		w.answer(empty)
		w.wait(time.Minute)
		w.do(func() { w.desired, w.actual = nil, nil })
		w.wait(time.Minute)
		if n := w.queue.Stats(); n.Ready+n.Waiting+n.InFlight != 0 {
			t.Errorf("the queue has %+v", n)
		}
	})
}

// TestAccept accepts what was shown, and nothing else.
func TestAccept(t *testing.T) {
	for _, lookup := range []bool{false, true} {
		bubble(t, 20, func(w *world) {
			if lookup {
				w.withLookup()
			}
			w.start()
			w.wait(time.Second)
			if w.set.Accept(nil) == nil || w.set.Accept(errDown) == nil || w.set.Accept(&keep.Rejection[string]{Keys: []string{"t00"}}) == nil {
				t.Error("Accept takes what is not rejected")
			}
			w.do(func() {
				for key := range things(10) {
					delete(w.desired, key)
				}
			})
			w.wait(time.Hour)
			w.took()
			_, shown := w.set.Rejected()
			if w.set.Accept((*keep.Rejection[string])(nil)) == nil {
				t.Error("Accept takes a nil *Rejection, as errors.As leaves it when nothing is rejected")
			}
			w.do(func() {
				delete(w.desired, "t10")
				delete(w.desired, "t11")
				delete(w.desired, "t12")
				w.desired["t00"] = "1"
			})
			w.wait(time.Minute)
			if err := w.set.Accept(fmt.Errorf("on a page: %w", shown)); err != nil {
				t.Error(err)
			}
			w.wait(10 * time.Minute)
			if got := w.deleted(); got != 9 {
				t.Errorf("%d things are deleted, want the 9 that were shown and are still surplus", got)
			}
			if _, err := w.set.Rejected(); !errors.Is(err, keep.ErrTooMany) {
				t.Errorf("Rejected returned %v, want the three that were not shown", err)
			}
			if w.set.Accept(shown) == nil {
				t.Error("Accept takes a Rejection that is done")
			}
			w.took(strings.Split("1h1m1s -t01,1h1m1s -t02,1h1m1s -t03,1h1m1s -t04,1h1m1s -t05,1h1m1s -t06,1h1m1s -t07,1h1m1s -t08,1h1m1s -t09", ",")...)
			w.do(func() { w.desired["t01"] = "1" })
			w.wait(time.Minute)
			w.do(func() { delete(w.desired, "t01") })
			w.wait(time.Hour)
			if w.deleted() != 0 {
				t.Error("a key that came back is still accepted")
			}
		})
	}
}

// TestAcceptRunsScheduledItems deletes what is accepted with the next listing, also
// if the last Ensure has asked for a run much later.
func TestAcceptRunsScheduledItems(t *testing.T) {
	bubble(t, 5, func(w *world) {
		w.set.Ensure = func(context.Context, string, string) error { return reconcile.RequeueWithin(24 * time.Hour) }
		w.start()
		w.wait(time.Second)
		w.do(func() { delete(w.desired, "t00"); delete(w.desired, "t01") })
		w.wait(10 * time.Minute)
		_, shown := w.set.Rejected()
		if err := w.set.Accept(shown); err != nil {
			t.Error(err)
		}
		w.wait(2 * time.Minute)
		w.took("10m1s -t00", "10m1s -t01")
	})
}

// TestAcceptDoesNotOutliveAbsent counts a thing that is Absent and then leaves Desired as
// newly surplus, also if its deletion was accepted before.
func TestAcceptDoesNotOutliveAbsent(t *testing.T) {
	bubble(t, 2, func(w *world) {
		w.do(func() { w.deletes = func(string) error { return errors.New("in use") } })
		w.start()
		w.wait(time.Second)
		w.answer(empty)
		w.wait(time.Minute)
		_, shown := w.set.Rejected()
		if err := w.set.Accept(shown); err != nil {
			t.Error(err)
		}
		w.wait(10 * time.Minute)
		w.answer(func(all map[string]string) (map[string]string, error) { return marked(all), nil })
		w.wait(10 * time.Minute)
		w.answer(empty)
		w.wait(2 * time.Minute)
		w.do(func() { w.deletes = nil })
		w.wait(time.Hour)
		w.took()
	})
}

// TestAcceptEndsWithRun, because the next one knows nothing of it.
func TestAcceptEndsWithRun(t *testing.T) {
	bubble(t, 2, func(w *world) {
		w.answer(empty)
		w.start()
		w.wait(time.Second)
		_, shown := w.set.Rejected()
		if err := w.set.Accept(shown); err != nil {
			t.Error(err)
		}
		w.stop()
		w.do(func() { w.history = nil })
		w.start()
		w.wait(time.Hour)
		w.took()
	})
}

// TestStats counts what is not in its desired state.
func TestStats(t *testing.T) {
	bubble(t, 6, func(w *world) {
		w.set.Ensure = func(context.Context, string, string) error { return reconcile.Terminal(errDown) }
		w.desired["t00"], w.desired["t01"], w.desired["t02"] = gone, "2", "2"
		w.desired["t06"] = "1"
		delete(w.desired, "t05")
		w.set.InSync = func(desired, _ string) bool { return desired != "2" || panics() } // which means out of sync
		w.desired["t07"], w.desired["t08"] = "a panic", "a Goexit"                        // are neither ensured nor deleted
		w.set.Absent = func(desired string) bool {
			switch desired {
			case "a panic":
				panics()
			case "a Goexit":
				runtime.Goexit()
			}
			return desired == gone
		}
		if got := w.set.Stats(); got != (keep.Stats{}) {
			t.Errorf("before Run, Stats are %+v", got)
		}
		w.answer(downAt(w, 0))
		w.start()
		w.wait(500 * time.Millisecond)
		if got, want := w.set.Stats(), (keep.Stats{Actual: 6}); got != want { // nothing is surplus yet
			t.Errorf("before Desired was listed, Stats are %+v, want %+v", got, want)
		}
		w.wait(time.Second)
		began := w.begun.Add(time.Second)
		want := keep.Stats{Desired: 8, Actual: 6, Missing: 1, OutOfSync: 2, Surplus: 2, Completed: began}
		if got := w.set.Stats(); got != want {
			t.Errorf("Stats are %+v, want %+v", got, want)
		}
		w.answer(down)
		w.wait(time.Minute)
		if got := w.set.Stats(); got != want {
			t.Errorf("after a listing that failed, Stats are %+v, want %+v", got, want)
		}
		w.do(func() { delete(w.desired, "t01") })
		w.answer(nil)
		w.wait(time.Minute)
		if got := w.set.Stats(); got.OutOfSync != 1 || got.Surplus != 3 {
			t.Errorf("when a thing becomes surplus, Stats are %+v, want it counted as that alone", got)
		}
	})
}

// TestMaxDeleted is rounded up, and never lets all things go unless it is 1.
func TestMaxDeleted(t *testing.T) {
	for _, c := range []struct {
		n, lack int
		part    float64
		want    bool
	}{
		{1, 1, 0, false},
		{2, 1, 0, true},
		{2, 2, 0, false},
		{10, 1, 0, true},
		{10, 2, 0, false},
		{11, 2, 0, true},
		{25, 7, 0.28, true},
		{25, 8, 0.28, false},
		{3, 1, 1e-9, true},
		{10, 9, 0.9, true},
		{10, 10, 0.99, false},
		{10, 10, 1, true},
		{1, 1, 1, true},
	} {
		bubble(t, c.n, func(w *world) {
			w.set.MaxDeleted = c.part
			w.answer(lacks(c.lack))
			p, err := w.set.Plan(w.t.Context())
			if got := p.Rejected == nil; err != nil || got != c.want || len(p.Delete) > 0 != c.want {
				t.Errorf("MaxDeleted %v: %d of %d is accepted: %v, %v, want %v", c.part, c.lack, c.n, got, err, c.want)
			}
		})
	}
}

// TestChangesAreEvents, also to an item that waits, and everything else is offered.
func TestChangesAreEvents(t *testing.T) {
	bubble(t, 3, func(w *world) {
		ensure := w.set.Ensure
		w.set.Ensure = func(ctx context.Context, key, desired string) error {
			return errors.Join(ensure(ctx, key, desired), reconcile.RequeueWithin(12*time.Hour))
		}
		w.start()
		w.wait(time.Second)
		w.do(func() { w.desired["t00"], w.desired["t01"] = "2", "2" })
		w.wait(time.Minute)
		w.took("1m0s +t00", "1m0s +t01")
		w.do(func() { w.actual["t00"] = "drifted"; w.desired["t01"] = "3" })
		w.wait(time.Minute)
		w.took("2m0s +t01") // and t00 waits
		w.do(func() { delete(w.desired, "t00"); delete(w.actual, "t00") })
		w.wait(time.Minute)
		if w.queue.Has("t00") {
			t.Error("the item of a thing that left Desired waits on")
		}
	})
}

// TestChangesBetweenRunsAreEvents, for items that wait in the same queue.
func TestChangesBetweenRunsAreEvents(t *testing.T) {
	bubble(t, 3, func(w *world) {
		ensure := w.set.Ensure
		w.set.Ensure = func(ctx context.Context, key, desired string) error {
			return errors.Join(ensure(ctx, key, desired), reconcile.RequeueWithin(24*time.Hour))
		}
		w.start()
		w.wait(time.Second)
		w.do(func() { w.desired["t00"], w.desired["t01"], w.desired["t02"] = "2", "2", "2" })
		w.wait(time.Minute)
		w.stop()
		w.took("1m0s +t00", "1m0s +t01", "1m0s +t02")
		w.do(func() { w.desired["t00"] = "3"; delete(w.desired, "t01"); delete(w.actual, "t01") })
		w.answer(downAt(w, time.Minute+time.Second))
		w.runAgain()
		w.wait(2 * time.Second)
		w.took("1m2s +t00")
		if w.queue.Has("t01") || w.queue.State("t02").Phase != reconcile.PhaseWaiting {
			t.Errorf("the item of a thing that left is known: %v, and that of one that did not change %+v", w.queue.Has("t01"), w.queue.State("t02"))
		}
	})
}

// TestThingThatStaysOutOfSync is ensured after 1, 2, 4, 8, 12 … listings that show the same.
func TestThingThatStaysOutOfSync(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.set.Resync = -1
		w.set.Ensure = func(_ context.Context, key, _ string) error {
			w.do(func() { w.changed("=", key) })
			return nil
		}
		w.do(func() { w.actual["t00"] = "0"; delete(w.actual, "t01") })
		w.start()
		w.wait(9*time.Minute + time.Second)
		w.took("0s =t00", "0s =t01", "1m0s =t00", "1m0s =t01", "3m0s =t00", "3m0s =t01", "7m0s =t00", "7m0s =t01")
		w.do(func() { w.actual["t00"] = "00" })
		w.answerActual(downAt(w, 12*time.Minute))
		w.wait(4*time.Minute + time.Second)
		w.took("10m0s =t00", "11m0s =t00", "11m0s =t01", "13m1s =t00") // the listing that failed does not count
		w.do(func() { w.actual["t02"] = "" })
		w.wait(2 * time.Minute)
		w.do(func() { delete(w.actual, "t02"); w.history = nil })
		w.wait(time.Minute)
		w.took("16m1s =t02") // it does not exist any more, and its value is zero as before
	})
}

// TestWithoutInSync ensures what is new or has changed, on either side.
func TestWithoutInSync(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.InSync = nil
		w.set.Resync = -1
		w.start()
		w.wait(time.Hour)
		if w.ensured != 20 {
			t.Errorf("%d things were ensured in an hour, want each once", w.ensured)
		}
		w.do(func() { w.actual["t03"] = "broken"; w.desired["t04"] = "2" })
		w.wait(time.Minute)
		w.took("1h1m0s +t03", "1h1m0s +t04")
		p, err := w.set.Plan(w.t.Context())
		if got := changes(p); err != nil || got != "~ t03\n~ t04\n" { // they have changed since the last listing
			t.Errorf("the plan is %q, %v", got, err)
		}
	})
}

// TestFailureWithoutInSync ensures again what was not ensured, and dropped by the queue,
// although neither of its values has changed since.
func TestFailureWithoutInSync(t *testing.T) {
	slow := func(w *world) {
		w.existing = func(_ context.Context, all map[string]string) (map[string]string, error) {
			time.Sleep(30 * time.Second)
			return all, nil
		}
	}
	for name, c := range map[string]struct {
		fail func(w *world)
		want string
	}{
		"Ensure fails":  {func(w *world) { w.ensures = func() error { return errDown } }, "18m0s +t04"},
		"Ensure panics": {func(w *world) { w.ensures = func() error { panic(errDown) } }, "18m0s +t04"},
		"Lookup fails":  {func(w *world) { w.lookupErr = errDown }, "18m0s +t04"},
		"Lookup does not know it yet": {func(w *world) {
			delete(w.desired, "t04")
			w.listed = func(_ context.Context, all map[string]string) (map[string]string, error) {
				all["t04"] = "2"
				return all, nil
			}
		}, "15m1s +t04"},
		"during a listing": {func(w *world) {
			slow(w)
			w.ensures = func() error { time.Sleep(40 * time.Second); return errDown }
		}, "15m30s +t04"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 20, func(w *world) {
				w.set.InSync = nil
				w.set.Resync = -1
				w.retry = reconcile.NoRetry
				w.withLookup()
				w.start()
				w.wait(10 * time.Minute)
				w.do(func() { w.desired["t04"] = "2"; c.fail(w) })
				w.wait(5*time.Minute - time.Second)
				w.took()
				w.do(func() { w.ensures, w.lookupErr, w.listed, w.desired["t04"] = nil, nil, nil, "2" })
				w.wait(4 * time.Minute)
				w.took(c.want)
				w.wait(time.Hour)
				if w.ensured != 22 { // each once, and t04 after the change of each of its values
					t.Errorf("things were ensured %d times, want 22", w.ensured)
				}
			})
		})
	}
}

// TestUnknownKeysAreNotKept while no listing begins, as after Apply or Run.
func TestUnknownKeysAreNotKept(t *testing.T) {
	type key struct{ p *[64]byte }
	none := func(context.Context) (map[key]int, error) { return nil, nil }
	change := func(context.Context, key, int) error { return errDown }
	set := &keep.Set[key, int, int]{Desired: none, Actual: none, Ensure: change, Delete: change}
	if err := set.Apply(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	unknown := new([64]byte)
	kept := weak.Make(unknown)
	if err := set.Reconcile(t.Context(), key{unknown}); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if kept.Value() != nil {
		t.Error("the Set keeps a key that no listing had")
	}
	runtime.KeepAlive(set)
}

// TestRejectedIsNotOutOfSync counts things that are only surplus as surplus, also without an
// InSync and if Lookup does not have them either.
func TestRejectedIsNotOutOfSync(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.set.InSync = nil
		w.set.Resync = -1
		w.withLookup()
		w.start()
		w.wait(10 * time.Minute)
		w.do(func() { maps.DeleteFunc(w.desired, func(key, _ string) bool { return key < "t05" }) })
		w.wait(5 * time.Minute)
		if s := w.set.Stats(); s.Rejected != 5 || s.Surplus != 5 || s.OutOfSync != 0 {
			t.Errorf("%+v, want 5 rejected, and none out of sync", s)
		}
	})
}

// TestDriftDuringARun is corrected by the next run, also without an InSync, although the
// listing that shows it comes while the run is in flight.
func TestDriftDuringARun(t *testing.T) {
	for _, inSync := range []func(string, string) bool{nil, func(desired, actual string) bool { return desired == actual }} {
		bubble(t, 20, func(w *world) {
			w.set.InSync = inSync
			w.set.Resync = -1
			ensure := w.set.Ensure
			w.set.Ensure = func(ctx context.Context, key, desired string) error {
				err := ensure(ctx, key, desired)
				if desired == "2" {
					time.Sleep(100 * time.Second) // it waits until the thing is healthy
				}
				return err
			}
			w.start()
			w.wait(time.Second)
			w.do(func() { w.desired["t00"] = "2" })
			w.wait(90 * time.Second)
			w.do(func() { w.actual["t00"] = "drifted" })
			w.wait(30 * time.Second) // and listed
			if state := w.queue.State("t00"); state.Phase != reconcile.PhaseInFlight || state.Again {
				t.Errorf("when the drift is listed, the item is %+v, want it in flight", state)
			}
			w.wait(time.Minute)
			w.took("1m0s +t00", "3m0s +t00")
			w.wait(10 * time.Minute)
			w.do(func() {
				if w.ensured > 24 { // each once, t00 twice, and as often because of its own changes
					t.Errorf("%d things were ensured", w.ensured)
				}
			})
		})
	}
}

// TestResync ensures each thing in sync once in the interval, at the same times in each
// process.
func TestResync(t *testing.T) {
	var times [2]string
	for i := range times {
		bubble(t, 100, func(w *world) {
			ensure := w.set.Ensure
			w.set.Ensure = func(ctx context.Context, key, desired string) error {
				w.do(func() { w.changed("=", key) })
				return ensure(ctx, key, desired)
			}
			w.start()
			w.wait(time.Minute)
			w.do(func() { w.history = nil })
			w.wait(time.Hour)
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.ensured < 100 || w.ensured > 104 { // and the share of the first minute
				t.Errorf("%d of 100 things were ensured in an hour", w.ensured)
			}
			minutes := map[string]int{}
			for _, line := range w.history {
				at, _, _ := strings.Cut(line, " ")
				minutes[at]++
			}
			if len(minutes) < 40 {
				t.Errorf("they are spread over %d minutes", len(minutes))
			}
			slices.Sort(w.history)
			times[i] = strings.Join(w.history, "\n")
		})
	}
	if times[0] != times[1] {
		t.Errorf("two processes have other times:\n%s\n\n%s", times[0], times[1])
	}
}

// TestJitter lists at other instants of the minute.
func TestJitter(t *testing.T) {
	bubble(t, 1, func(w *world) {
		instants := map[time.Duration]bool{}
		w.set.Jitter = 0.5
		w.answer(func(all map[string]string) (map[string]string, error) {
			instants[time.Since(w.begun)%time.Minute] = true
			return all, nil
		})
		w.start()
		w.wait(time.Hour)
		if len(instants) < 20 {
			t.Errorf("listings began at %d instants of a minute", len(instants))
		}
	})
}

// TestLog logs a rejection, and panics, when they have come twice as often in a row.
func TestLog(t *testing.T) {
	bubble(t, 2, func(w *world) {
		var text bytes.Buffer // of a single goroutine
		var bad atomic.Bool
		w.set.Logger = slog.New(slog.NewTextHandler(&text, nil))
		w.set.Name = "things"
		w.set.InSync = func(string, string) bool { return !bad.Load() || panics() }
		bad.Store(true)
		w.start()
		w.wait(9*time.Minute + time.Second) // 10 listings: 1, 2, 4 and 8
		bad.Store(false)
		w.wait(time.Minute)
		bad.Store(true)
		w.wait(time.Minute) // 1
		bad.Store(false)
		w.answer(empty)
		w.wait(4 * time.Minute) // 4 listings: 1, 2 and 4
		w.answer(down)
		w.wait(10 * time.Minute)
		w.stop()
		for line, want := range map[string]int{
			`"panic while comparing the listings" set=things `: 5,
			`err="keep: Set.Absent or Set.InSync of t0`:        5,
			` keys=2 `: 5,
			`level=ERROR msg="listings rejected, nothing that is newly surplus is deleted" set=things err="keep: too many things would be deleted at once: 2, first [`: 3,
		} {
			if got := strings.Count(text.String(), line); got != want {
				t.Errorf("%s is logged %d times, want %d:\n%s", line, got, want, &text)
			}
		}
	})
}

// A refuser is a queue that panics for some keys, and calls Goexit for the last.
type refuser struct {
	*reconcile.Queue[string]
	from, to string
}

func (q refuser) Enqueue(key string) {
	switch {
	case key == q.to:
		runtime.Goexit()
	case key >= q.from && key < q.to:
		panic("no " + key)
	}
	q.Queue.Enqueue(key)
}

// TestPanicOfTheQueue keeps no other key from it, and costs one line, because the text of
// all would take minutes with 100,000 keys.
func TestPanicOfTheQueue(t *testing.T) {
	bubble(t, 1000, func(w *world) {
		text := w.logs()
		q := refuser{reconcile.NewQueue[string](), "t01", "t998"}
		w.set.Queue = q
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute+time.Second/2)
		defer cancel()
		time.AfterFunc(time.Second, func() {
			w.answer(func(all map[string]string) (map[string]string, error) {
				for key := range all {
					all[key] = "2"
				}
				return all, nil
			})
		})
		if err := w.set.Run(ctx); err != nil {
			t.Error(err)
		}
		for _, key := range []string{"t00", "t01", "t999"} { // t01 is offered
			if q.State(key).Phase != reconcile.PhaseReady {
				t.Errorf("%s is not ready", key)
			}
		}
		if !strings.Contains(text.String(), "Set.Queue: enqueuing t01: panic: no t01") || text.Len() > 5000 {
			t.Errorf("%d bytes are logged, want one line:\n%.5000s", text.Len(), text)
		}
	})
}

// TestMapsAreCopied changes a map after it was returned.
func TestMapsAreCopied(t *testing.T) {
	bubble(t, 5, func(w *world) {
		var returned []map[string]string
		remember := func(all map[string]string) (map[string]string, error) {
			returned = append(returned, all)
			return all, nil
		}
		w.answer(remember)
		w.answerActual(remember)
		w.start()
		for range 10 {
			w.wait(time.Minute)
			for _, all := range returned {
				clear(all)
			}
			w.queue.Enqueue("t00")
		}
		w.took()
	})
}

// TestListingsHaveTenPeriods each, and end the context then.
func TestListingsHaveTenPeriods(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var took []time.Duration
		hang := func(ctx context.Context, _ map[string]string) (map[string]string, error) {
			begun := time.Now()
			<-ctx.Done()
			took = append(took, time.Since(begun))
			return nil, nil
		}
		w.existing, w.listed = hang, hang
		w.start()
		w.wait(21 * time.Minute)
		if len(took) != 2 || took[0] != 10*time.Minute || took[1] != 10*time.Minute {
			t.Errorf("the listings took %v, want 10m each", took)
		}
	})
}

// A badHandler is a log handler that panics, or calls Goexit.
type badHandler struct {
	slog.Handler
	fault func()
}

func (h badHandler) Handle(context.Context, slog.Record) error { h.fault(); return nil }

// TestLoggerThatFails costs no more than the line.
func TestLoggerThatFails(t *testing.T) {
	for _, fault := range []func(){func() { panics() }, runtime.Goexit} {
		bubble(t, 5, func(w *world) {
			logger := w.set.Logger
			w.set.Logger = slog.New(badHandler{logger.Handler(), fault})
			w.answer(lacks(3)) // is rejected, which is logged
			w.do(func() { delete(w.actual, "t00") })
			if p, err := w.set.Plan(w.t.Context()); err != nil || p.Rejected == nil {
				t.Errorf("Plan returned %v, %v", p, err)
			}
			w.start()
			w.wait(time.Second)
			w.took("0s +t00")
			if _, err := w.set.Rejected(); err == nil {
				t.Error("Rejected returned nil")
			}
		})
	}
}

// TestChecks names the field that is wrong.
func TestChecks(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		want string
		set  func(s *set)
	}{
		{"Set.Reconciler is set, want nil beside a Queue", func(s *set) { s.Reconciler = &reconcile.Reconciler[string]{} }},
		{"Set.Reconciler.Reconcile is set", func(s *set) {
			s.Queue, s.Reconciler = nil, &reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error { return nil }}
		}},
		{"Set.Reconciler.Queue is a struct { reconcile.Dequeuer[string] }, want a *reconcile.Queue", func(s *set) {
			s.Queue, s.Reconciler = nil, &reconcile.Reconciler[string]{Queue: struct{ reconcile.Dequeuer[string] }{}}
		}},
		{"Set.Reconciler: reconcile: Reconciler.Workers is -1", func(s *set) { s.Queue, s.Reconciler = nil, &reconcile.Reconciler[string]{Workers: -1} }},
		{"Set.Queue: reconcile: Poller.Queue", func(s *set) { s.Queue = (*reconcile.Queue[string])(nil) }},
		{"Set.Desired is nil", func(s *set) { s.Desired = nil }},
		{"Set.Actual is nil", func(s *set) { s.Actual = nil }},
		{"Set.Ensure is nil", func(s *set) { s.Ensure = nil }},
		{"Set.Delete is nil", func(s *set) { s.Delete = nil }},
		{"Set.Period is 0s", func(s *set) { s.Period = 0 }},
		{"Set.Period is -1ns", func(s *set) { s.Period = -1 }},
		{"Set.Period is 30ns, want at least 1ms: was a unit forgotten?", func(s *set) { s.Period = 30 }},
		{"Set.Period is 2562047h47m16.854775807s", func(s *set) { s.Period = math.MaxInt64 }},
		{"Set.Jitter is NaN", func(s *set) { s.Jitter = math.NaN() }},
		{"Set.MaxDeleted is 1.1", func(s *set) { s.MaxDeleted = 1.1 }},
		{"Set.MaxDeleted is NaN", func(s *set) { s.MaxDeleted = math.NaN() }},
		{"Set.DeleteAfter is 5ns", func(s *set) { s.DeleteAfter = 5 }},
		{"Set.Resync is 5ns", func(s *set) { s.Resync = 5 }},
		{`Set.Absent is not false for the zero value "": `, func(s *set) { s.Absent = func(d string) bool { return d != "1" } }},
		{`Set.Absent is not false for the zero value "": one fault in decoding would delete everything (panic: a fault)`, func(s *set) { s.Absent = func(string) bool { return panics() } }},
	} {
		w := newWorld(t, 1)
		w.set.Queue = reconcile.NewQueue[string]()
		c.set(w.set)
		_, plan := w.set.Plan(ended)
		for name, err := range map[string]error{"Run": w.set.Run(ended), "Plan": plan, "Apply": w.set.Apply(ended, nil)} {
			if name != "Run" && (strings.HasPrefix(c.want, "Set.Queue") || strings.HasPrefix(c.want, "Set.Reconciler") || c.want == "Set.Period is 0s") {
				continue // they need none
			}
			if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "keep: "+c.want) {
				t.Errorf("%s returned %v, want %q, and a terminal error", name, err, c.want)
			}
		}
	}
	w := newWorld(t, 1)
	w.set.Queue = reconcile.NewQueue[string]()
	w.set.Period, w.set.Resync, w.set.DeleteAfter, w.set.Jitter, w.set.MaxDeleted = time.Millisecond, time.Millisecond, time.Millisecond, 1, 1
	if err := w.set.Run(ended); err != nil {
		t.Errorf("Run returned %v for values at the edge", err)
	}
	w.set.Jitter = -0.1
	if err := w.set.Run(ended); err == nil || !strings.Contains(err.Error(), "Set.Jitter is -0.1") {
		t.Errorf("Run returned %v for a negative Jitter", err)
	}
	type pointer *struct{ Present bool }
	list := func(context.Context) (map[float64]pointer, error) {
		return map[float64]pointer{math.NaN(): nil}, nil
	}
	s := &keep.Set[float64, pointer, pointer]{
		Desired: list, Actual: list,
		Ensure: func(context.Context, float64, pointer) error { return nil },
		Delete: func(context.Context, float64, pointer) error { return nil },
		Absent: func(d pointer) bool { return d != nil && !d.Present },
	}
	if _, err := s.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "Set.Absent is not false for the zero value &struct") {
		t.Errorf("Plan returned %v for an Absent that is true for a pointer to a zero value", err)
	}
	if err := planOf(func(d map[string]string) bool { return d != nil && len(d) == 0 }); err == nil || !strings.Contains(err.Error(), "zero value map[string]string{}") {
		t.Errorf("Plan returned %v for an Absent that is true for an empty map", err)
	}
	if err := planOf(func(d []string) bool { return d != nil && len(d) == 0 }); err == nil || !strings.Contains(err.Error(), "zero value []string{}") {
		t.Errorf("Plan returned %v for an Absent that is true for an empty slice", err)
	}
	if err := planOf(func(int) bool { runtime.Goexit(); return false }); err == nil || !strings.Contains(err.Error(), "zero value 0: ") {
		t.Errorf("Plan returned %v for an Absent that calls Goexit", err)
	}
	s.Absent = nil
	if _, err := s.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "Set.Actual: the key NaN is not equal to itself") {
		t.Errorf("Plan returned %v for a NaN", err)
	}
}

// planOf returns the error of the Plan of an empty Set with this Absent.
func planOf[D any](absent func(D) bool) error {
	list := func(context.Context) (map[string]D, error) { return nil, nil }
	do := func(context.Context, string, D) error { return nil }
	_, err := (&keep.Set[string, D, D]{Desired: list, Actual: list, Ensure: do, Delete: do, Absent: absent}).Plan(context.Background())
	return err
}

// TestEventBesideTheFirstListing is never taken for one of a thing that is not desired.
func TestEventBesideTheFirstListing(t *testing.T) {
	for range 5000 {
		bubble(t, 1, func(w *world) {
			w.actual = map[string]string{}
			w.start()
			err := w.queue.EnqueueAndWait(w.t.Context(), "t00")
			w.do(func() {
				if err != nil || w.ensured == 0 {
					t.Errorf("EnqueueAndWait returned %v after %d calls of Ensure, want one", err, w.ensured)
				}
			})
		})
		if t.Failed() {
			return
		}
	}
}
