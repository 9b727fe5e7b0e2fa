// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package linearize

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reconkernel/reconcile"
)

// turn is one item that became ready, and was taken.
type turn struct {
	readied, taken span
}

// span is the time of a call on a clock that counts.
type span struct{ call, ret int64 }

// outOfOrder returns two turns of which the one that certainly became ready
// first was certainly taken last. It takes as long as sorting.
func outOfOrder(turns []turn) (first, second turn, found bool) {
	byReturn := slices.SortedFunc(slices.Values(turns), func(a, b turn) int { return cmp.Compare(a.readied.ret, b.readied.ret) })
	byCall := slices.SortedFunc(slices.Values(turns), func(a, b turn) int { return cmp.Compare(a.readied.call, b.readied.call) })
	var latest turn // taken last, of those that were ready before the one looked at
	for _, b := range byCall {
		for len(byReturn) > 0 && byReturn[0].readied.ret < b.readied.call {
			if byReturn[0].taken.call > latest.taken.call {
				latest = byReturn[0]
			}
			byReturn = byReturn[1:]
		}
		if b.taken.ret < latest.taken.call {
			return latest, b, true
		}
	}
	return first, second, false
}

// TestFIFO runs many producers and consumers over items that each become ready
// twice: when they are enqueued, and when they are given back.
func TestFIFO(t *testing.T) {
	for s := range uint64(4 * *rounds) {
		turns := fifo(t, *seed+s, 16, 16, 20_000)
		if a, b, found := outOfOrder(turns); found {
			t.Errorf("seed %d: %+v was taken after %+v", *seed+s, a, b)
		}
		if s == 0 {
			t.Logf("%d turns in each of %d runs", len(turns), 4**rounds)
		}
		// The check sees it if two are exchanged.
		slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.taken.call, b.taken.call) })
		i, j := len(turns)/4, 3*len(turns)/4
		turns[i].taken, turns[j].taken = turns[j].taken, turns[i].taken
		if _, _, found := outOfOrder(turns); !found {
			t.Error("two turns were exchanged, and nobody noticed")
		}
	}
}

func fifo(t *testing.T, seed uint64, producers, consumers, items int) []turn {
	q := reconcile.NewQueue[int]()
	var clock atomic.Int64
	turns := make([]turn, 2*items)
	var done, left sync.WaitGroup
	left.Add(items)
	for p := range producers {
		done.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(p)))
			for i := p; i < items; i += producers {
				turns[i].readied.call = clock.Add(1)
				q.Enqueue(i)
				// The item may be back already, but this is written here only.
				turns[i].readied.ret = clock.Add(1)
				if r.IntN(8) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	again := make([]atomic.Bool, items)
	for range consumers {
		done.Go(func() {
			for {
				call := clock.Add(1)
				i, err := q.Dequeue(context.Background())
				if errors.Is(err, reconcile.ErrClosed) {
					return
				}
				taken := span{call, clock.Add(1)}
				if again[i].CompareAndSwap(false, true) {
					turns[i].taken = taken
					back := &turns[items+i].readied
					back.call = clock.Add(1)
					q.Requeue(i, reconcile.RequeueOptions{})
					back.ret = clock.Add(1)
					continue
				}
				turns[items+i].taken = taken
				q.Done(i)
				left.Done()
			}
		})
	}
	left.Wait()
	q.Close()
	done.Wait()
	if s := q.Stats(); s.Taken != uint64(2*items) {
		t.Errorf("seed %d: %d taken, want %d", seed, s.Taken, 2*items)
	}
	return turns
}
