// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package natsadapter connects the kernel with NATS: it has feeders for what
// changes there. In [github.com/reconkernel/reconcile/adapters/nats/elect] one of many
// processes leads. The errors and logs of both begin with natsadapter.
//
// # Feeders
//
//	what changes                    events           list, for a Poller
//	a KeyValue bucket               [KeyValue]       [KeyValueItems]
//	an object store                 [Objects]        [ObjectItems]
//	a JetStream stream              [Consumer]
//	a core subject                  [Subject]        (see [OnReconnect])
//	secondaries, to their owners    [Secondaries]    [Secondaries.Owners]
//
// Each feeder runs until its context is done. What goes wrong in between is its
// own business: lost connections, a server that is killed or restarted, a bucket
// or stream that is not there yet, is deleted, or is another one of the same
// name. It logs when it cannot read and when it can again, to the
// [reconcile.Logger] of its context: that of the Group.
//
// A feeder has no use for Offer. Initial values of a watch are events too,
// because nobody knows what changed before it began, perhaps while an item was
// in flight. Observations come from a Poller over the same bucket: the resync.
//
// # Secondaries
//
// What a reconcile function makes in NATS says who owns it, in the headers of
// its message or in its value: [SetOwner], [OwnerKey].
// [Secondaries] writes and lists such entries of a bucket, and feeds the keys of
// their owners. Entries of other buckets that a reconcile function only looks
// at reach the items that did by [refs.Refs] and [reconcile.Map].
//
// # Guarantees
//
// Each guarantee names a test that shows it, against a real server.
//
//  1. A put, delete, purge or announced expiry that a bucket keeps is enqueued,
//     in order, whatever happens to server and connection
//     (TestKeyValueEvents, TestKeyValueSurvivesRestarts,
//     TestKeyValueLostConnection).
//  2. A watch that went stale is noticed (TestKeyValueStaleWatch), and a bucket
//     that is new, or was put back to an older state, is read from its beginning
//     (TestKeyValueNewBucket, TestKeyValueLostRevisions).
//     Slow and long links only take their time (TestKeyValueSlowLinks,
//     TestConsumerSlowLinks).
//  3. A list is complete, or there is an error (TestKeyValueItems), also while its
//     keys are written (TestListIsComplete, TestKeyValueItemsOverwritten). It needs
//     nats-server 2.11.5 or later: an earlier one may itself leave out keys, of those
//     that were written more than once.
//  4. A message of a stream is acknowledged only when the queue has its item
//     (TestConsumerAcknowledgesWhatIsTaken), and handed back at once by a feeder
//     that ends (TestConsumerHandsBack).
//  5. The deletion of a secondary reaches its owner (TestSecondaries).
//  6. When a [Primed] says so, all that was there has been enqueued (TestPrimed).
//
// The module needs nats-server only for its tests and its programs; importing
// its packages does not (TestDependencies). Feeders work with servers from 2.9 on
// (TestOldServer), but for the keys that one before 2.11.5 may leave out: also what a
// feeder finds when it begins is such a list.
package natsadapter
