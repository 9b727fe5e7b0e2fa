// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

type listMap = reconcile.ListMap[string, int]

// listOf returns a map with one list under "k".
func listOf(items ...int) *listMap {
	l := reconcile.NewListMap[int]()
	l.AddItem("k", items...)
	return l
}

// values returns the list of a key.
func values(l *listMap, key string) (list []int) {
	for _, v := range l.Range(key) {
		list = append(list, v)
	}
	return list
}

func equals(want int) func(int) bool { return func(v int) bool { return v == want } }
func even(v int) bool                { return v%2 == 0 }
func always(int) bool                { return true }

// Each row does one thing to a map with 1, 2, 3 and 4 under "k" and 5 under "other".
func TestListMapTable(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(l *listMap) any
		returns any
		want    []int // of "k"; its key is gone if there are none
	}{
		"AddItem":                       {func(l *listMap) any { l.AddItem("k", 3, 1); return nil }, nil, []int{1, 2, 3, 4, 3, 1}},
		"AddItem of none":               {func(l *listMap) any { l.AddItem("new"); return l.KeySize("new") }, 0, []int{1, 2, 3, 4}},
		"ItemAt":                        {func(l *listMap) any { v, ok := l.ItemAt("k", 3); return []any{v, ok} }, []any{4, true}, []int{1, 2, 3, 4}},
		"ItemAt behind the end":         {func(l *listMap) any { v, ok := l.ItemAt("k", 4); return []any{v, ok} }, []any{0, false}, []int{1, 2, 3, 4}},
		"ItemAt below zero":             {func(l *listMap) any { v, ok := l.ItemAt("k", -1); return []any{v, ok} }, []any{0, false}, []int{1, 2, 3, 4}},
		"ItemAt of no key":              {func(l *listMap) any { v, ok := l.ItemAt("no", 0); return []any{v, ok} }, []any{0, false}, []int{1, 2, 3, 4}},
		"Range":                         {func(l *listMap) any { return maps.Collect(l.Range("k")) }, map[int]int{0: 1, 1: 2, 2: 3, 3: 4}, []int{1, 2, 3, 4}},
		"Range of no key":               {func(l *listMap) any { return len(values(l, "no")) }, 0, []int{1, 2, 3, 4}},
		"KeySize":                       {func(l *listMap) any { return []int{l.KeySize("k"), l.KeySize("no")} }, []int{4, 0}, []int{1, 2, 3, 4}},
		"RemoveItem of the first match": {func(l *listMap) any { return l.RemoveItem("k", even) }, true, []int{1, 3, 4}},
		"RemoveItem without match":      {func(l *listMap) any { return l.RemoveItem("k", equals(5)) }, false, []int{1, 2, 3, 4}},
		"RemoveItem of no key":          {func(l *listMap) any { return l.RemoveItem("no", always) }, false, []int{1, 2, 3, 4}},
		"RemoveItemAt the front":        {func(l *listMap) any { l.RemoveItemAt("k", 0); return nil }, nil, []int{2, 3, 4}},
		"RemoveItemAt the middle":       {func(l *listMap) any { l.RemoveItemAt("k", 2); return nil }, nil, []int{1, 2, 4}},
		"RemoveItemAt behind the end":   {func(l *listMap) any { l.RemoveItemAt("k", 4); return nil }, nil, []int{1, 2, 3, 4}},
		"RemoveItemAt below zero":       {func(l *listMap) any { l.RemoveItemAt("k", -1); return nil }, nil, []int{1, 2, 3, 4}},
		"RemoveItemAt the last one":     {func(l *listMap) any { l.RemoveKey("k"); l.AddItem("k", 1); l.RemoveItemAt("k", 0); return nil }, nil, nil},
		"RemoveItems, no limit":         {func(l *listMap) any { return l.RemoveItems("k", even, 0) }, 2, []int{1, 3}},
		"RemoveItems, limit below zero": {func(l *listMap) any { return l.RemoveItems("k", always, -7) }, 4, nil},
		"RemoveItems, limit":            {func(l *listMap) any { return l.RemoveItems("k", always, 3) }, 3, []int{4}},
		"RemoveItems, high limit":       {func(l *listMap) any { return l.RemoveItems("k", even, 9) }, 2, []int{1, 3}},
		"RemoveItems of no key":         {func(l *listMap) any { return l.RemoveItems("no", always, 1) }, 0, []int{1, 2, 3, 4}},
		"RemoveKey":                     {func(l *listMap) any { l.RemoveKey("k"); return nil }, nil, nil},
		"RemoveKey of no key":           {func(l *listMap) any { l.RemoveKey("no"); return nil }, nil, []int{1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			l := listOf(1, 2, 3, 4)
			l.AddItem("other", 5)
			if got := c.do(l); !reflect.DeepEqual(got, c.returns) {
				t.Errorf("it returns %v, want %v", got, c.returns)
			}
			if got := values(l, "k"); !slices.Equal(got, c.want) {
				t.Errorf("Range(k) = %v, want %v", got, c.want)
			}
			keys := []string{"k", "other"}
			if c.want == nil {
				keys = keys[1:]
			}
			if got := slices.Sorted(slices.Values(l.Keys())); !slices.Equal(got, keys) || l.Size() != len(keys) || l.KeySize("other") != 1 {
				t.Errorf("Keys = %v, Size = %d, KeySize(other) = %d, want %v and 1", got, l.Size(), l.KeySize("other"), keys)
			}
		})
	}
}

