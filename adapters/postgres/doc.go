// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package postgres lets several processes share the work by PostgreSQL alone: a queue, a
// leader election, and a feeder for NOTIFY.
//
//   - [New] returns a [Queue], which takes the place of a [reconcile.Queue] in any number of processes.
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
//  1. An item follows the state table of the kernel (TestTable), and what a queue knows of it is what the
//     model of the kernel says, step by step (TestLockstep). The exceptions are named at
//     [Queue].
//  2. When a run of an item, or a term of a leader, begins, the context of each earlier one has
//     ended: also in a process that was stopped (TestElectFrozen) or cut off (TestElectCutOff).
//     A row is never judged by what another row was before (TestRowsChangeDuringAStatement). Runs of a Reconciler that has
//     a Grace end with the term only if its queue is [Held] (TestHeld).
//  3. A run that ended late cannot write: a transaction with [Guard] is committed only while the
//     item is this run's, and another process has the item only after it (TestGuard).
//  4. A restart of the server within the lease ends no run and no term (TestElectRestart).
//  5. An event that was stored is followed by a run that began after it, also if it came while the
//     item was given back (TestRowsChangeDuringAStatement), in a transaction of the user (TestEnqueueTx), or
//     in a process that died before it heard that it was stored (TestFreesItemsOfALostAnswer).
//  6. [Queue.EnqueueTx] waits for no other transaction, in any isolation level (TestEnqueueTx).
//  7. An orderly stop gives everything back at once, once the runs have ended (TestClose,
//     TestElectHandsOver).
//  8. A row that is deleted by hand, or lost in a failover, ends the run or the term that it
//     was of (TestRunEndsWhenItsRowIsGone, TestElectRowDeleted).
//
// # What it does not guarantee
//
// Leases and due times follow the database's clock alone. If that is set forward by more than a lease,
// as in a failover to a machine with another time, all leases end at once: an item may be in
// flight twice, or two processes lead, until each process has tried to renew its lease, which
// takes a quarter of it. [Fence] and [Guard] hold. A clock that is set back makes due times late.
//
// A server that loses commits, such as a standby that is promoted and was asynchronous, or one with
// synchronous_commit=off that crashes, loses events with them, and may hand out a fence
// again. Enqueue everything after a failover, as after a start, and list in any case: an event is a hint.
package postgres
