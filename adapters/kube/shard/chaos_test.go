// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/kube/internal/leasetest"
	"github.com/reconkernel/reconcile/adapters/kube/shard"
)

// TestChaos has processes whose requests are slow, hang, fail, or succeed
// without an answer, and that end, die and come back. No item is in two runs at
// once; and when all is well again, each has one owner.
func TestChaos(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *arena) { chaos(t, a, seed) })
		})
	}
}

func chaos(t *testing.T, a *arena, seed uint64) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	chance := func(percent int) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(100) < percent
	}
	upTo := func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(d)))
	}
	nap := func(ctx context.Context, d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	var well atomic.Bool
	trouble := make(map[string]int) // of each process, in percent
	client := func(name string) *leasetest.LeaseClient {
		c := a.client()
		fault := func(ctx context.Context, _ string) error {
			if well.Load() {
				return nil
			}
			mu.Lock()
			percent := trouble[name]
			mu.Unlock()
			if err := nap(ctx, upTo(100*time.Millisecond)); err != nil {
				return err
			}
			if chance(percent) {
				if err := nap(ctx, upTo(20*time.Second)); err != nil {
					return err
				}
			}
			if chance(percent) {
				return errBroken
			}
			return nil
		}
		c.Before, c.After = fault, fault
		return c
	}
	work := func(ctx context.Context, _ int) error {
		_ = nap(ctx, upTo(20*time.Second))
		time.Sleep(upTo(3 * time.Second)) // it takes its time to end
		return ctx.Err()
	}
	var processes []*process
	start := func(name string) *process {
		return a.start(name, client(name), work, func(s *shard.Shards[int]) { s.Grace = upTo(10*time.Second) + 1 })
	}
	names := []string{"p", "q", "r", "s"}
	for _, name := range names {
		processes = append(processes, start(name))
	}
	feed := time.NewTicker(100 * time.Millisecond)
	defer feed.Stop()
	for end := time.After(20 * time.Minute); !well.Load(); {
		select {
		case <-end:
			well.Store(true)
		case <-feed.C:
			processes[upTo(4)].queue.Enqueue(int(upTo(items)))
			if chance(2) {
				mu.Lock()
				name := names[random.IntN(4)]
				trouble[name] = []int{0, 0, 5, 40, 100}[random.IntN(5)]
				mu.Unlock()
			}
			if i := int(upTo(4)); chance(1) && chance(30) {
				processes[i].stop()
				processes[i] = start(names[i])
			}
		}
	}
	time.Sleep(3 * time.Minute)
	a.forget()
	for i := range items {
		for _, p := range processes {
			if p.shards.Owns(i) {
				p.queue.Enqueue(i)
			}
		}
	}
	time.Sleep(30 * time.Minute)
	a.shared(processes...)
	if n, _ := a.ran(); n != items {
		t.Errorf("%d items had a run after all was well, want %d", n, items)
	}
}