func TestListMapCopiesItsArguments(t *testing.T) {
	l := reconcile.NewListMap[int]()
	items := append(make([]int, 0, 10), 1, 2)
	l.AddItem("k", items...)
	clear(items)
	l.AddItem("k", 3)
	if items = items[:3]; items[2] != 0 {
		t.Errorf("AddItem wrote into the caller's slice: %v", items)
	}
	l.Keys()[0] = "changed"
	if got := values(l, "k"); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("the list is %v, want what was added", got)
	}
}

// A loop begins when it is ranged over, not when it is made.
func TestListMapRangeSeesASnapshot(t *testing.T) {
	changes := map[string]func(l *listMap){
		"add":              func(l *listMap) { l.AddItem("k", 9); l.AddItem("new", 9) },
		"remove first":     func(l *listMap) { l.RemoveItemAt("k", 0) },
		"remove last, add": func(l *listMap) { l.RemoveItemAt("k", l.KeySize("k")-1); l.AddItem("k", 9) },
		"remove by match":  func(l *listMap) { l.RemoveItem("k", equals(4)); l.AddItem("k", 9, 10) },
		"remove many, add": func(l *listMap) { l.RemoveItems("k", even, 0); l.AddItem("k", 9, 9) },
		"remove key, add":  func(l *listMap) { l.RemoveKey("k"); l.AddItem("k", 9) },
	}
	want := []int{1, 2, 3, 4}
	for name, change := range changes {
		l, all := listOf(), listOf()
		loop, loopAll := l.Range("k"), all.RangeAll()
		l.AddItem("k", want...)
		all.AddItem("k", want...)
		var got, gotAll []int
		for range loop {
			break // leaving early is fine
		}
		for range loopAll {
			break
		}
		for _, v := range loop {
			change(l)
			got = append(got, v)
		}
		for k, v := range loopAll {
			change(all)
			if k == "k" {
				gotAll = append(gotAll, v)
			} else {
				t.Errorf("%s inside RangeAll: saw key %q", name, k)
			}
		}
		if !slices.Equal(got, want) || !slices.Equal(gotAll, want) {
			t.Errorf("%s inside Range: saw %v, inside RangeAll: %v, want %v", name, got, gotAll, want)
		}
	}

	// Whichever key comes first: the other one is seen although it is gone by then.
	all, seen := listOf(1), 0
	all.AddItem("other", 1)
	for range all.RangeAll() {
		seen++
		all.RemoveKey("k")
		all.RemoveKey("other")
	}
	if seen != 2 {
		t.Errorf("RangeAll shows %d of 2 keys that are removed in it", seen)
	}
}

