// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"runtime"
	"sync"
	"testing"
)

func TestRing(t *testing.T) {
	r := newRing[*int](4)
	numbers := make([]int, 100)
	for round := range 10 {
		if v, ok := r.pop(); ok {
			t.Fatalf("round %d: pop of an empty ring gave %v", round, v)
		}
		for i := range 4 {
			if !r.push(&numbers[4*round+i]) {
				t.Fatalf("round %d: push %d of 4 failed", round, i)
			}
		}
		if r.push(&numbers[99]) {
			t.Fatalf("round %d: push into a full ring went well", round)
		}
		for i := range 4 {
			v, ok := r.pop()
			if !ok || v != &numbers[4*round+i] {
				t.Fatalf("round %d: pop %d gave %v, %v", round, i, v, ok)
			}
		}
	}
	for i := range r.slots {
		if r.slots[i].value != nil {
			t.Errorf("slot %d keeps what was taken out of it", i)
		}
	}
}

// TestRingOrder has several goroutines push while one pops: nothing is lost but
// what push refuses, and what one of them pushed comes out in its order.
func TestRingOrder(t *testing.T) {
	const pushers, each = 4, 20_000
	type value struct{ from, n int }
	r := newRing[value](64)
	var pushing sync.WaitGroup
	for from := range pushers {
		pushing.Go(func() {
			for n := range each {
				for !r.push(value{from, n}) {
					runtime.Gosched()
				}
			}
		})
	}
	var next [pushers]int
	for range pushers * each {
		v, ok := r.pop()
		for !ok {
			runtime.Gosched()
			v, ok = r.pop()
		}
		if v.n != next[v.from] {
			t.Fatalf("pusher %d: got %d, want %d", v.from, v.n, next[v.from])
		}
		next[v.from]++
	}
	pushing.Wait()
	if v, ok := r.pop(); ok {
		t.Errorf("%v is left", v)
	}
}
