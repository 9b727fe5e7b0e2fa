// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
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
	"github.com/reconkernel/reconcile/statuspage"
)

func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.fill()
		w.page.Title = "Cloud"
		text := body(t, get(t, w.page, "/"), http.StatusOK)
		for _, want := range []string{
			`<title id="title">2 of 7 in order · Cloud</title>`,
			`<span class="label">In order</span> <span class="count">2 of 7</span> <span class="detail">next look in 59 m 31 s</span>`,
			`<span class="label">Failing</span> <span class="count">2</span> <span class="detail">1 not retried</span>`,
			`<span class="label">In flight</span> <span class="count">1</span> <span class="detail">longest 30 s</span>`,
			`<span class="label">Waiting</span> <span class="count">3</span> <span class="detail">next in 59 m 31 s, 1 held</span>`,
			`<a data-key="name" href="item?item=refused&amp;queue=assets"><bdi>refused</bdi></a>`,
			"<bdi>region cannot change</bdi>",
			"<bdi>in sync</bdi>",
			"<bdi>being made</bdi>",
			`<span class="phase in-order">in order</span>`,
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
		if first := regexp.MustCompile(`<a class="tile ([^"]*)"`).FindStringSubmatch(text); first == nil || first[1] != "in-order" {
			t.Errorf("the first tile is %q, want that of what is in order", first)
		}
	})
}

// TestPageSorted checks what a screen reader is told of the order.
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
		record(reconcile.Result[string]{Item: "a", Outcome: reconcile.Retrying, Err: errors.New(text), Failures: 1})
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
			"well":     "All was well 29 s ago. It runs again only when it is fed again.",
			"fine":     "All was well 29 s ago. It is looked at again in 59 m 31 s; an event brings it sooner.",
			"planned":  "The next run is in 59 m 31 s; an event brings it sooner.",
			"held":     "The next run is in 1 h 59 m; it is held, and an event does not bring it sooner.",
			"retrying": "Its last run failed. The next try is in 59 m 31 s; an event brings it sooner.",
			"refused":  "Its last run failed. It failed for good 29 s ago: its error is one that no retry mends. It runs again only when it is fed again.",
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

// TestPageOfBlankItem opens items of whose names nothing is seen: there is
// something to click on, and to tell them apart by.
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

// TestPageStories goes through what can become of an item after which nobody
// tries again.
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
		if got, want := story(), "Its last run failed. It ran 1 s ago, and its next run was cancelled. It runs again only when it is fed again."; got != want {
			t.Errorf("after Remove: %q, want %q", got, want)
		}
		w.queue.Enqueue("a")
		sleep(3 * time.Hour)
		if got, want := story(), "Its last 3 runs failed. It was given up 59 m 57 s ago. It runs again only when it is fed again."; got != want {
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

// TestPageAllInOrder has a page whose items are all in order: those that wait for
// another look, and those that the queue has no more.
func TestPageAllInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if text := body(t, get(t, w.page, "/"), http.StatusOK); !strings.Contains(text, `<title id="title">Reconcilers</title>`) ||
			!strings.Contains(text, `<a class="tile in-order"`) {
			t.Error("a page without items says that they are in order")
		}
		w.returns("looked at", time.Millisecond, reconcile.RecheckWithin(time.Hour))
		w.queue.Enqueue("looked at")
		w.queue.Enqueue("done")
		sleep(time.Minute)
		text := body(t, get(t, w.page, "/"), http.StatusOK)
		for _, want := range []string{
			`<title id="title">2 of 2 in order · Reconcilers</title>`,
			`<a class="tile in-order done"`,
			`<span class="label">Waiting</span> <span class="count">0</span> <span class="detail"></span>`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if text := body(t, get(t, w.page, "/?state=in-order"), http.StatusOK); !strings.Contains(text, `name="state" value="in-order"`) {
			t.Error("a search does not keep to what is in order")
		}
		if text := body(t, get(t, w.page, "/?state=in-flight"), http.StatusOK); !strings.Contains(text, "No item is in flight.") {
			t.Error("the page does not say that no item is in flight")
		}
		w.queue.EnqueueAfter("looked at", time.Minute) // there is work to come
		sleep(time.Second)
		if text := body(t, get(t, w.page, "/"), http.StatusOK); !strings.Contains(text, "1 of 2 in order") {
			t.Error("an item with work to come is in order")
		}
	})
}

func TestPageSeveralQueues(t *testing.T) {
	a, b := reconcile.NewQueue[string](), reconcile.NewQueue[int]()
	a.Enqueue("settled")
	if _, err := a.Dequeue(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Requeue("settled", reconcile.Wait{Delay: time.Hour, Settled: true})
	a.Enqueue("x")
	b.Enqueue(42)
	page := statuspage.New(
		&statuspage.Loop[string]{Name: "words", Queue: a},
		&statuspage.Loop[int]{Name: "numbers", Queue: b, Format: func(n int) string { return fmt.Sprintf("no. %d", n) }},
	)
	text := body(t, get(t, page, "/?queue=numbers"), http.StatusOK)
	for _, want := range []string{`<title id="title">1 of 3 in order · Reconcilers</title>`, `<bdi>words</bdi></a></th><td class="n">1</td><td class="n">0</td>`, `<bdi>no. 42</bdi>`, `<a href="./?queue=words" data-nav><bdi>words</bdi></a>`, `<a href="./?queue=numbers" data-nav aria-current="true">`} {
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
		if strings.Contains(link[3], "b ") {
			phase = "waiting"
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

// TestPageWithoutQueue shows what is known by results alone.
func TestPageWithoutQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := &statuspage.Loop[string]{Name: "shared"}
		record := loop.OnResult(nil)
		page := statuspage.New(loop)
		page.AllowActions = true
		record(reconcile.Result[string]{Item: "a", Outcome: reconcile.Retrying, Err: errors.New("quota"), Failures: 2, Next: time.Minute})
		record(reconcile.Result[string]{Item: "b", Outcome: reconcile.Succeeded})
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
		"statuspage: New needs a *Loop or *Group, got nil":                 {nil},
		"statuspage: *statuspage.Loop[string].Name is required, and empty": {loop("")},
		`statuspage: there are two loops named "a"`:                        {loop("a"), loop("a")},
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

// TestFormatPanics has a Format that does not do for all items.
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
}
