// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// A queue is what every implementation is measured through. Each adapter costs
// one call through this interface, so none is favoured.
type queue[T comparable] interface {
	Add(item T)
	AddAfter(item T, d time.Duration) // not before d

	// Get waits for an item. It reports false once the queue is closed.
	Get() (item T, ok bool)

	Done(item T)
	RequeueAfter(item T, d time.Duration) // Done, and again in d
	Fail(item T)                          // Done, and again after a back-off
	Len() int                             // ready items, all Adds so far included
	Close()
}

// An impl is one implementation and what it can do. Room is how many items a
// workload holds at most, for queues of a fixed size.
type impl struct {
	name    string
	strings func(room int) queue[string]
	pairs   func(room int) queue[pair]
	delayed func() queue[string] // with AddAfter and RequeueAfter; nil if it has no delays
	limited func() queue[string] // with Fail too
	loop    func(loop) error     // a controller around the queue; nil if it has none
	op      func(n int)          // a part of what a queue does, n times; only in the workload "parts"
	dedup   bool                 // an item that is queued is not queued twice
	slow    bool                 // takes ten times as long as the others
}

// A pair is the other kind of item that is measured: namespace and name.
type pair struct{ namespace, name string }

// Names of the implementations, as the tables show them.
const (
	nameOurs    = "reconcile"
	nameClient  = "client-go"
	nameCtrl    = "controller-runtime"
	nameMutex   = "mutex+map+slice"
	nameChannel = "channel"

	nameClientMetrics = nameClient + ", metrics on"
)

// queues lists the implementations in the order in which a round visits them.
var queues = []impl{
	{
		name: nameOurs, dedup: true,
		strings: newOurs[string], pairs: newOurs[pair],
		delayed: fixed(newOurs[string]), limited: fixed(newOurs[string]),
		loop: ourLoop,
	},
	{
		name: nameClient, dedup: true,
		strings: newClient[string], pairs: newClient[pair],
		delayed: newClientDelayed, limited: newClientLimited,
		loop: clientLoop,
	},
	{
		name: nameCtrl, dedup: true, slow: true,
		strings: newCtrl[string], pairs: newCtrl[pair],
		delayed: fixed(newCtrl[string]), limited: fixed(newCtrl[string]),
		loop: ctrlLoop,
	},
	{name: nameMutex, dedup: true, strings: newMutex[string], pairs: newMutex[pair]},
	{name: nameChannel, strings: newChannel[string], pairs: newChannel[pair]},
}

func fixed(make func(int) queue[string]) func() queue[string] {
	return func() queue[string] { return make(0) }
}

// noDelays is in the place of the verbs that a bound does not have. Workloads
// ask impl first, so a call is a mistake in this module.
type noDelays[T comparable] struct{}

func (noDelays[T]) AddAfter(T, time.Duration)     { panic("bench: this queue has no delays") }
func (noDelays[T]) RequeueAfter(T, time.Duration) { panic("bench: this queue has no delays") }
func (noDelays[T]) Fail(T)                        { panic("bench: this queue has no back-off") }
