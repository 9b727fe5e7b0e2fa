// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/reconkernel/reconcile"
)

// listOf returns a map with one list under "k".
func listOf(items ...int) *reconcile.ListMap[string, int] {
	l := reconcile.NewListMap[int]()
	l.AddItem("k", items...)
	return l
}

// wantList checks the list of a key by all methods that read it.
func wantList[K comparable](t *testing.T, l *reconcile.ListMap[K, int], key K, want ...int) {
	t.Helper()
	var got []int
	for i, v := range l.Range(key) {
		if i != len(got) {
			t.Errorf("Range(%v) gives index %d after %d values", key, i, len(got))
		}
		got = append(got, v)
	}
	if !slices.Equal(got, want) {
		t.Errorf("Range(%v) = %v, want %v", key, got, want)
	}
	if n := l.KeySize(key); n != len(want) {
		t.Errorf("KeySize(%v) = %d, want %d", key, n, len(want))
	}
	for i, w := range want {
		if v, ok := l.ItemAt(key, i); !ok || v != w {
			t.Errorf("ItemAt(%v, %d) = %d, %v, want %d, true", key, i, v, ok, w)
		}
	}
	for _, i := range []int{-1, len(want), len(want) + 1, 1 << 30} {
		if v, ok := l.ItemAt(key, i); ok || v != 0 {
			t.Errorf("ItemAt(%v, %d) = %d, %v, want 0, false", key, i, v, ok)
		}
	}
	if has := slices.Contains(l.Keys(), key); has != (len(want) > 0) {
		t.Errorf("Keys() = %v, has %v: %v, want %v", l.Keys(), key, has, !has)
	}
}

func is(want int) func(int) bool { return func(v int) bool { return v == want } }
func even(v int) bool            { return v%2 == 0 }
func always(int) bool            { return true }
func never(int) bool             { return false }

func TestListMapZeroValueIsEmptyAndReady(t *testing.T) {
	var l reconcile.ListMap[int, string]
	if v, ok := l.ItemAt(1, 0); ok || v != "" {
		t.Errorf("ItemAt = %q, %v", v, ok)
	}
	for range l.Range(1) {
		t.Error("Range of a missing key gives something")
	}
	for range l.RangeAll() {
		t.Error("RangeAll of an empty map gives something")
	}
	if l.Size() != 0 || l.KeySize(1) != 0 || len(l.Keys()) != 0 {
		t.Errorf("Size %d, KeySize %d, Keys %v, want none", l.Size(), l.KeySize(1), l.Keys())
	}
	l.RemoveKey(1)
	l.RemoveItemAt(1, 0)
	if l.RemoveItem(1, func(string) bool { return true }) || l.RemoveItems(1, func(string) bool { return true }, 0) != 0 {
		t.Error("something was removed from an empty map")
	}
	l.AddItem(1, "a")
	if v, ok := l.ItemAt(1, 0); !ok || v != "a" {
		t.Errorf("ItemAt = %q, %v, want a", v, ok)
	}
}

func TestListMapAddsInOrder(t *testing.T) {
	l := listOf(1, 2)
	l.AddItem("k", 3)
	l.AddItem("k") // nothing
	l.AddItem("none")
	l.AddItem("other", 7, 7)
	wantList(t, l, "k", 1, 2, 3)
	wantList(t, l, "other", 7, 7)
	wantList(t, l, "none")
	if l.Size() != 2 {
		t.Errorf("Size() = %d, want 2 keys", l.Size())
	}
	keys := l.Keys()
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"k", "other"}) {
		t.Errorf("Keys() = %v", keys)
	}
	all := make(map[string][]int)
	for k, v := range l.RangeAll() {
		all[k] = append(all[k], v)
	}
	if want := map[string][]int{"k": {1, 2, 3}, "other": {7, 7}}; !maps.EqualFunc(all, want, slices.Equal) {
		t.Errorf("RangeAll() gives %v, want %v", all, want)
	}
}

func TestListMapKeepsNothingOfTheCallers(t *testing.T) {
	l := reconcile.NewListMap[int]()
	items := make([]int, 2, 10)
	items[0], items[1] = 1, 2
	l.AddItem("k", items...)
	clear(items)
	wantList(t, l, "k", 1, 2)
	l.AddItem("k", 3)
	if items = items[:3]; items[2] != 0 {
		t.Errorf("AddItem wrote into the caller's slice: %v", items)
	}
	keys := l.Keys()
	keys[0] = "changed"
	wantList(t, l, "k", 1, 2, 3)
}

