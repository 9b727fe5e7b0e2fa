// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package elect runs something in one process of many: in the one that holds a
// lease, which is an entry of a KeyValue bucket of NATS.
//
// What [Elect] returns is a member of a Group. What only the leader does is
// inside: the queue, what feeds it, and the workers.
//
// # Guarantees
//
// Each guarantee names a test that shows it, against a real server.
//
//  1. When a leader begins, the context of each one before it has ended: also of
//     one that was frozen (TestElectFrozen), cut off (TestElectLostConnection),
//     or lives through restarts of the server (TestElectRestarts). The contexts of
//     runs of a Reconciler that has a Grace, or is in a Group, end with it only if its
//     queue is [Held] (TestHeld), also if the lease is lost during an orderly stop.
//  2. An orderly stop hands over at once (TestElectHandsOver), and only when
//     what ran has ended (TestElectKeepsTheLeaseWhileItEnds).
//  3. A lease that is deleted, purged or taken from outside ends the context of its leader
//     as soon as the leader hears of it (TestElectDeleted). If the bucket is made anew, no
//     candidate that saw the last one leads for a TTL (TestBucketThatIsMadeAnewHasOneLeader).
//
// It works with servers from 2.9 on (TestElectOldServer).
package elect
