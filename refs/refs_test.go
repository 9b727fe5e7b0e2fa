// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package refs_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/refs"
)

// panics returns what f panics with, and "" if it does not.
func panics(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// links counts the entries of the maps of a Refs.
func links(r any) (n int) {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Map {
			n += f.Len()
		}
	}
	return n
}

// Also if dependencies come twice, and nothing stays of an item without any.
func TestRefsAgreesWithItsModel(t *testing.T) {
	var r refs.Refs[int, int]
	model := make(map[int][]int) // dependencies by item
	var order []int              // of the items, the one that was set last at the end
	random := rand.New(rand.NewPCG(5, 6))
	deps := make([]int, 0, 4)
	for range 5000 {
		item := random.IntN(6)
		deps = deps[:random.IntN(4)] // the same slice: Refs keeps nothing of it
		for i := range deps {
			deps[i] = random.IntN(6)
		}
		r.Set(item, deps...)
		model[item] = slices.Clone(deps)
		order = append(slices.DeleteFunc(order, func(o int) bool { return o == item }), item)
		for dep := range 6 {
			var want []int
			for _, item := range order {
				if slices.Contains(model[item], dep) {
					want = append(want, item)
				}
			}
			if got := slices.Collect(r.Of(dep)); !slices.Equal(got, want) {
				t.Fatalf("Of(%d) = %v, want %v of %v", dep, got, want, model)
			}
		}
	}
	if links(&r) == 0 {
		t.Fatal("the maps of a full Refs are not found")
	}
	for item := range model {
		r.Set(item)
	}
	if n := links(&r); n != 0 {
		t.Errorf("a Refs without items has %d entries", n)
	}
}

// A dependency or an item that would never be found again is refused, and nothing
// changes.
func TestRefsPanicsForKeysThatAreNotEqualToThemselves(t *testing.T) {
	var r refs.Refs[any, any]
	r.Set("a", "before")
	for _, c := range []struct {
		item any
		deps []any
		want string
	}{
		{"a", []any{"good", []int{1}}, "refs: Set: the dependency [1] is a []int, which cannot be compared"},
		{"a", []any{"good", math.NaN()}, "refs: Set: the dependency NaN is not equal to itself, and would never be found again"},
		{[]int{1}, []any{"good"}, "refs: Set: the item [1] is a []int, which cannot be compared"},
		{math.NaN(), []any{"good"}, "refs: Set: the item NaN is not equal to itself, and would never be found again"},
	} {
		if got := panics(func() { r.Set(c.item, c.deps...) }); got != c.want {
			t.Errorf("Set(%v, %v) panics with %q, want %q", c.item, c.deps, got, c.want)
		}
		if got := slices.Collect(r.Of("before")); !slices.Equal(got, []any{"a"}) || len(slices.Collect(r.Of("good"))) > 0 {
			t.Errorf("after Set(%v, %v): %v, want what was before", c.item, c.deps, got)
		}
	}
	if panics(func() { _ = slices.Collect(r.Of([]int{1})) }) == "" {
		t.Error("Of a dependency that cannot be compared does not panic")
	}
	r.Set("a", "after") // no lock is held
	if got := slices.Collect(r.Of("after")); len(got) != 1 {
		t.Errorf("the next Set: %v, want a", got)
	}
}

func TestRefsOfSeesASnapshot(t *testing.T) {
	var r refs.Refs[string, int]
	seq := r.Of("a")
	want := make([]int, 100)
	for i := range want {
		want[i] = i
		r.Set(i, "a")
	}
	for range seq {
		break // leaving early is fine
	}
	var got []int
	for item := range seq {
		got = append(got, item)
		r.Set(item, "b")
		r.Set(100+item, "a")
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || len(slices.Collect(seq)) != 100 {
		t.Errorf("the loop saw %v, want the 100 of its beginning, and then those of the loop", got)
	}
}

func TestRefsIsSafeForConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refs.Refs[int, int]
		var all sync.WaitGroup
		for item := range 8 {
			all.Go(func() {
				for i := range 500 {
					r.Set(item, i%3, i%5, item)
					for range r.Of(i % 5) {
					}
				}
				r.Set(item, 0, 10+item)
			})
		}
		all.Wait()
		for item := range 8 {
			if got := slices.Sorted(r.Of(0)); len(got) != 8 || !slices.Equal(slices.Collect(r.Of(10+item)), []int{item}) {
				t.Errorf("Of(0) = %v, want all; Of(%d) = %v, want %d alone", got, 10+item, slices.Collect(r.Of(10+item)), item)
			}
		}
	})
}

// A bucket names its key as it is reconciled. A change of a key runs the buckets
// that use it, and those alone: a key that a bucket does not use any more is none.
func TestRefsWithMapRunsDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var keys refs.Refs[string, string]
		j := record.New()
		deps := map[string][]string{"b1": {"k1"}, "b2": {"k1", "k2"}, "b3": nil}
		ctx, cancel := context.WithCancel(t.Context())
		r := &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				j.Note("%s", item)
				keys.Set(item, deps[item]...)
				deps["b1"] = nil // for its next run
				return nil
			},
		}
		go func() { _ = r.Run(ctx) }()
		events := reconcile.Map(q, keys.Of)
		for _, b := range []string{"b1", "b2", "b3"} {
			q.Enqueue(b)
		}
		for range 2 {
			time.Sleep(time.Second)
			events.Enqueue("k1")
		}
		time.Sleep(time.Second)
		events.EnqueueAfter("k2", time.Minute)
		events.Enqueue("k3") // nobody needs it
		time.Sleep(time.Hour)
		j.WantAll(t, "0s b1", "0s b2", "0s b3", "1s b1", "1s b2", "2s b2", "1m3s b2")
		cancel()
	})
}
