// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/statuspage"
)

func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.fill()
		w.page.Title = "Cloud"
		text := body(t, get(t, w.page, "/"), http.StatusOK)
		for _, want := range []string{
			`<title id="title">2 of 7 in sync · Cloud</title>`,
			`<span class="label">In sync</span> <span class="count">2 of 7</span> <span class="detail">one has not been for 30 s</span>`,
			`<span class="label">Failing</span> <span class="count">2</span> <span class="detail">1 not retried</span>`,
			`<span class="label">In flight</span> <span class="count">1</span> <span class="detail">longest 30 s</span>`,
			`<span class="label">Waiting</span> <span class="count">3</span> <span class="detail">next in 59 m 31 s, 1 held</span>`,
			`<a data-key="name" href="item?item=refused&amp;queue=assets"><bdi>refused</bdi></a>`,
			"<bdi>region cannot change</bdi>",
			"<bdi>in sync</bdi>",
			"<bdi>being made</bdi>",
			`<span class="phase in-sync">in sync</span>`,
			"in 1 h 59 m <span class=\"held\">held</span>",
			`<span class="range">1–7 of 7</span>`,
			"Remembers up to 20,000 runs, at most 20 of an item.",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if refused, planned := strings.Index(text, "<bdi>refused"), strings.Index(text, "<bdi>planned"); refused > planned {
			t.Error("what fails is not above what is well")
		}
		if first := regexp.MustCompile(`<a class="tile ([^"]*)"`).FindStringSubmatch(text); first == nil || first[1] != "in-sync" {
			t.Errorf("the first tile is %q, want that of what is in sync", first)
		}
	})
}

// TestPageSorted checks how the order is described to a screen reader.
func TestPageSorted(t *testing.T) {
	page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()})
	sorted := regexp.MustCompile(`aria-sort="(\w+)"><a href="([^"]*)" data-nav>([^<]*)<`)
	for query, want := range map[string]string{
		"":               "",
		"sort=item":      "ascending Item ./?sort=-item",
		"sort=-item":     "descending Item ./?sort=item",
		"sort=failures":  "descending Failures ./?sort=-failures",
		"sort=-failures": "ascending Failures ./?sort=failures",
		"sort=last":      "descending Last run ./?sort=-last",
		"sort=since":     "ascending Since ./?sort=-since",
	} {
		var got []string
		for _, match := range sorted.FindAllStringSubmatch(body(t, get(t, page, "/?"+query), http.StatusOK), -1) {
			got = append(got, match[1]+" "+match[3]+" "+match[2])
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("%s: %q, want %q", query, text, want)
		}
	}
}

// TestPageOfItemRepeats checks that an error that stays the same is shown once.
func TestPageOfItemRepeats(t *testing.T) {
	loop := &statuspage.Loop[string]{Name: "q"}
	record := loop.OnResult(nil)
	for _, text := range []string{"first", "second", "second", "second"} {
		record(reconcile.Result[string]{Item: "a", Outcome: reconcile.OutcomeRetrying, Err: errors.New(text), Failures: 1})
	}
	text := body(t, get(t, statuspage.New(loop), "/item?item=a"), http.StatusOK)
	_, runs, _ := strings.Cut(text, `<div id="runs">`)
	if n := strings.Count(runs, "as above"); n != 2 {
		t.Errorf("%d errors are as above, want 2", n)
	}
	if n, m := strings.Count(runs, "<bdi>second</bdi>"), strings.Count(runs, "<bdi>first</bdi>"); n != 1 || m != 1 {
		t.Errorf("the errors are shown %d and %d times, want once each", n, m)
	}
}

func TestPageOfItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.fill()
		for item, want := range map[string]string{
			"well":     "The last run succeeded 29 s ago. It runs again only after the next event or poll.",
			"fine":     "The last run succeeded 29 s ago. The recheck is in 59 m 31 s; an event runs it sooner.",
			"planned":  "The next run is in 59 m 31 s; an event runs it sooner.",
			"held":     "The next run is in 1 h 59 m; it is held, and an event does not run it sooner.",
			"retrying": "Its last run failed. The next try is in 59 m 31 s; an event runs it sooner.",
			"refused":  "Its last run failed. It failed 29 s ago with a terminal error and is not retried. It runs again only after the next event or poll.",
			"running":  "It has been running for 30 s.",
		} {
			text := body(t, get(t, w.page, "/item?queue=assets&item="+item), http.StatusOK)
			if !strings.Contains(text, want) {
				t.Errorf("the page of %s lacks %q", item, want)
			}
			if strings.Contains(text, "<form") {
				t.Errorf("the page of %s has a form, and actions are not allowed", item)
			}
		}
		for item, want := range map[string]string{"fine": "succeeded, again within 1 h", "well": "succeeded"} {
			if text := body(t, get(t, w.page, "/item?item="+item), http.StatusOK); !strings.Contains(text, `<span>`+want+`</span>`) {
				t.Errorf("the run of %s is not shown as %q", item, want)
			}
		}
		w.queue.Enqueue("running")
		if text := body(t, get(t, w.page, "/item?item=running"), http.StatusOK); !strings.Contains(text, "It has a next run already.") {
			t.Error("the page does not say that the item runs again")
		}
	})
}

// TestPageOfBlankItem opens items with invisible names: each has a link, and can be
// distinguished.
func TestPageOfBlankItem(t *testing.T) {
	for name, want := range map[string]string{
		"":                        `""`,
		" ":                       `" "`,
		"\t\n":                    `"\t\n"`,
		"\u00a0\u3000":            `"\u00a0\u3000"`,
		"\u200b":                  `"\u200b"`,
		strings.Repeat(" ", 1000): `"` + strings.Repeat(" ", 20) + `…"`,
	} {
		queue := reconcile.NewQueue[string]()
		queue.Enqueue(name)
		page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: queue})
		text := body(t, get(t, page, "/"), http.StatusOK)
		link := regexp.MustCompile(`<a data-key="name" href="(item\?[^"]*)"><bdi>([^<]*)</bdi>`).FindStringSubmatch(text)
		if link == nil || html.UnescapeString(link[2]) != want {
			t.Errorf("the link to %.30q is %q, want %s", name, link, want)
			continue
		}
		one := body(t, get(t, page, "/"+html.UnescapeString(link[1])), http.StatusOK)
		if heading := `<h1 class="name"><bdi>` + link[2] + "</bdi></h1>"; !strings.Contains(one, heading) {
			t.Errorf("the page of %.30q lacks %s", name, heading)
		}
	}
}

// TestPageStories checks the text about each kind of item that has no next run.
func TestPageStories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		story := func() string {
			t.Helper()
			var i item
			fromJSON(t, get(t, w.page, "/item.json?item=a"), &i)
			return i.Story
		}
		w.returns("a", time.Second, errors.New("quota"))
		w.queue.Enqueue("a")
		sleep(2 * time.Second)
		w.queue.Remove("a")
		if got, want := story(), "Its last run failed. It ran 1 s ago, and its next run was cancelled. It runs again only after the next event or poll."; got != want {
			t.Errorf("after Remove: %q, want %q", got, want)
		}
		w.queue.Enqueue("a")
		sleep(3 * time.Hour)
		if got, want := story(), "Its last 3 runs failed. It failed 59 m 57 s ago and is not retried. It runs again only after the next event or poll."; got != want {
			t.Errorf("after the last retry: %q, want %q", got, want)
		}
		w.returns("b", time.Minute, nil)
		w.queue.Enqueue("b")
		w.queue.Enqueue("a")
		sleep(3 * time.Second)
		if got, want := story(), "It has been ready for 3 s, and runs as soon as a worker is free."; got != want {
			t.Errorf("when it is ready: %q, want %q", got, want)
		}
	})
}

