// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"hash/maphash"
	"runtime"
	"sync"
	"time"
)

// This file measures what a queue is made of, each part alone: the floor that
// no queue can go below.

var parts = []impl{
	{name: "time.Now", op: func(n int) {
		for range n {
			runtime.KeepAlive(time.Now())
		}
	}},
	{name: "time.Since", op: func(n int) {
		for range n {
			runtime.KeepAlive(time.Since(clockBase))
		}
	}},
	{name: "hash of a string", op: func(n int) {
		seed := maphash.MakeSeed()
		for i := range n {
			runtime.KeepAlive(maphash.Comparable(seed, partNames[i%len(partNames)]))
		}
	}},
	{name: "lock and unlock", op: func(n int) {
		var mu sync.Mutex
		for range n {
			mu.Lock()
			mu.Unlock() //lint:ignore SA2001 the pair is what is measured
		}
	}},
	{name: "three locks and a map", op: func(n int) {
		var mu sync.Mutex
		m := make(map[string]bool)
		for i := range n {
			item := partNames[i%len(partNames)]
			mu.Lock()
			m[item] = false
			mu.Unlock()
			mu.Lock()
			m[item] = true
			mu.Unlock()
			mu.Lock()
			delete(m, item)
			mu.Unlock()
		}
	}},
	{name: "wake-up by a channel", op: func(n int) {
		ping, pong := make(chan struct{}, 1), make(chan struct{}, 1)
		go func() {
			for range ping {
				pong <- struct{}{}
			}
		}()
		for range n {
			ping <- struct{}{}
			<-pong
		}
		close(ping)
	}},
}

var partNames = names(manyNames)

func part(t *trial) error {
	t.start()
	t.impl.op(t.n)
	t.stop("", t.n)
	return nil
}

// clocks are the implementations that show what it costs to know since when.
var clocks = []impl{
	queues[0],
	queues[1],
	{name: nameClientMetrics, strings: newClientMetrics[string], dedup: true},
	queues[3],
	{name: nameMutex + ", with a clock", strings: newMutexClock[string], dedup: true},
}
