// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func wantRefs(t *testing.T, r *reconcile.Refs[string, int], dep string, want ...int) {
	t.Helper()
	if got := slices.Sorted(r.Of(dep)); !slices.Equal(got, want) {
		t.Errorf("Of(%s) = %v, want %v", dep, got, want)
	}
}

// held counts what the maps of a Refs hold.
func held(r any) (n int) {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Map {
			n += f.Len()
		}
	}
	return n
}

func TestRefsZeroValueIsEmptyAndReady(t *testing.T) {
	var r reconcile.Refs[string, int]
	wantRefs(t, &r, "a")
	r.Set(1)
	r.Set(1, "a")
	wantRefs(t, &r, "a", 1)
}

func TestRefsSetReplacesTheDependenciesOfAnItem(t *testing.T) {
	var r reconcile.Refs[string, int]
	r.Set(1, "a", "b")
	r.Set(2, "b", "c")
	wantRefs(t, &r, "a", 1)
	wantRefs(t, &r, "b", 1, 2)
	wantRefs(t, &r, "c", 2)
	r.Set(1, "c", "d")
	wantRefs(t, &r, "a")
	wantRefs(t, &r, "b", 2)
	wantRefs(t, &r, "c", 1, 2)
	wantRefs(t, &r, "d", 1)
	r.Set(1, "d", "c") // the same
	wantRefs(t, &r, "c", 1, 2)
	wantRefs(t, &r, "d", 1)
}

func TestRefsSetWithoutDependenciesRemovesTheItem(t *testing.T) {
	var r reconcile.Refs[string, int]
	r.Set(1, "a", "b")
	r.Set(2, "b")
	r.Set(1)
	r.Set(1) // again
	r.Set(3) // never had any
	wantRefs(t, &r, "a")
	wantRefs(t, &r, "b", 2)
}

func TestRefsTakesDuplicatesOnce(t *testing.T) {
	var r reconcile.Refs[string, int]
	r.Set(1, "a", "a", "b", "a")
	wantRefs(t, &r, "a", 1)
	r.Set(1, "b", "b")
	wantRefs(t, &r, "a")
	wantRefs(t, &r, "b", 1)
}

func TestRefsKeepsNothingOfTheCallers(t *testing.T) {
	var r reconcile.Refs[string, int]
	deps := []string{"a", "b"}
	r.Set(1, deps...)
	clear(deps)
	r.Set(1, "c")
	wantRefs(t, &r, "a")
	wantRefs(t, &r, "b")
	wantRefs(t, &r, "c", 1)
}

func TestRefsLeaksNothing(t *testing.T) {
	var r reconcile.Refs[int, int]
	random := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		deps := make([]int, random.IntN(5))
		for i := range deps {
			deps[i] = random.IntN(50)
		}
		r.Set(random.IntN(50), deps...)
	}
	if held(&r) == 0 {
		t.Fatal("the maps of a full Refs are not found")
	}
	for item := range 50 {
		r.Set(item)
	}
	if n := held(&r); n != 0 {
		t.Errorf("a Refs without items holds %d entries", n)
	}
}

func TestRefsOfIsASnapshotOfWhenTheLoopBegan(t *testing.T) {
	var r reconcile.Refs[string, int]
	for i := range 5 {
		r.Set(i, "a")
	}
	seq := r.Of("a")
	r.Set(5, "a") // before the loop begins
	var got []int
	for item := range seq {
		got = append(got, item)
		r.Set(item, "b") // inside
		r.Set(100+item, "a")
	}
	slices.Sort(got)
	if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("loop saw %v, want %v", got, want)
	}
	wantRefs(t, &r, "a", 100, 101, 102, 103, 104, 105)
	wantRefs(t, &r, "b", 0, 1, 2, 3, 4, 5)
	for range seq {
		break // leaving early is fine
	}
}

func TestRefsDoesWhatItsModelDoes(t *testing.T) {
	var r reconcile.Refs[int, int]
	model := make(map[int][]int) // dependencies by item
	random := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		item := random.IntN(6)
		deps := make([]int, random.IntN(4))
		for i := range deps {
			deps[i] = random.IntN(6)
		}
		r.Set(item, deps...)
		model[item] = deps
		for dep := range 6 {
			var want []int
			for item, deps := range model {
				if slices.Contains(deps, dep) {
					want = append(want, item)
				}
			}
			slices.Sort(want)
			if got := slices.Sorted(r.Of(dep)); !slices.Equal(got, want) {
				t.Fatalf("Of(%d) = %v, want %v of %v", dep, got, want, model)
			}
		}
	}
}

func TestRefsIsForManyGoroutines(t *testing.T) {
	var r reconcile.Refs[int, int]
	var all sync.WaitGroup
	for item := range 8 {
		all.Go(func() {
			for i := range 500 {
				r.Set(item, i%3, i%5, item)
				for range r.Of(i % 5) {
				}
			}
			r.Set(item, 0, item)
		})
	}
	all.Wait()
	if got, want := slices.Sorted(r.Of(0)), slices.Collect(seqTo(8)); !slices.Equal(got, want) {
		t.Errorf("Of(0) = %v, want %v", got, want)
	}
	if got := slices.Sorted(r.Of(7)); !slices.Equal(got, []int{7}) {
		t.Errorf("Of(7) = %v, want 7 alone", got)
	}
}

// A bucket names its key as it is reconciled. A change of a key runs the buckets
// that use it, and those alone.
func TestRefsWithMapRunsWhatDependsOnAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var refs reconcile.Refs[string, string]
		j := newJournal()
		deps := map[string][]string{"b1": {"k1"}, "b2": {"k1", "k2"}, "b3": nil}
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				j.note("%s", item)
				refs.Set(item, deps[item]...)
				return nil
			},
		})
		keys := reconcile.Map(q, refs.Of)
		for _, b := range []string{"b1", "b2", "b3"} {
			q.Enqueue(b)
		}
		time.Sleep(time.Second)
		keys.Enqueue("k1")
		time.Sleep(time.Second)
		keys.EnqueueAfter("k2", time.Minute)
		keys.Enqueue("k3") // nobody needs it
		time.Sleep(time.Hour)
		j.mustHold(t, "0s b1", "0s b2", "0s b3", "1s b1", "1s b2", "1m2s b2")
		run.end()
	})
}