// An item that requeues itself repeatedly shows for how long it has been out of sync, and
// why, also if no run of it is remembered.
func TestPageShowsPendingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.returns("a", time.Millisecond, fmt.Errorf("the disk is being made: %w", reconcile.RequeueWithin(10*time.Second)))
		w.queue.Enqueue("a")
		sleep(48*time.Hour + time.Second)
		table, page := body(t, get(t, w.page, "/"), http.StatusOK), body(t, get(t, w.page, "/item?item=a"), http.StatusOK)
		for text, want := range map[string]string{
			`<span class="ago">pending 2 d</span>`:                         table,
			`<span class="error"><bdi>the disk is being made</bdi></span>`: table,
			`It has been out of sync for 2 d.`:                             page,
			`<bdi>the disk is being made</bdi>`:                            page,
		} {
			if !strings.Contains(want, text) {
				t.Errorf("the page lacks %s", text)
			}
		}
		other := statuspage.New(&statuspage.Loop[string]{Name: "other", Queue: w.queue})
		if text := body(t, get(t, other, "/"), http.StatusOK); !strings.Contains(text, "<bdi>the disk is being made</bdi>") {
			t.Error("a page that remembers no run does not tell the reason that the queue has kept")
		}
	})
}

// TestPageAllInSync has a page whose items are all in sync: those that wait for a
// recheck, and those that left the queue.
func TestPageAllInSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if text := body(t, get(t, w.page, "/"), http.StatusOK); !strings.Contains(text, `<title id="title">Reconcilers</title>`) ||
			!strings.Contains(text, `<a class="tile in-sync"`) {
			t.Error("a page without items says that they are in sync")
		}
		w.returns("looked at", time.Millisecond, reconcile.RecheckWithin(time.Hour))
		w.queue.Enqueue("looked at")
		w.queue.Enqueue("done")
		sleep(time.Minute)
		text := body(t, get(t, w.page, "/"), http.StatusOK)
		for _, want := range []string{
			`<title id="title">2 of 2 in sync · Reconcilers</title>`,
			`<a class="tile in-sync done"`,
			`<span class="label">Waiting</span> <span class="count">0</span> <span class="detail"></span>`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if text := body(t, get(t, w.page, "/?state=in-sync"), http.StatusOK); !strings.Contains(text, `name="state" value="in-sync"`) {
			t.Error("a search does not keep to what is in sync")
		}
		if text := body(t, get(t, w.page, "/?state=in-flight"), http.StatusOK); !strings.Contains(text, "No item is in flight.") {
			t.Error("the page does not say that no item is in flight")
		}
		w.queue.EnqueueAfter("looked at", time.Minute) // there is work to come
		sleep(time.Second)
		if text := body(t, get(t, w.page, "/"), http.StatusOK); !strings.Contains(text, "1 of 2 in sync") {
			t.Error("an item with work to come is in sync")
		}
	})
}

