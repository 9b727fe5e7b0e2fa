// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package postgres lets several processes share the work by PostgreSQL alone: a queue, a
// leader election, and a feeder for NOTIFY.
//
//   - [New] returns a [Queue], which takes the place of a [reconcile.Queue] in any number of
//     processes.
//   - [Elect] runs something in one process of many. [Fence] and [Guard] refuse the writes of
//     a leader, or of a run, that was replaced.
//   - [Listen] returns a Feeder of a channel, for the events of a trigger.
//
// They are one package, because a leader is the one item of a queue that is in flight: they
// share [Config], [Migrate], [Fence] and [Guard]. It needs PostgreSQL 12 or later, of which 15 is
// tested, and [github.com/jackc/pgx/v5].
//
// # Guarantees
//
// Each guarantee names a test that shows it, with a real server.
//
//  1. An item follows the state table of the kernel (TestTable, TestQueueTable), and its state is
//     that of the kernel's model, step by step (TestLockstep). [Queue] names the exceptions.
//  2. When a run of an item, or a term of a leader, begins, the context of each earlier one has
//     ended: also in a process that was stopped (TestElectFrozen) or cut off (TestElectCutOff).
//     An item is not freed by an old view of the leases (TestRowsChangeDuringAStatement), nor
//     taken by a process that still runs it (TestRunIsNotBesideItself). Runs
//     of a Reconciler that has a Grace end with the term only if its queue is [Held] (TestHeld).
//  3. A run that ended late cannot write: a transaction with [Guard] is committed only while the
//     item is this run's, and another process has the item only after it (TestGuard), also if
//     fences are used again (TestFenceIsUsedAgain).
//  4. A restart of the server within the lease ends no run and no term (TestElectRestart).
//  5. An event that was stored is followed by a run that began after it, also if the event came
//     while the item was given back (TestRowsChangeDuringAStatement), or in a transaction of the
//     user (TestEnqueueTx). An item that was taken by a request without an answer is freed
//     (TestFreesItemsOfALostAnswer).
//  6. [Queue.EnqueueTx] waits for no other transaction, in any isolation level (TestEnqueueTx).
//  7. An orderly stop gives everything back at once, once the runs have ended, and notifies the
//     other processes (TestClose, TestCloseNotifies, TestElectHandsOver).
//  8. If a row in flight is deleted by hand, or lost in a failover, its run or term ends within a
//     quarter of the lease (TestRunEndsWhenItsRowIsGone, TestElectRowDeleted).
//
// # Limits
//
// Leases and due times follow the database's clock alone. If that is set forward by more than a
// lease, as in a failover to a machine with another time, all leases end at once. Then an item
// may be in flight twice, or two processes may lead, until each process has tried to renew its
// lease, which takes a quarter of it. [Guard] and [Fence] hold. If the clock is set back, items
// that are ready or wait, and those of a process that died, wait longer by as much. An event of an
// item that waits for no MinDelay ends that.
//
// A server may lose commits: a standby that is promoted and was asynchronous, or a crash with
// synchronous_commit=off. Their events are lost: list and enqueue everything after a failover,
// as after a start. The numbers of [Fence] that they used are used again, as after a restore
// from a backup, and a system that keeps the greatest number then refuses writes until the
// sequence has passed it: set it, SELECT setval('reconcile.fence', <a greater number than any
// used>). [Guard] does not go by the number alone, and holds.
package postgres