func TestListMapMatchMayUseTheMap(t *testing.T) {
	l := listOf(1, 2, 3, 4)
	checked := make(map[int]int)
	n := l.RemoveItems("k", func(v int) bool {
		checked[v]++
		l.AddItem("k", v+10) // not checked in this call
		if v == 1 {
			l.RemoveItem("k", equals(3)) // which is checked all the same, and does not count
		}
		return v != 2
	}, 0)
	if want := map[int]int{1: 1, 2: 1, 3: 1, 4: 1}; n != 2 || !maps.Equal(checked, want) {
		t.Errorf("RemoveItems = %d, want 2; checked %v, want each once", n, checked)
	}
	if got := values(l, "k"); !slices.Equal(got, []int{2, 11, 12, 13, 14}) {
		t.Errorf("left are %v", got)
	}

	// With a limit, what somebody else removes meanwhile does not count either.
	l = listOf(1, 2, 3, 4)
	n = l.RemoveItems("k", func(v int) bool {
		if v == 2 {
			l.RemoveItem("k", equals(1))
		}
		return true
	}, 2)
	if got := values(l, "k"); n != 2 || !slices.Equal(got, []int{4}) {
		t.Errorf("RemoveItems = %d, left are %v, want 2 and [4]", n, got)
	}
	if l.RemoveItem("k", func(int) bool { l.RemoveKey("k"); return true }) {
		t.Error("RemoveItem = true, though somebody else removed the key")
	}
}

// Nothing is lost, and each value is removed by one of those that want it.
func TestListMapLosesNothingUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, each = 8, 300
		var l listMap
		var removed atomic.Int64
		var all sync.WaitGroup
		for w := range writers {
			own := fmt.Sprint(w)
			all.Go(func() {
				for i := range each {
					l.AddItem("common", w*each+i)
					l.AddItem("taken", i)
					l.AddItem(own, i)
				}
			})
			all.Go(func() {
				for i := range each {
					removed.Add(int64(l.RemoveItems("taken", even, w%3)))
					if l.RemoveItem("taken", equals(i)) {
						removed.Add(1)
					}
					for range l.RangeAll() {
						break
					}
				}
			})
		}
		all.Wait()
		if left := l.KeySize("taken"); int(removed.Load())+left != writers*each {
			t.Errorf("%d added, %d removed, %d left", writers*each, removed.Load(), left)
		}
		last := make(map[int]int) // by writer: its values come in its order
		for _, v := range l.Range("common") {
			w := v / each
			if before, ok := last[w]; ok && v != before+1 {
				t.Errorf("value %d after %d of one writer", v, before)
			}
			last[w] = v
		}
		if l.KeySize("common") != writers*each {
			t.Errorf("%d values of all writers, want %d", l.KeySize("common"), writers*each)
		}
		for w := range writers {
			if n := l.KeySize(fmt.Sprint(w)); n != each {
				t.Errorf("writer %d has %d values, want %d", w, n, each)
			}
		}
	})
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
	var r reconcile.Refs[int, int]
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
	var r reconcile.Refs[any, any]
	r.Set("a", "before")
	for _, c := range []struct {
		item any
		deps []any
		want string
	}{
		{"a", []any{"good", []int{1}}, "reconcile: Refs.Set: the dependency [1] is a []int, which cannot be compared"},
		{"a", []any{"good", math.NaN()}, "reconcile: Refs.Set: the dependency NaN is not equal to itself, and would never be found again"},
		{[]int{1}, []any{"good"}, "reconcile: Refs.Set: the item [1] is a []int, which cannot be compared"},
		{math.NaN(), []any{"good"}, "reconcile: Refs.Set: the item NaN is not equal to itself, and would never be found again"},
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
	var r reconcile.Refs[string, int]
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
		var r reconcile.Refs[int, int]
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
		var refs reconcile.Refs[string, string]
		j := record.New()
		deps := map[string][]string{"b1": {"k1"}, "b2": {"k1", "k2"}, "b3": nil}
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				j.Note("%s", item)
				refs.Set(item, deps[item]...)
				deps["b1"] = nil // for its next run
				return nil
			},
		})
		keys := reconcile.Map(q, refs.Of)
		for _, b := range []string{"b1", "b2", "b3"} {
			q.Enqueue(b)
		}
		for range 2 {
			time.Sleep(time.Second)
			keys.Enqueue("k1")
		}
		time.Sleep(time.Second)
		keys.EnqueueAfter("k2", time.Minute)
		keys.Enqueue("k3") // nobody needs it
		time.Sleep(time.Hour)
		j.WantAll(t, "0s b1", "0s b2", "0s b3", "1s b1", "1s b2", "2s b2", "1m3s b2")
		run.end()
	})
}