func TestPageSeveralQueues(t *testing.T) {
	a, b := reconcile.NewQueue[string](), reconcile.NewQueue[int]()
	a.Enqueue("recheck")
	if _, err := a.Dequeue(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Requeue("recheck", reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
	a.Enqueue("x")
	b.Enqueue(42)
	page := statuspage.New(
		&statuspage.Loop[string]{Name: "words", Queue: a},
		&statuspage.Loop[int]{Name: "numbers", Queue: b, Format: func(n int) string { return fmt.Sprintf("no. %d", n) }},
	)
	text := body(t, get(t, page, "/?queue=numbers"), http.StatusOK)
	for _, want := range []string{`<title id="title">1 of 3 in sync · Reconcilers</title>`, `<bdi>words</bdi></a></th><td class="n">1</td><td class="n">0</td>`, `<bdi>no. 42</bdi>`, `<a href="./?queue=words" data-nav><bdi>words</bdi></a>`, `<a href="./?queue=numbers" data-nav aria-current="true">`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if text := body(t, get(t, page, "/"), http.StatusOK); !strings.Contains(text, "<bdi>x</bdi>") {
		t.Error("without a name it is not the first queue")
	}
	body(t, get(t, page, "/?queue=letters"), http.StatusNotFound)
}

// An alike is shown like another that it is not equal to.
type alike struct{ A, B string }

func TestPageOfItemsShownAlike(t *testing.T) {
	queue := reconcile.NewQueue[alike]()
	queue.Enqueue(alike{"a b", ""})
	queue.EnqueueAfter(alike{"a", "b "}, time.Hour)
	page := statuspage.New(&statuspage.Loop[alike]{Name: "q", Queue: queue, Format: func(x alike) string {
		return strings.TrimSpace(x.A + " " + x.B)
	}})
	page.AllowActions = true
	page.Logger = discard

	text := body(t, get(t, page, "/item?item=a+b"), http.StatusMultipleChoices)
	links := regexp.MustCompile(`href="(item\?id=(\w+)&amp;[^"]*)"><bdi>([^<]*)<`).FindAllStringSubmatch(text, -1)
	if len(links) != 2 {
		t.Fatalf("%d choices, want 2:\n%s", len(links), text)
	}
	for _, link := range links {
		phase := "ready"
		if strings.Contains(link[3], ", waiting (") {
			phase = "waiting"
		}
		if strings.Contains(link[3], "alike{") {
			t.Errorf("the choice %s shows more than Format does", link[3])
		}
		one := body(t, get(t, page, "/"+html.UnescapeString(link[1])), http.StatusOK)
		if !strings.Contains(one, `<span class="phase `+phase+`">`) {
			t.Errorf("the choice %s is not %s", link[3], phase)
		}
		if !strings.Contains(one, `action="item?id=`+link[2]+`&amp;`) {
			t.Error("the form does not say which of the two it is for")
		}
	}
	form := url.Values{"item": {"a b"}, "action": {"cancel"}}
	body(t, post(t, page, "/item.json", form), http.StatusConflict)
	form.Set("id", links[0][2])
	body(t, post(t, page, "/item.json", form), http.StatusOK)
	if n := queue.Stats().Ready + queue.Stats().Waiting; n != 1 {
		t.Errorf("%d items are left, want 1", n)
	}
	body(t, get(t, page, "/item.json?item=a+b&id=0"), http.StatusNotFound)
}

// TestPageWithoutQueue shows a loop that is known only by its results.
func TestPageWithoutQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &statuspage.Loop[string]{Name: "shared"}
		record := loop.OnResult(nil)
		page := statuspage.New(loop)
		page.AllowActions = true
		record(reconcile.Result[string]{Item: "a", Outcome: reconcile.OutcomeRetrying, Err: errors.New("quota"), Failures: 2, Next: time.Minute})
		record(reconcile.Result[string]{Item: "b", Outcome: reconcile.OutcomeSucceeded})
		text := body(t, get(t, page, "/"), http.StatusOK)
		if !strings.Contains(text, "<bdi>quota</bdi>") || strings.Contains(text, "In flight</span>") || strings.Contains(text, ">idle<") ||
			!strings.Contains(text, `<span class="count">1 of 2</span>`) {
			t.Errorf("the page claims to know the queue, or does not show the results:\n%s", text)
		}
		one := body(t, get(t, page, "/item?item=a"), http.StatusOK)
		if !strings.Contains(one, "cannot be seen from here") || strings.Contains(one, "<form") {
			t.Errorf("the page of an item claims to know the queue:\n%s", one)
		}
		body(t, post(t, page, "/item", url.Values{"item": {"a"}, "action": {"reconcile"}}), http.StatusForbidden)
	})
}

