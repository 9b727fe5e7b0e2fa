// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"iter"
	"maps"
	"slices"
	"sync"
)

// A ListMap holds a list of values for each key. A key whose list becomes empty
// is removed.
//
// The zero ListMap is empty and ready. Its methods may be called from any
// goroutine. A loop over it sees the list as it was when the loop began, and may
// change the map. No function of the caller is called with a lock held, so match
// may use the map as well.
type ListMap[K comparable, V any] struct {
	mu    sync.RWMutex
	lists map[K][]listItem[V]
	last  uint64 // the number given last
}

// A listItem has a number of its own, by which a value that was checked without the
// lock is found again with the lock held.
//
// A list is appended to in place: loops keep the length that it had. All other
// changes copy it.
type listItem[V any] struct {
	value  V
	number uint64
}

// NewListMap returns an empty ListMap with strings as keys.
func NewListMap[T any]() *ListMap[string, T] { return new(ListMap[string, T]) }

// AddItem appends items to the key's list.
func (l *ListMap[K, V]) AddItem(key K, items ...V) {
	if len(items) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lists == nil {
		l.lists = make(map[K][]listItem[V])
	}
	list := l.lists[key]
	for _, v := range items {
		l.last++
		list = append(list, listItem[V]{v, l.last})
	}
	l.lists[key] = list
}

// ItemAt returns the value at an index of the key's list, and false if there is
// none.
func (l *ListMap[K, V]) ItemAt(key K, index int) (V, bool) {
	list := l.list(key)
	if index < 0 || index >= len(list) {
		var none V
		return none, false
	}
	return list[index].value, true
}

// Range returns a sequence of the indexes and values of the key's list.
func (l *ListMap[K, V]) Range(key K) iter.Seq2[int, V] {
	return func(yield func(int, V) bool) {
		for i, item := range l.list(key) {
			if !yield(i, item.value) {
				return
			}
		}
	}
}

// RangeAll returns a sequence of all keys and values: key by key in no order,
// each list in its own.
func (l *ListMap[K, V]) RangeAll() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		l.mu.RLock()
		lists := maps.Clone(l.lists)
		l.mu.RUnlock()
		for key, list := range lists {
			for _, item := range list {
				if !yield(key, item.value) {
					return
				}
			}
		}
	}
}

// Keys returns the keys, in no order.
func (l *ListMap[K, V]) Keys() []K {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.AppendSeq(make([]K, 0, len(l.lists)), maps.Keys(l.lists))
}

// KeySize returns the length of the key's list.
func (l *ListMap[K, V]) KeySize(key K) int { return len(l.list(key)) }

// Size returns the number of keys.
func (l *ListMap[K, V]) Size() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.lists)
}

// RemoveItem removes the first value of the key's list for which match returns
// true, and reports whether there was one.
func (l *ListMap[K, V]) RemoveItem(key K, match func(V) bool) bool {
	return l.RemoveItems(key, match, 1) == 1
}

// RemoveItems removes the values of the key's list for which match returns true,
// from the first on, at most limit of them; a limit below 1 means all. It returns
// how many it removed. Match is called at most once for each value, and not for
// values that are added meanwhile.
func (l *ListMap[K, V]) RemoveItems(key K, match func(V) bool, limit int) int {
	removed := 0
	rest := l.list(key)
	for {
		// Call match without the lock, then remove the values that still exist. If
		// another goroutine removed some of them meanwhile, and there is a limit, go on.
		chosen := make(map[uint64]bool)
		for len(rest) > 0 && (limit < 1 || removed+len(chosen) < limit) {
			item := rest[0]
			rest = rest[1:]
			if match(item.value) {
				chosen[item.number] = true
			}
		}
		if len(chosen) == 0 {
			return removed
		}
		removed += l.remove(key, chosen)
	}
}

// remove removes the values of these numbers, and returns how many there were.
func (l *ListMap[K, V]) remove(key K, numbers map[uint64]bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.lists[key]
	list := slices.DeleteFunc(slices.Clone(old), func(item listItem[V]) bool { return numbers[item.number] })
	l.setLocked(key, list)
	return len(old) - len(list)
}

// RemoveItemAt removes the value at an index of the key's list, if there is one.
func (l *ListMap[K, V]) RemoveItemAt(key K, index int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.lists[key]; index >= 0 && index < len(list) {
		l.setLocked(key, slices.Concat(list[:index], list[index+1:]))
	}
}

// RemoveKey removes the key and its list.
func (l *ListMap[K, V]) RemoveKey(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lists, key)
}

func (l *ListMap[K, V]) list(key K) []listItem[V] {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lists[key]
}

func (l *ListMap[K, V]) setLocked(key K, list []listItem[V]) {
	if len(list) == 0 {
		delete(l.lists, key)
	} else {
		l.lists[key] = list
	}
}
