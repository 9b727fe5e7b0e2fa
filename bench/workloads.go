// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

// pick returns those implementations that can do what a workload needs.
func pick(can func(impl) bool, more ...impl) []impl {
	var list []impl
	for _, im := range append(queues[:len(queues):len(queues)], more...) {
		if can(im) {
			list = append(list, im)
		}
	}
	return list
}

func all(impl) bool            { return true }
func dedups(im impl) bool      { return im.dedup }
func delaysItems(im impl) bool { return im.delayed != nil }
func loops(im impl) bool       { return im.loop != nil }

// ctrlClient is controller-runtime's controller around client-go's queue.
var ctrlClient = impl{name: nameCtrl + ", workqueue", loop: ctrlLoopClient}

// workloads lists all that is measured, in the order in which it is.
var workloads = []*workload{
	{name: "parts", impls: parts, size: [...]int{1000, 100_000, 500_000}, rounds: [...]int{1, 3, 12}, run: part},

	{name: "cycle", impls: pick(all), size: [...]int{2000, 100_000, 300_000}, rounds: [...]int{1, 5, 16}, run: cycleStrings},
	{name: "cycle pairs", impls: pick(all), size: [...]int{2000, 100_000, 300_000}, rounds: [...]int{1, 5, 16}, run: cyclePairs},
	{name: "cycle held", impls: pick(all), size: [...]int{2000, 100_000, 300_000}, rounds: [...]int{1, 5, 16}, run: cycleHeld},
	{name: "add queued", impls: pick(dedups), size: [...]int{2000, 100_000, 500_000}, rounds: [...]int{1, 5, 16}, run: addQueued},
	{name: "add in flight", impls: pick(dedups), size: [...]int{2000, 100_000, 300_000}, rounds: [...]int{1, 5, 16}, run: addInFlight},
	{name: "clock", impls: clocks, size: [...]int{2000, 100_000, 300_000}, rounds: [...]int{1, 5, 16}, run: cycleStrings},

	{name: "burst", impls: pick(all), size: [...]int{2000, 200_000, 1_000_000}, rounds: [...]int{1, 3, 8}, run: burst},
	{name: "longest", impls: pick(all), size: [...]int{2000, 200_000, 1_000_000}, rounds: [...]int{1, 0, 3}, run: longest},
	{name: "fill delayed", impls: pick(delaysItems), size: [...]int{2000, 200_000, 1_000_000}, rounds: [...]int{1, 3, 8}, run: fillDelayed},
	{name: "fire", paced: true, impls: pick(delaysItems), size: [...]int{2000, 20_000, 100_000}, rounds: [...]int{1, 3, 10}, run: fire},
	{name: "requeue", impls: pick(delaysItems), size: [...]int{100, 10_000, 10_000}, rounds: [...]int{1, 3, 10}, run: requeue},
	{name: "fail", impls: pick(delaysItems), size: [...]int{2000, 50_000, 100_000}, rounds: [...]int{1, 3, 10}, run: failAll},

	{name: "crowd 2", impls: pick(all), size: [...]int{2000, 100_000, 100_000}, rounds: [...]int{1, 3, 10}, run: func(t *trial) error { return crowd(t, 2, 2) }},
	{name: "crowd 8", impls: pick(all), size: [...]int{2000, 100_000, 100_000}, rounds: [...]int{1, 3, 10}, run: func(t *trial) error { return crowd(t, 8, 8) }},
	{name: "crowd 64", impls: pick(all), size: [...]int{2000, 100_000, 100_000}, rounds: [...]int{1, 3, 10}, run: func(t *trial) error { return crowd(t, 64, 64) }},
	{name: "storm", impls: pick(dedups), size: [...]int{2000, 200_000, 800_000}, rounds: [...]int{1, 3, 10}, run: storm},
	{name: "wake", paced: true, impls: pick(all), size: [...]int{100, 500, 2000}, rounds: [...]int{1, 3, 10}, run: func(t *trial) error { return wake(t, false) }},
	{name: "wake busy", paced: true, impls: pick(all), size: [...]int{100, 200, 2000}, rounds: [...]int{1, 3, 10}, run: func(t *trial) error { return wake(t, true) }},

	{name: "loop", impls: pick(loops, ctrlClient), size: [...]int{1000, 100_000, 1_000_000}, rounds: [...]int{1, 3, 8}, run: func(t *trial) error { return loopAll(t, 1, noLog) }},
	{name: "loop 4", impls: pick(loops, ctrlClient), size: [...]int{1000, 100_000, 1_000_000}, rounds: [...]int{1, 1, 4}, run: func(t *trial) error { return loopAll(t, 4, noLog) }},
	{name: "loop info", impls: pick(loops, ctrlClient), size: [...]int{1000, 100_000, 1_000_000}, rounds: [...]int{1, 1, 4}, run: func(t *trial) error { return loopAll(t, 1, infoLog) }},
	{name: "loop late", paced: true, impls: pick(loops), size: [...]int{1000, 20_000, 100_000}, rounds: [...]int{1, 1, 4}, run: loopLate},
	{name: "loop wake", paced: true, impls: pick(loops), size: [...]int{100, 500, 2000}, rounds: [...]int{1, 3, 10}, run: loopWake},
}