func TestNewPanics(t *testing.T) {
	loop := func(name string) statuspage.Part { return &statuspage.Loop[string]{Name: name} }
	for want, parts := range map[string][]statuspage.Part{
		"statuspage: New needs a *Loop, *Group, *Gate or *Listing, got nil": {nil},
		"statuspage: *statuspage.Loop[string].Name is required, and empty":  {loop("")},
		"statuspage: Gate.Name is required, and empty":                      {&statuspage.Gate{Gate: new(gate.Gate)}},
		`statuspage: Gate.Gate of gate "a" is required, and nil`:            {&statuspage.Gate{Name: "a"}},
		`statuspage: there are two gates named "a"`:                         {&statuspage.Gate{Name: "a", Gate: new(gate.Gate)}, &statuspage.Gate{Name: "a", Gate: new(gate.Gate)}},
		"statuspage: Listing.Name is required, and empty":                   {&statuspage.Listing{Of: new(keep.Set[int, int, int])}},
		`statuspage: Listing.Of of listing "a" is required, and nil`:        {&statuspage.Listing{Name: "a"}},
		`statuspage: Listing.Of of listing "b" is required, and nil`:        {&statuspage.Listing{Name: "b", Of: (*keep.Set[int, int, int])(nil)}},
		`statuspage: there are two listings named "a"`:                      {&statuspage.Listing{Name: "a", Of: new(keep.Set[int, int, int])}, &statuspage.Listing{Name: "a", Of: new(keep.Set[int, int, int])}},
		`statuspage: there are two loops named "a"`:                         {loop("a"), loop("a")},
		`statuspage: Queue of loop "a" is a nil *reconcile.Queue[string]`: {
			&statuspage.Loop[string]{Name: "a", Queue: (*reconcile.Queue[string])(nil)},
		},
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("New panics with %v, want %s", got, want)
				}
			}()
			statuspage.New(parts...)
		}()
	}
}

// TestFormatPanics has a Format that panics for some items.
func TestFormatPanics(t *testing.T) {
	queue := reconcile.NewQueue[int]()
	queue.Enqueue(1)
	queue.Enqueue(0)
	page := statuspage.New(&statuspage.Loop[int]{Name: "q", Queue: queue, Format: func(n int) string { return fmt.Sprint(10 / n) }})
	var got items
	fromJSON(t, get(t, page, "/items.json"), &got)
	want := "(Format panicked for this item: runtime error: integer divide by zero) 10"
	if got.names() != want {
		t.Errorf("items %s, want %s", got.names(), want)
	}

	levels := reconcile.NewQueue[level]()
	levels.Enqueue(1)
	fromJSON(t, get(t, statuspage.New(&statuspage.Loop[level]{Name: "q", Queue: levels}), "/items.json"), &got)
	if want := "(Format panicked for this item)"; got.names() != want {
		t.Errorf("items %s, want %s", got.names(), want)
	}
}

// A level panics when it is printed, and so does its panic.
type level int

func (l level) String() string { panic(l) }

// TestDesired has deleted items: an item that is no longer desired is shown and counted
// until its last run has succeeded.
func TestDesired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		undesired := ""
		w.loop.Desired = func(item string) bool {
			if undesired == "panic" {
				panic("the desired state cannot be read")
			}
			return item != undesired
		}
		w.fill()
		for _, test := range []struct {
			undesired string
			want      int
		}{{"", 7}, {"well", 6}, {"refused", 7}, {"retrying", 7}, {"fine", 7}, {"panic", 7}} {
			undesired = test.undesired
			time.Sleep(time.Minute) // then there is another snapshot
			var all items
			fromJSON(t, get(t, w.page, "/items.json"), &all)
			if len(all.Items) != test.want {
				t.Errorf("with %q undesired %d items are shown, want %d", test.undesired, len(all.Items), test.want)
			}
		}
	})
}

// TestReadOnlyLoop has a read-only loop beside one with actions.
func TestReadOnlyLoop(t *testing.T) {
	var loops []statuspage.Part
	for _, name := range []string{"open", "closed"} {
		queue := reconcile.NewQueue[string]()
		queue.EnqueueAfter("a", time.Hour)
		loops = append(loops, &statuspage.Loop[string]{Name: name, Queue: queue, ReadOnly: name == "closed"})
	}
	page := statuspage.New(loops...)
	page.AllowActions, page.Logger = true, discard
	for name, status := range map[string]int{"open": http.StatusOK, "closed": http.StatusForbidden} {
		form := url.Values{"queue": {name}, "item": {"a"}, "action": {"reconcile"}}
		body(t, post(t, page, "/item.json", form), status)
		shown := body(t, get(t, page, "/item?item=a&queue="+name), http.StatusOK)
		if got := strings.Contains(shown, "Reconcile now"); got != (status == http.StatusOK) {
			t.Errorf("the page of an item of %s has actions: %t", name, got)
		}
	}
}

