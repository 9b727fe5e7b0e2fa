// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/supervise"
)

// The programs of many-processes.md.

// elect runs r while it has the seat, in place of a lease in a real store.
func elect(seat chan struct{}, r reconcile.Runner) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		select {
		case seat <- struct{}{}:
			defer func() { <-seat }()
			return r.Run(ctx)
		case <-ctx.Done():
			return nil
		}
	})
}

func TestLeaderFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		seat := make(chan struct{}, 1)
		process := func(name string, events <-chan string) reconcile.Runner {
			queue := reconcile.NewQueue[string]()
			var group supervise.Group
			group.Add("events", reconcile.Feed(queue, reconcile.FromChan(events))) // everywhere
			group.Add("vms", elect(seat, &reconcile.Reconciler[string]{            // in one place
				Queue: queue,
				Reconcile: func(_ context.Context, vm string) error {
					happened.note("%s looks at %s", name, vm)
					return nil
				},
			}))
			return &group
		}

		events := []chan string{make(chan string), make(chan string)}
		tell := func(vm string) { // each process is told
			for _, ch := range events {
				select {
				case ch <- vm:
				case <-time.After(time.Second): // it is gone
				}
			}
		}
		ctxA, killA := context.WithCancel(t.Context())
		ctxB, endB := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- process("a", events[0]).Run(ctxA) }()
		time.Sleep(time.Second)
		go func() { ended <- process("b", events[1]).Run(ctxB) }()

		time.Sleep(time.Minute)
		tell("vm-1")
		time.Sleep(time.Minute)
		killA()
		time.Sleep(time.Minute)
		tell("vm-2")
		time.Sleep(time.Minute)
		endB()
		for range events {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		happened.check(t, `
1m1s    a looks at vm-1
2m1s    b looks at vm-1
3m2s    b looks at vm-2
`)
	})
}

// owns reports whether an item belongs to shard i of n.
func owns(item string, i, n uint32) bool {
	h := fnv.New32a()
	h.Write([]byte(item))
	return h.Sum32()%n == i
}

func TestShards(t *testing.T) {
	const shards = 3
	count := make(map[string]int)
	for i := range uint32(shards) {
		queue := reconcile.NewQueue[string]()
		mine := reconcile.Filter(queue, func(item string) bool { return owns(item, i, shards) })
		for n := range 3000 {
			mine.Offer(fmt.Sprintf("vm-%d", n)) // all shards see all items
		}
		if n := queue.Len(); n < 800 || n > 1200 {
			t.Errorf("shard %d has %d of 3000 items, want about a third", i, n)
		}
		for item := range queue.All() {
			count[item]++
		}
	}
	if len(count) != 3000 {
		t.Errorf("%d items have a shard, want 3000", len(count))
	}
	for item, n := range count {
		if n != 1 {
			t.Errorf("%s is in %d shards, want 1", item, n)
		}
	}
}
