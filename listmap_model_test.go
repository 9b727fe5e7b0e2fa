// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile"
)

// A slowListMap is a ListMap that anybody can read.
type slowListMap map[int][]int

func (l slowListMap) set(key int, list []int) {
	if delete(l, key); len(list) > 0 {
		l[key] = list
	}
}

func (l slowListMap) remove(key int, match func(int) bool, limit int) (n int) {
	var rest []int
	for _, v := range l[key] {
		if match(v) && (limit < 1 || n < limit) {
			n++
		} else {
			rest = append(rest, v)
		}
	}
	l.set(key, rest)
	return n
}

// A loop that goes on while the map changes, and what it is to see.
type openLoop struct {
	next func() (int, int, bool)
	stop func()
	want []int
}

// runListMap does to a ListMap and to its model what the bytes say, and compares
// them after each step. Loops are left open across the steps.
func runListMap(t *testing.T, ops []byte) {
	var l reconcile.ListMap[int, int]
	model := make(slowListMap)
	var loops []openLoop
	var did []string
	values := 0
	next := func() int {
		if len(ops) == 0 {
			return 0
		}
		op := ops[0]
		ops = ops[1:]
		return int(op)
	}
	for len(ops) > 0 {
		op, key := next()%8, next()%3
		switch op {
		case 0, 1:
			items := make([]int, next()%4)
			for i := range items {
				values++
				items[i] = values
			}
			did = append(did, fmt.Sprintf("AddItem(%d, %v)", key, items))
			l.AddItem(key, items...)
			model.set(key, append(slices.Clone(model[key]), items...))
		case 2:
			i := next()%6 - 1
			did = append(did, fmt.Sprintf("RemoveItemAt(%d, %d)", key, i))
			l.RemoveItemAt(key, i)
			if list := model[key]; i >= 0 && i < len(list) {
				model.set(key, slices.Delete(slices.Clone(list), i, i+1))
			}
		case 3:
			div := next()%3 + 1
			match := func(v int) bool { return v%div == 0 }
			did = append(did, fmt.Sprintf("RemoveItem(%d, v%%%d)", key, div))
			if got, want := l.RemoveItem(key, match), model.remove(key, match, 1) == 1; got != want {
				t.Fatalf("%s = %v, want %v", strings.Join(did, "\n"), got, want)
			}
		case 4:
			div, limit := next()%3+1, next()%4-1
			match := func(v int) bool { return v%div == 0 }
			did = append(did, fmt.Sprintf("RemoveItems(%d, v%%%d, %d)", key, div, limit))
			if got, want := l.RemoveItems(key, match, limit), model.remove(key, match, limit); got != want {
				t.Fatalf("%s = %v, want %v", strings.Join(did, "\n"), got, want)
			}
		case 5:
			did = append(did, fmt.Sprintf("RemoveKey(%d)", key))
			l.RemoveKey(key)
			delete(model, key)
		case 6:
			if len(model[key]) == 0 {
				continue
			}
			pull, stop := iter.Pull2(l.Range(key))
			loop := openLoop{pull, stop, slices.Clone(model[key])}
			pull() // now it has begun
			loops = append(loops, loop)
			did = append(did, fmt.Sprintf("Range(%d) begins", key))
		case 7:
			did = append(did, "loops go on")
			finishLoops(t, did, loops)
			loops = nil
		}
		compareListMaps(t, did, &l, model)
	}
	finishLoops(t, did, loops)
}

func finishLoops(t *testing.T, did []string, loops []openLoop) {
	t.Helper()
	for _, loop := range loops {
		got := loop.want[:1:1]
		for {
			_, v, ok := loop.next()
			if !ok {
				break
			}
			got = append(got, v)
		}
		loop.stop()
		if !slices.Equal(got, loop.want) {
			t.Fatalf("%s: a loop saw %v, want %v", strings.Join(did, "\n"), got, loop.want)
		}
	}
}

func compareListMaps(t *testing.T, did []string, l *reconcile.ListMap[int, int], model slowListMap) {
	t.Helper()
	got := make(slowListMap)
	for k, v := range l.RangeAll() {
		got[k] = append(got[k], v)
	}
	if !maps.EqualFunc(got, model, slices.Equal) {
		t.Fatalf("%s: map has %v, want %v", strings.Join(did, "\n"), got, model)
	}
	keys := l.Keys()
	slices.Sort(keys)
	if want := slices.Sorted(maps.Keys(model)); !slices.Equal(keys, want) || l.Size() != len(want) {
		t.Fatalf("%s: Keys() = %v, Size() = %d, want %v", strings.Join(did, "\n"), keys, l.Size(), want)
	}
	for key := range 3 {
		if got, want := l.KeySize(key), len(model[key]); got != want {
			t.Fatalf("%s: KeySize(%d) = %d, want %d", strings.Join(did, "\n"), key, got, want)
		}
		for i := -1; i <= len(model[key]); i++ {
			v, ok := l.ItemAt(key, i)
			if in := i >= 0 && i < len(model[key]); ok != in || in && v != model[key][i] {
				t.Fatalf("%s: ItemAt(%d, %d) = %d, %v, want it of %v", strings.Join(did, "\n"), key, i, v, ok, model[key])
			}
		}
	}
}

func TestListMapDoesWhatItsModelDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		ops := make([]byte, 200)
		for i := range ops {
			ops[i] = byte(random.Uint32())
		}
		runListMap(t, ops)
	}
}

func FuzzListMap(f *testing.F) {
	f.Add([]byte{0, 0, 3, 6, 0, 2, 0, 3, 0, 0, 2, 7, 0})
	f.Add([]byte{0, 1, 3, 6, 1, 5, 1, 0, 1, 1, 7, 0, 4, 1, 0, 0})
	f.Fuzz(runListMap)
}