// TestWholeError has an error longer than the part that is kept of each run: the page of
// its item shows it whole.
func TestWholeError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		long := strings.Repeat("quota exceeded, ", 4000)
		w.returns("a", 0, errors.New(long+"and again"))
		w.returns("b", 0, errors.New(long+long+"and again"))
		w.queue.Enqueue("a")
		w.queue.Enqueue("b")
		sleep(time.Second)
		for item, want := range map[string]string{"a": long + "and again</bdi></pre>", "b": " … (cut)</bdi></pre>"} {
			if shown := body(t, get(t, w.page, "/item?item="+item), http.StatusOK); !strings.Contains(shown, want) {
				t.Errorf("the page of %s lacks the end of its error", item)
			}
		}
	})
}

// refusing is a queue that cancels nothing.
type refusing struct {
	*reconcile.Queue[string]
	err error
}

func (r refusing) Remove(context.Context, string) (bool, error) { return false, r.err }

// unaccepted is a listing whose rejection is over when it is accepted.
type unaccepted struct{ rejected }

func (u unaccepted) Accept(err error) error { return fmt.Errorf("not rejected any more: %w", err) }

// TestFormatError has errors with a secret.
func TestFormatError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hide := func(err error) string {
			if strings.Contains(err.Error(), "panic") {
				panic("no text")
			}
			return strings.ReplaceAll(err.Error(), "s3cret", "…")
		}
		secret := errors.New("GET /?token=s3cret: 403")
		queue := reconcile.NewQueue[string]()
		loop := &statuspage.Loop[string]{Name: "q", Queue: refusing{queue, secret}}
		group := &statuspage.Group{}
		paused := &gate.Gate{Pause: func(error) time.Duration { return time.Hour }, Logger: discard}
		page := statuspage.New(loop, group, &statuspage.Gate{Name: "cloud", Gate: paused},
			&statuspage.Listing{Name: "buckets", Of: unaccepted{rejected{err: secret}}})
		page.FormatError, page.AllowActions, page.Logger = hide, true, discard
		_, err := statuspage.Poll(group, "list", func(context.Context) (int, error) { return 0, secret })(t.Context())
		if err != secret {
			t.Fatalf("Poll returned %v", err)
		}
		errs := map[string]error{"a": secret, "b": errors.New("panic")}
		r := &reconcile.Reconciler[string]{
			Queue: queue, OnResult: loop.OnResult(nil), Logger: discard, Admit: paused.Admit,
			Reconcile: func(_ context.Context, item string) error { return errs[item] },
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		queue.Enqueue("a")
		queue.Enqueue("b")
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, target := range []string{"/", "/item?item=a", "/item?item=b", "/item.json?item=a", "/items.json", "/status.json"} {
			all.WriteString(body(t, get(t, page, target), http.StatusOK))
		}
		var status struct{ Listings []struct{ Shown string } }
		fromJSON(t, get(t, page, "/status.json"), &status)
		stale := url.Values{"listing": {"buckets"}, "action": {"accept"}}
		all.WriteString(body(t, post(t, page, "/listing.json", stale), http.StatusConflict))
		stale.Set("shown", status.Listings[0].Shown)
		all.WriteString(body(t, post(t, page, "/listing.json", stale), http.StatusConflict))
		cancelNext := url.Values{"queue": {"q"}, "item": {"a"}, "action": {"cancel"}}
		all.WriteString(body(t, post(t, page, "/item.json", cancelNext), http.StatusServiceUnavailable))
		if strings.Contains(all.String(), "s3cret") || strings.Count(all.String(), "token=…") < 14 {
			t.Errorf("the pages have the secret, or nothing in its place:\n%s", all.String())
		}
		if !strings.Contains(all.String(), "(FormatError panicked for this error)") {
			t.Error("no page says that FormatError panicked")
		}
	})
}