func TestListMapRemoveItemRemovesTheFirstMatch(t *testing.T) {
	for _, c := range []struct {
		from   []int
		remove int
		found  bool
		want   []int
	}{
		{[]int{1, 2, 3}, 1, true, []int{2, 3}},
		{[]int{1, 2, 3}, 2, true, []int{1, 3}},
		{[]int{1, 2, 3}, 3, true, []int{1, 2}},
		{[]int{1, 2, 3}, 4, false, []int{1, 2, 3}},
		{[]int{1}, 1, true, nil},
		{[]int{1, 2, 1, 2}, 2, true, []int{1, 1, 2}},
		{nil, 1, false, nil},
	} {
		l := listOf(c.from...)
		if got := l.RemoveItem("k", is(c.remove)); got != c.found {
			t.Errorf("RemoveItem of %d from %v = %v, want %v", c.remove, c.from, got, c.found)
		}
		wantList(t, l, "k", c.want...)
	}
}

func TestListMapRemoveItemAtKeepsTheOrder(t *testing.T) {
	for _, c := range []struct {
		from  []int
		index int
		want  []int
	}{
		{[]int{1, 2, 3}, 0, []int{2, 3}},
		{[]int{1, 2, 3}, 1, []int{1, 3}},
		{[]int{1, 2, 3}, 2, []int{1, 2}},
		{[]int{1, 2, 3}, 3, []int{1, 2, 3}},
		{[]int{1, 2, 3}, 1 << 30, []int{1, 2, 3}},
		{[]int{1, 2, 3}, -1, []int{1, 2, 3}},
		{[]int{1}, 0, nil},
		{nil, 0, nil},
	} {
		l := listOf(c.from...)
		l.RemoveItemAt("k", c.index)
		wantList(t, l, "k", c.want...)
	}
}

func TestListMapRemoveItemsUpToALimit(t *testing.T) {
	for _, c := range []struct {
		match   func(int) bool
		limit   int
		removed int
		want    []int
	}{
		{even, 0, 3, []int{1, 3, 5}},
		{even, -7, 3, []int{1, 3, 5}},
		{even, 1, 1, []int{1, 3, 4, 5, 6}},
		{even, 2, 2, []int{1, 3, 5, 6}},
		{even, 3, 3, []int{1, 3, 5}},
		{even, 4, 3, []int{1, 3, 5}},
		{never, 0, 0, []int{1, 2, 3, 4, 5, 6}},
		{always, 0, 6, nil},
		{always, 5, 5, []int{6}},
		{always, 100, 6, nil},
	} {
		l := listOf(1, 2, 3, 4, 5, 6)
		if n := l.RemoveItems("k", c.match, c.limit); n != c.removed {
			t.Errorf("RemoveItems with limit %d = %d, want %d", c.limit, n, c.removed)
		}
		wantList(t, l, "k", c.want...)
		if n := l.RemoveItems("missing", always, c.limit); n != 0 {
			t.Errorf("RemoveItems of a missing key = %d, want 0", n)
		}
	}
}

func TestListMapRemoveKeyRemovesItAlone(t *testing.T) {
	l := listOf(1, 2)
	l.AddItem("other", 3)
	l.RemoveKey("missing")
	l.RemoveKey("k")
	wantList(t, l, "k")
	wantList(t, l, "other", 3)
	l.AddItem("k", 4)
	wantList(t, l, "k", 4)
}

func TestListMapForgetsAKeyWhoseListBecomesEmpty(t *testing.T) {
	for name, empty := range map[string]func(l *reconcile.ListMap[string, int]){
		"RemoveItem":   func(l *reconcile.ListMap[string, int]) { l.RemoveItem("k", always) },
		"RemoveItems":  func(l *reconcile.ListMap[string, int]) { l.RemoveItems("k", always, 0) },
		"RemoveItemAt": func(l *reconcile.ListMap[string, int]) { l.RemoveItemAt("k", 0) },
		"RemoveKey":    func(l *reconcile.ListMap[string, int]) { l.RemoveKey("k") },
		"AddItem": func(l *reconcile.ListMap[string, int]) {
			l.RemoveKey("k")
			l.AddItem("k")
		},
	} {
		l := listOf(1)
		empty(l)
		if l.Size() != 0 || len(l.Keys()) != 0 {
			t.Errorf("after %s: Size() = %d, Keys() = %v, want none", name, l.Size(), l.Keys())
		}
	}
}

