// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/keep"
)

// TestBadDaysDeleteNothing plays days on which the desired things of a set do not change,
// and a source or the process has a fault.
func TestBadDaysDeleteNothing(t *testing.T) {
	const day = time.Hour
	for _, c := range []struct {
		name string
		play func(w *world)
	}{
		{"the source is empty across a restart", func(w *world) {
			w.start()
			w.wait(time.Hour)
			w.answer(empty)
			w.wait(time.Hour)
			w.restart()
			w.wait(day)
		}},
		{"the source lacks a thing around a restart, for four minutes each", func(w *world) {
			w.start()
			w.wait(time.Hour)
			w.answer(lacks(1))
			w.wait(4 * time.Minute)
			w.restart()
			w.wait(4 * time.Minute)
			w.answer(nil)
			w.wait(day)
		}},
		{"pages are read until the context ends, and the part is returned without an error", func(w *world) {
			w.start()
			w.wait(time.Hour)
			w.do(func() {
				w.listed = func(ctx context.Context, all map[string]string) (map[string]string, error) {
					<-ctx.Done()
					return lacks(1)(all)
				}
			})
			w.wait(day)
		}},
		{"listings that say Absent, each with a listing that fails between", func(w *world) {
			n := 0
			w.answer(func(all map[string]string) (map[string]string, error) {
				if n++; n%2 == 0 {
					return nil, errDown
				}
				return marked(all), nil
			})
			w.start()
			w.wait(day)
		}},
		{"a source says Absent for 25 seconds, and Trigger lists it all the time", func(w *world) {
			w.start()
			w.wait(30 * time.Second)
			w.answer(func(all map[string]string) (map[string]string, error) { return marked(all), nil })
			for range 25 {
				w.set.Trigger()
				w.wait(time.Second)
			}
			w.answer(nil)
			w.wait(day)
		}},
		{"what is Absent leaves Desired before the deletion ends", func(w *world) {
			w.do(func() { w.deletes = func(string) error { return errDown } })
			w.answer(func(all map[string]string) (map[string]string, error) { return marked(all), nil })
			w.start()
			w.wait(10 * time.Minute)
			w.answer(empty)
			w.wait(2 * time.Minute)
			w.do(func() { w.deletes = nil })
			w.wait(day)
		}},
	} {
		for _, n := range []int{1, 2, 3, 4, 5, 10, 100} {
			for _, lookup := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/lookup=%v", c.name, n, lookup), func(t *testing.T) {
					bubble(t, n, func(w *world) {
						if lookup {
							w.withLookup()
						}
						c.play(w)
						if got := w.deleted(); got != 0 {
							t.Errorf("%d of %d things were deleted, want none", got, n)
						}
					})
				})
			}
		}
	}
}

func panics() bool { panic("a fault") }

// marked marks all values as gone.
func marked(all map[string]string) map[string]string {
	for key := range all {
		all[key] = gone
	}
	return all
}

// TestAbsentScalesDown deletes what Desired has as Absent, however much it is.
func TestAbsentScalesDown(t *testing.T) {
	for _, c := range []struct{ from, to int }{{20, 15}, {20, 0}, {100, 0}, {1, 0}, {2, 1}} {
		for _, lookup := range []bool{false, true} {
			bubble(t, c.from, func(w *world) {
				if lookup {
					w.withLookup()
				}
				w.start()
				w.wait(10*time.Minute - time.Second)
				w.do(func() {
					for key := range w.desired {
						if _, ok := things(c.to)[key]; !ok {
							w.desired[key] = gone
						}
					}
				})
				w.wait(time.Minute)
				w.took()
				w.wait(time.Minute) // the second listing
				if got := w.deleted(); got != c.from-c.to {
					t.Errorf("%d to %d, Lookup %v: %d things are deleted after two listings", c.from, c.to, lookup, got)
				}
				if _, err := w.set.Rejected(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDeletionsTakeTheirTime plays deletions that are slow, or are refused.
func TestDeletionsTakeTheirTime(t *testing.T) {
	bubble(t, 20, func(w *world) {
		w.start()
		w.wait(time.Second)
		w.do(func() {
			w.deletes = func(string) error { time.Sleep(10 * time.Minute); return nil }
			delete(w.desired, "t00")
			delete(w.desired, "t01")
		})
		w.wait(time.Minute) // accepted
		w.do(func() { delete(w.desired, "t02") })
		w.wait(time.Hour)
		w.took("16m0s -t00", "16m0s -t01", "17m0s -t02")

		w.do(func() {
			w.deletes = func(string) error { return errors.New("in use") }
			delete(w.desired, "t03")
		})
		w.wait(24 * time.Hour)
		w.do(func() { w.deletes = nil })
		w.wait(5 * time.Minute)
		if got := w.deleted(); got != 1 {
			t.Errorf("%d things are deleted, want the one that was in use", got)
		}
	})
}

// TestKeysThatComeBack are desired again, and count as newly surplus the next time.
func TestKeysThatComeBack(t *testing.T) {
	bubble(t, 10, func(w *world) {
		w.start()
		w.wait(time.Second)
		for range 3 {
			w.do(func() { delete(w.desired, "t00") })
			w.wait(5 * time.Minute) // 4 minutes after the first listing that lacks it
			w.do(func() { w.desired["t00"] = "1" })
			w.wait(time.Minute)
		}
		w.took()
		w.do(func() { delete(w.desired, "t00") })
		w.wait(6 * time.Minute)
		w.took("24m0s -t00")
		w.do(func() { w.desired["t00"] = "2" })
		w.wait(time.Minute)
		w.took("25m0s +t00")
		w.do(func() { delete(w.desired, "t00"); delete(w.desired, "t01") })
		w.wait(time.Hour)
		w.took()
		if _, err := w.set.Rejected(); !errors.Is(err, keep.ErrTooMany) {
			t.Errorf("Rejected is %v, want ErrTooMany", err)
		}
	})
}
