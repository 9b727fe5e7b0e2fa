// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// The table beside a map, with hashes that many items share.
func TestRecordsDoWhatAMapDoes(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 7))
		shared := random.Uint32() & 0xff // bits that are the same in all hashes
		hash := func(item int) uint32 { return max(1, uint32(item)*0x9e3779b9&^shared) }
		s := newRecords(chunk[int]{})
		want := map[int]uint32{}
		var items []int // the keys of want
		target := 0
		for step := range 20_000 {
			if step%1000 == 0 {
				target = random.IntN(1 + 6000>>random.IntN(8))
			}
			if item := random.IntN(8000); len(items) < target && want[item] == 0 {
				if i := s.find(hash(item), item); i != 0 {
					t.Fatalf("seed %d, step %d: find(%d) = %d, want none", seed, step, item, i)
				}
				i, r := s.insert(hash(item), item)
				if *r != (record[int]{item: item, hash: hash(item), next: r.next}) {
					t.Fatalf("seed %d, step %d: a new record is %+v", seed, step, *r)
				}
				want[item] = i
				items = append(items, item)
			} else if len(items) > 0 {
				p := random.IntN(len(items))
				item := items[p]
				items[p] = items[len(items)-1]
				items = items[:len(items)-1]
				s.remove(want[item])
				delete(want, item)
				if i := s.find(hash(item), item); i != 0 {
					t.Fatalf("seed %d, step %d: find(%d) = %d, though it was removed", seed, step, item, i)
				}
			}
			if step%500 != 0 {
				continue
			}
			if err := s.checkDirectory(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			for item, i := range want {
				if got := s.find(hash(item), item); got != i {
					t.Fatalf("seed %d, step %d: find(%d) = %d, want %d", seed, step, item, got, i)
				}
			}
		}
	}
}

// Hot items leave slots behind, all of the same hash, that no split parts.
func TestHotItemsAmongManyDoNotGrowTheDirectory(t *testing.T) {
	const many, hot = 20_000, 100
	q := NewQueue[int]()
	for i := range many {
		q.EnqueueAfter(i, time.Hour)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		for _, i := range random.Perm(hot) {
			q.Enqueue(many + i)
		}
		for range hot {
			if _, err := q.Dequeue(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range random.Perm(hot) {
			q.Done(many + i)
		}
		if err := q.records.checkDirectory(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// An item that leaves its slot behind in many full chunks does not grow the
// directory either, and neither do many such items.
func TestSlotsLeftInFullChunksAreCleared(t *testing.T) {
	for _, items := range []int{1, 10_000} {
		const many = 100 * chunkLen
		s := newRecords(chunk[int]{})
		hash := func(item int) uint32 { return max(1, uint32(item)*0x9e3779b9) }
		fill := func(item int) { s.insert(hash(-item), -item) }
		for item := range many {
			fill(item)
		}
		for round := range 20_000 {
			item := 1 + round%items
			i, _ := s.insert(hash(item), item)
			s.remove(i)
			fill(many + round) // where the item was
			victim := uint32(1 + round*7919%many)
			if r := s.at(victim); r.hash != 0 {
				s.remove(victim)
			}
		}
		if err := s.checkDirectory(); err != nil {
			t.Errorf("%d items: %v", items, err)
		}
	}
}

// A queue of few items stays within one chunk, wherever they came and went.
func TestFewItemsNeedOneChunk(t *testing.T) {
	q := NewQueue[int]()
	for round := range 1000 {
		q.Enqueue(round)
		if round >= 100 {
			q.Remove(round - 100)
		}
	}
	if n := len(q.records.chunks); n != 1 {
		t.Errorf("%d chunks, want 1", n)
	}
}

// As a queue of many items empties, the record of the last one is gone with all
// but one of the chunks.
func TestStrayDoneAfterTheStoreStartedAnew(t *testing.T) {
	const many, last = manyChunks*chunkLen + 1, manyChunks * chunkLen
	q := NewQueue[int]()
	for i := range many {
		q.Enqueue(i)
	}
	for range many {
		item, err := q.Dequeue(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if item == last { // of the last chunk, to be the last that is taken
			q.Done(item)
		} else if item == 2*chunkLen {
			q.Requeue(item, Wait{})
		} else {
			q.Done(item)
		}
	}
	if err := q.check(); err != nil {
		t.Fatal(err)
	}
	item, err := q.Dequeue(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	q.Done(item)
	for index := range uint32(3 * chunkLen) {
		q.last = index
		q.Done(last)
	}
	if err := q.check(); err != nil {
		t.Fatal(err)
	}
}

// The counts of chunks hold through floods and ebbs.
func TestChunksOfFloodsAndEbbs(t *testing.T) {
	q := NewQueue[int]()
	for _, items := range []int{20_000, 12_000, 20_000, 9_000, 16_000, 8_000, 12_000, 2_000, 7_000, 1, 500, 0, 300, 0} {
		for item := range 20_000 {
			if item < items {
				q.Enqueue(item)
			} else {
				q.Remove(item)
			}
		}
		if err := q.check(); err != nil {
			t.Fatalf("%d items: %v", items, err)
		}
	}
}
