// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package statuspage is a live web page for reconcilers, and the same data as JSON for
// programs.
//
// It leads with the number of items that are in sync. For each of the other items it
// shows the state and since when, the next run, the number of failures in a row, the last
// error and the last runs.
//
//	assets := &statuspage.Loop[string]{Name: "assets", Queue: queue}
//	reconciler.OnResult = assets.OnResult(reconciler.OnResult)
//
//	group.Add("page", statuspage.Serve("127.0.0.1:8080", statuspage.New(assets)))
//
// A page has any number of parts:
//
//   - A [Loop] is a queue and its reconciler.
//   - A [Group] is a [supervise.Group] whose members are shown too. An event stream that
//     broke, or polls that fail, explain why items do not run. [Poll] adds a poll to the
//     members.
//   - A [Gate] is a gate.Gate: its budget and its pauses.
//   - A [Listing] is a keep.Set: its counts, and the deletions that it rejected.
//
// # In sync
//
// An item is in sync if its last run succeeded and no run is left to do. The queue then
// keeps it only for a recheck, which [reconcile.RecheckWithin] asked for, or does not
// know it, and the page remembers the run that succeeded. An event makes an item that was
// in sync ready again.
//
// An item with a requeue or a retry to come is waiting. An item that is not retried, or
// whose next run was cancelled, is idle.
//
// A deleted item counts as in sync until the page forgets its last run. To leave it out,
// set Loop.Desired.
//
// # Cost
//
// Recording a run takes a few hundred nanoseconds and allocates nothing, apart from the
// text of the run's error (BenchmarkOnResult). It never waits for another worker or for a
// reader (TestOnResultNeverBlocks; BenchmarkOnResultLocked measures it while all locks of
// the package are held). If workers are faster than the page can record, results are
// dropped. The page counts dropped results and shows their number.
//
// [Loop.Runs] bounds the memory. While the page has no reader, the package needs no
// goroutine and no timer. Its only call of the queue is then Stats, once a second, by a
// worker that has a result. While the page has readers, people or programs, the package
// reads all items of the queue once per [Page.Refresh], however many readers there are.
// In a queue of a hundred thousand items, [reconcile.Queue.All] holds the queue's lock
// for some milliseconds.
//
// # For programs
//
// Each page is also available as JSON. Fields are never renamed; new fields may be added.
//
//	curl 127.0.0.1:8080/status.json
//	curl '127.0.0.1:8080/items.json?queue=assets&state=failing&sort=-since&size=100'
//	curl '127.0.0.1:8080/item.json?queue=assets&item=bucket/invoices'
//	curl -d queue=assets -d item=bucket/invoices -d action=reconcile 127.0.0.1:8080/item.json
//	curl -d queue=assets -d item=a -d item=b -d action=reconcile 127.0.0.1:8080/items.json
//	curl -d queue=assets -d state=failing -d all=true -d action=reconcile 127.0.0.1:8080/items.json
//	curl -d gate=cloud -d action=pause -d for=1h 127.0.0.1:8080/gate.json
//	curl -d gate=cloud -d action=go-on 127.0.0.1:8080/gate.json
//	curl -d listing=buckets -d action=accept -d shown="$shown" 127.0.0.1:8080/listing.json
//
// In the last command, $shown is the field "shown" of the listing in status.json. It
// identifies the names of all things that would be deleted. If the set of names has
// changed since, nothing is accepted.
//
// The parameters of a query:
//
//	queue   the Name of a Loop; optional if the page has only one
//	search  a part of the name or of the error; case does not matter
//	state   all, in-sync, failing, in-flight, ready, waiting or idle
//	sort    attention, item, state, since, next, failures, last, duration or
//	        pending; with a hyphen in front for the reverse order
//	page    from 1
//	size    items per page: 50, at most 1000
//	item    the name of an item, as the page shows it
//	id      the id of the item, if several items have the same name
//
// An action with all=true applies to all items that queue, search and state find. It rejects
// item, id and unknown parameters.
//
// An idle item is not in the queue, but the page remembers its last runs. An item that is
// not retried is both idle and failing.
//
// In status.json, the items of a queue are the sum of in_sync, in_flight, ready, waiting
// and idle. The count failing overlaps with the others. Each item has in_sync and,
// separately, its phase in the queue: an item in sync has the phase "waiting" or "idle".
// A run that succeeded has next_seconds only if it asked for a recheck.
//
// # Safety
//
// Names and errors may contain anything: the page shows them as text. The page loads
// nothing from other sites, and its Content-Security-Policy allows only its own script.
// Another site can link to the page, but cannot load it into a page of its own.
// Actions are off unless the program sets [Page.AllowActions].
//
// There is no login. Put a handler that asks for one in front, as an example of [Page]
// does, or listen on a loopback address. Every reader of the page sees the text of
// errors; [Page.FormatError] can leave secrets out.
//
// # Ending
//
// An open page keeps a request going. [Serve] ends such requests when its own context
// ends. If your program has its own server, do the same, because [http.Server.Shutdown]
// waits for requests until its own context ends:
//
//	server := &http.Server{
//		Handler:     page,
//		BaseContext: func(net.Listener) context.Context { return ctx },
//	}
package statuspage
