// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/reconkernel/reconcile"
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
