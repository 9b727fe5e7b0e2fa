// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reconkernel/reconcile"
)

// A modelBook does slowly and plainly what a book does.
type modelBook struct {
	bound int
	items []*modelItem // the one that was active last comes last
}

type modelItem struct {
	item   int
	failed bool
	runs   []run // the latest first
}

func (m *modelBook) add(item int, r run) {
	i := slices.IndexFunc(m.items, func(x *modelItem) bool { return x.item == item })
	x := &modelItem{item: item}
	if i >= 0 {
		x = m.items[i]
		m.items = slices.Delete(m.items, i, i+1)
	}
	if r.Outcome != reconcile.OutcomeAborted {
		x.failed = r.Failed()
	}
	all := len(x.runs)
	inFailed := 0
	for _, o := range m.items {
		all += len(o.runs)
		if o.failed {
			inFailed += len(o.runs)
		}
	}
	switch {
	case len(x.runs) == perItem:
		x.runs = x.runs[:perItem-1]
	case all == m.bound:
		m.forget(2*inFailed > m.bound)
	}
	x.runs = slices.Insert(x.runs, 0, r)
	m.items = append(m.items, x)
}

// forget drops the oldest run of the item that was active first among those that
// failed, or those that did not. If there is none, it is one of the others.
func (m *modelBook) forget(failed bool) {
	i := slices.IndexFunc(m.items, func(o *modelItem) bool { return o.failed == failed })
	if i < 0 {
		i = slices.IndexFunc(m.items, func(o *modelItem) bool { return o.failed != failed })
	}
	victim := m.items[i]
	victim.runs = victim.runs[:len(victim.runs)-1]
	if len(victim.runs) == 0 {
		m.items = slices.Delete(m.items, i, i+1)
	}
}

// check verifies what a book guarantees of its own data.
func (b *book[T]) check() error {
	runs, items := 0, 0
	for list := range b.lists {
		held := 0
		head := &b.lists[list]
		for e := head.next; e != head; e = e.next {
			switch {
			case e.count < 1 || e.count > perItem:
				return fmt.Errorf("item %v has %d runs", e.item, e.count)
			case e.list != list:
				return fmt.Errorf("item %v of list %d is in list %d", e.item, e.list, list)
			case b.items[e.item] != e:
				return fmt.Errorf("item %v is not in the index", e.item)
			case e.next.prev != e || e.prev.next != e:
				return fmt.Errorf("item %v is not linked both ways", e.item)
			}
			held += e.count
			items++
		}
		if b.held[list] != held {
			return fmt.Errorf("list %d holds %d runs, and says %d", list, held, b.held[list])
		}
		runs += held
	}
	switch {
	case runs > b.bound:
		return fmt.Errorf("%d runs, bound is %d", runs, b.bound)
	case items != len(b.items):
		return fmt.Errorf("%d items in the lists, %d in the index", items, len(b.items))
	}
	return nil
}

func TestBook(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		bound := perItem + random.IntN(100)
		items := 1 + random.IntN(80)
		b, m := newBook[int](bound), &modelBook{bound: bound}
		for step := range 600 {
			item := int(random.ExpFloat64() * float64(items) / 3)
			r := run{
				Next:    duration(step), // tells it from the others
				Outcome: outcomes[random.IntN(len(outcomes))],
				Error:   []string{"", "one", "another"}[random.IntN(3)],
			}
			b.add(item, r)
			m.add(item, r)
			if err := b.check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if len(b.items) != len(m.items) {
				t.Fatalf("seed %d, step %d: %d items, want %d", seed, step, len(b.items), len(m.items))
			}
			for _, x := range m.items {
				if got := b.history(x.item); !slices.Equal(got, x.runs) {
					t.Fatalf("seed %d, step %d: runs of item %d are\n%v, want\n%v", seed, step, x.item, got, x.runs)
				}
			}
		}
	}
}

func TestBookNaN(t *testing.T) {
	b := newBook[float64](100)
	for range 1000 {
		b.add(math.NaN(), run{Outcome: reconcile.OutcomeSucceeded})
	}
	if len(b.items) != 0 {
		t.Errorf("%d entries that can never be found", len(b.items))
	}
}
