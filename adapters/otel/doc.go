// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package oteladapter traces the runs of a reconciler with OpenTelemetry, and
// measures them and their queue.
//
//	var telemetry oteladapter.Telemetry[string]
//	if err := telemetry.Instrument(&reconciler); err != nil {
//		return err
//	}
//
// # Spans
//
// Each run is a span of its own trace, called "reconcile" and the name of the
// reconciler, and of the kind consumer. Reconcile finds it in its context, so
// what it calls becomes part of the trace. Its attributes are:
//
//   - messaging.destination.name, the name of the reconciler;
//     messaging.system, messaging.operation.name and messaging.operation.type,
//     always "reconcile", "reconcile" and "process";
//   - reconcile.item, as fmt prints it;
//   - reconcile.outcome, in the words of [reconcile.Outcome];
//   - reconcile.failures, in a row, this run included;
//   - reconcile.waited, seconds ready in the queue before the run;
//   - reconcile.next, seconds to the next run, if one is planned;
//   - reconcile.recheck, true if the item is in sync and that run is only a recheck, as
//     RecheckWithin says;
//   - reconcile.reason, what a run said that planned the next, or was aborted;
//   - error.type, if the run failed. The span then has the status Error, and an
//     exception event, with the stack if it was a panic. Its text is that of the
//     error, whatever that says.
//
// A run whose OnResult is not called, because a policy or another hook panicked, has
// a span without these attributes of its result. It ends with the start of a run two
// minutes later, at the latest, or with [Telemetry.Close].
//
// Of a name, an item or an error, a span has the first 2 KiB, and U+FFFD in place of
// bytes that are not UTF-8, because an exporter of OTLP drops all spans that it sends
// together with a text that is too long or not UTF-8. Of a stack it has 16 KiB.
//
// The span is linked to those spans that asked for the run: to the ones of the
// feeder, if it feeds through [Telemetry.Enqueuer], with reconcile.cause
// "event"; and to the run before, if that one gave the item back, with
// "previous run". A link, not a parent: several events may be served by one run,
// and one run may serve an event long after.
//
// # Metrics
//
// messaging.process.duration is the name that OpenTelemetry's conventions have
// for the time that is spent on something taken from a queue. For the rest they
// have no names; those of our own begin with reconcile.
// They have the attribute messaging.destination.name, and those of a run also
// reconcile.outcome and error.type. No metric has the item. The states of
// reconcile.item.count are ready, waiting, in flight and recheck: an item in the
// state recheck is in sync, waits only for a recheck, and is not among the waiting.
//
// What is longest in flight is a metric, reconcile.run.age.max, because the span
// of a run that is stuck is not sent before it ends.
package oteladapter
