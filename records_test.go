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
