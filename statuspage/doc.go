// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package statuspage shows what reconcilers do: a live page for people, and the
// same as JSON for programs. It leads with how many items are in sync, and answers
// why the others are not: what state an item is in and since when, when it runs
// next, how often it failed and with which error, and how its last runs went.
//
//	assets := &statuspage.Loop[string]{Name: "assets", Queue: queue}
//	reconciler.OnResult = assets.OnResult(reconciler.OnResult)
//
//	group.Add("page", statuspage.Serve("127.0.0.1:8080", statuspage.New(assets)))
//
// A [Loop] is a queue and its reconciler; a page has any number of them. A
// [Group] is a [reconcile.Group] whose members are shown as well: a stream of
// events that broke explains why nothing happens. So do polls that fail, which [Poll]
// adds to the members, a [Gate] that is paused, and a [Listing], which is a set of things that
// keep.Set keeps.
//
// # In sync
//
// An item is in sync when its last run ended well and nothing is left to do. It
// waits only for a recheck, as [reconcile.RecheckWithin] asks, or the queue
// has it no more and the page remembers a last run that succeeded. An item for
// which the next run is planned or retried is waiting, and an item that was given
// up or cancelled is idle. An event makes an item that was in sync ready again.
// What was removed for good counts as in sync until the page forgets it, unless
// Loop.Wanted says that it is gone.
//
// # Cost
//
// A run costs a few hundred nanoseconds and no allocation, besides what the
// text of its error takes (BenchmarkOnResult). It never waits for another worker
// or for a reader: BenchmarkOnResultLocked measures it while all locks of the
// package are held, and TestOnResultNeverBlocks shows that nothing waits there.
// The price is that results may be dropped when workers are faster than what
// takes note of them; they are counted then, and the page says how many.
//
// The memory is bounded by [Loop.Runs]. While nobody looks, nothing runs: no
// goroutine, no timer, no call of the queue but one of Stats a second, by a
// worker that has a result. While somebody looks, the queue is asked for all its
// items once a [Page.Refresh], however many look: [reconcile.Queue.All] holds up
// the queue for some milliseconds if it has a hundred thousand items.
//
// # For programs
//
// Each page has a twin in JSON. Its fields are never renamed; new ones may come.
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
// Shown is the field of that name in the listing of status.json. It stands for the names of
// all things that would be deleted: if they are others by now, nothing is accepted.
//
// What may stand behind the question mark:
//
//	queue   the Name of a Loop; not needed if there is one alone
//	search  a part of the name or the error, in any case
//	state   all, in-sync, failing, in-flight, ready, waiting or idle
//	sort    attention, item, state, since, next, failures, last, duration or
//	        pending; with a hyphen in front for the reverse
//	page    from 1
//	size    of a page: 50, at most 1000
//	item    the name of an item, as it is shown
//	id      of the item, if several are shown alike
//
// An idle item is one that the queue does not know. The page remembers those
// that ran lately: an item that was given up is idle, and failing.
//
// The items of a queue in status.json are the sum of in_sync, in_flight, ready,
// waiting and idle. Those that fail are counted again in failing. Each item has
// in_sync, and beside it the phase in which the queue has it: one that is in sync
// has the phase "waiting" or "idle". A run that succeeded has next_seconds if it
// asked for a recheck.
//
// # Safety
//
// Names and errors may contain anything; they are text wherever they are shown.
// The page loads nothing from elsewhere, and its Content-Security-Policy allows
// no script but its own. Actions are off unless the program turns them on, see
// [Page.AllowActions]. There is no login: put a handler in front that asks for
// one, as an example of [Page] does, or listen on a loopback address. What an error
// says is shown to all who may look, unless Loop.FormatError leaves it out.
//
// # Ending
//
// A page that is open keeps a request going. [Serve] ends it when its own context
// ends. A server of the program's own has to do the same, because
// [http.Server.Shutdown] waits for requests for as long as it may:
//
//	server := &http.Server{
//		Handler:     page,
//		BaseContext: func(net.Listener) context.Context { return ctx },
//	}
package statuspage
