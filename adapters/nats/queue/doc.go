// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package queue has a queue that the reconcilers of many processes share, kept by
// NATS JetStream. It takes the place of [reconcile.Queue]:
//
//	q, err := queue.New[string](ctx, js, queue.Config{Name: "vms"})
//	if err != nil {
//		return err
//	}
//	group.Add("vms", &reconcile.Reconciler[string]{Queue: q, Reconcile: makeVM})
//	err = group.Run(ctx)
//	return errors.Join(err, q.Close(closing)) // gives back what it holds
//
// # Guarantees
//
// Each guarantee names a test that shows it.
//
//  1. One item is in flight in one process at a time. A process that cannot renew
//     its lease has the contexts of its runs ended before anybody else may start
//     (TestQueueLeaseIsLost); [Fence] is for one that was frozen meanwhile
//     (TestQueueFrozen).
//  2. An event that was stored is followed by a run that started after it
//     (TestQueueOutbox), whatever happens to processes, servers and connections
//     (TestPlays and TestShortPlays have random faults).
//  3. The items of a process that is gone run again (TestJanitorAfterManyDeaths),
//     with the failures that there were (TestQueuePoison).
//
// It works with servers from 2.12 on, and refuses older ones
// (TestQueueRejectsTheServerOfTheDistribution).
//
// # Where to look
//
// What is asked of one item passes through queue.go, an operation in rules.go, the
// outbox, and wire.go to the server. What comes back is taken in take.go. The lease
// is in member.go, and who looks after processes that are gone in janitor.go. Each
// file knows of those before it: rules.go and codec.go of none, then message.go,
// wire.go, config.go, jetstream.go, and all that has a [Queue].
package queue