func TestListMapLoopsSeeTheListAsItWasWhenTheyBegan(t *testing.T) {
	changes := map[string]func(l *reconcile.ListMap[string, int]){
		"add":          func(l *reconcile.ListMap[string, int]) { l.AddItem("k", 9) },
		"remove first": func(l *reconcile.ListMap[string, int]) { l.RemoveItemAt("k", 0) },
		"remove last, add": func(l *reconcile.ListMap[string, int]) {
			l.RemoveItemAt("k", l.KeySize("k")-1)
			l.AddItem("k", 9)
		},
		"remove by match": func(l *reconcile.ListMap[string, int]) { l.RemoveItem("k", always) },
		"remove many, add": func(l *reconcile.ListMap[string, int]) {
			l.RemoveItems("k", even, 0)
			l.AddItem("k", 9, 9)
		},
		"remove key, add": func(l *reconcile.ListMap[string, int]) {
			l.RemoveKey("k")
			l.AddItem("k", 9)
		},
		"add key":        func(l *reconcile.ListMap[string, int]) { l.AddItem("new", 9) },
		"remove and add": func(l *reconcile.ListMap[string, int]) { l.RemoveItem("k", is(4)); l.AddItem("k", 9, 10) },
	}
	want := []int{1, 2, 3, 4}
	for name, change := range changes {
		l := listOf(want...)
		var got []int
		for _, v := range l.Range("k") {
			change(l)
			got = append(got, v)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s inside Range: saw %v, want %v", name, got, want)
		}
		l = listOf(want...)
		got = nil
		for k, v := range l.RangeAll() {
			change(l)
			if k != "k" {
				t.Errorf("%s inside RangeAll: saw key %q", name, k)
			}
			got = append(got, v)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s inside RangeAll: saw %v, want %v", name, got, want)
		}
	}
}

// A loop begins when it is ranged over, not when it is made.
func TestListMapLoopsCanBeginAgain(t *testing.T) {
	l := listOf(1)
	seq, all := l.Range("k"), l.RangeAll()
	l.AddItem("k", 2)
	for range 2 {
		var got, gotAll []int
		for _, v := range seq {
			got = append(got, v)
		}
		for _, v := range all {
			gotAll = append(gotAll, v)
		}
		if want := []int{1, 2}; !slices.Equal(got, want) || !slices.Equal(gotAll, want) {
			t.Errorf("loops saw %v and %v, want %v", got, gotAll, want)
		}
	}
	for range seq { // leaving early is fine
		break
	}
	for range all {
		break
	}
}

func TestListMapMatchMayUseTheMap(t *testing.T) {
	l := listOf(1, 2, 3, 4)
	judged := make(map[int]int)
	n := l.RemoveItems("k", func(v int) bool {
		judged[v]++
		l.AddItem("k", v+10) // not judged in this call
		l.AddItem("other", v)
		if v == 1 {
			l.RemoveItem("k", is(3)) // gone before its turn, or judged once
		}
		return v != 2
	}, 0)
	for v, times := range judged {
		if times > 1 || v > 4 {
			t.Errorf("%d was judged %d times, want the four of the beginning at most once", v, times)
		}
	}
	if n != 2 { // 1 and 4; 3 was removed by somebody else
		t.Errorf("RemoveItems = %d, want 2", n)
	}
	var rest []int
	for _, v := range l.Range("k") {
		if v < 10 {
			rest = append(rest, v)
		}
	}
	if !slices.Equal(rest, []int{2}) {
		t.Errorf("left are %v, want 2", rest)
	}
	if l.KeySize("k") != 1+len(judged) || l.KeySize("other") != len(judged) {
		t.Errorf("sizes %d and %d, want what was added meanwhile", l.KeySize("k"), l.KeySize("other"))
	}
}

// With a limit the values that somebody else removed meanwhile do not count.
func TestListMapRemoveItemsCountsOnlyItsOwn(t *testing.T) {
	l := listOf(1, 2, 3, 4)
	n := l.RemoveItems("k", func(v int) bool {
		if v == 2 {
			l.RemoveItem("k", is(1))
		}
		return true
	}, 2)
	if n != 2 {
		t.Errorf("RemoveItems = %d, want 2", n)
	}
	wantList(t, l, "k", 4)

	l = listOf(1, 2)
	if l.RemoveItem("k", func(v int) bool { l.RemoveKey("k"); return v == 2 }) {
		t.Error("RemoveItem = true, though somebody else removed the key")
	}
}
