// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package browser

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// TestFailingItemRises has the last of many items fail: it is first then, says
// why, and goes back to its place when it is well.
func TestFailingItemRises(t *testing.T) {
	w := newWorld(t)
	w.run(t, "a", "b", "c", "d", "zebra")
	tb := open(t, w.page, "/")
	tb.waitNames("a b c d zebra")
	w.fail("zebra", errors.New("quota of 100 buckets exceeded"))
	w.run(t, "zebra")
	tb.waitNames("zebra a b c d")
	if row := tb.text(".items tr.failing"); !strings.Contains(row, "zebra") || !strings.Contains(row, "quota of 100 buckets exceeded") {
		t.Errorf("the failing row is %q", row)
	}
	tb.wait(`document.querySelector('.tile.bad .count')?.innerText === '1'`)
	tb.wait(`document.title === '4 of 5 in sync · Reconcilers'`)
	w.fail("zebra", nil)
	w.run(t, "zebra")
	tb.waitNames("a b c d zebra")
	tb.wait(`document.querySelector('.items tr.failing') === null`)
}

// TestFocusIsKept has the focus on a link while rows come, go and change place.
func TestFocusIsKept(t *testing.T) {
	w := newWorld(t)
	w.run(t, "b", "c", "d")
	tb := open(t, w.page, "/")
	tb.waitNames("b c d")
	eval[bool](tb, `[...document.querySelectorAll('.items .name a')][1].focus() || true`)
	focused := func() string { return eval[string](tb, "document.activeElement.innerText") }
	w.run(t, "a")
	tb.waitNames("a b c d")
	if got := focused(); got != "c" {
		t.Errorf("after a row came above, the focus is on %q, want c", got)
	}
	w.fail("c", errors.New("no"))
	w.run(t, "c")
	tb.waitNames("c a b d")
	if got := focused(); got != "c" {
		t.Errorf("after the row rose, the focus is on %q, want c", got)
	}
	w.fail("c", nil)
	w.run(t, "c")
	tb.waitNames("a b c d")
	if got := focused(); got != "c" {
		t.Errorf("after the row sank, the focus is on %q, want c", got)
	}
}

// TestFocusOfARowThatGoes has the focus on a row that a search takes away: it
// stays near, and does not go to the top of the page.
func TestFocusOfARowThatGoes(t *testing.T) {
	w := newWorld(t)
	w.queue.EnqueueAfter("a", 1e18)
	w.queue.EnqueueAfter("b", 1e18)
	tb := open(t, w.page, "/")
	tb.waitNames("a b")
	eval[bool](tb, `document.querySelector('.items .name a').focus() || true`)
	w.queue.Remove("a")
	tb.waitNames("b")
	if got := eval[string](tb, "document.activeElement.id"); got != "items" {
		t.Errorf("the focus is on %q, want items", got)
	}
}

// TestPause stops the updates, and goes on.
func TestPause(t *testing.T) {
	w := newWorld(t)
	streams := newCounter(w.page)
	tb := open(t, streams, "/")
	streams.wait(t, 1)
	tb.click("#live")
	tb.wait(`document.getElementById('live').innerText === 'Paused'`)
	streams.wait(t, 0)
	w.run(t, "a")
	open(t, w.page, "/").waitNames("a") // what one reader sees, another one is told who asks
	if got := tb.names(); got != "" {
		t.Errorf("while paused came %s", got)
	}
	// What one asks for comes while paused too, once.
	tb.click(".tile.in-sync")
	tb.waitNames("a")
	streams.wait(t, 0)
	if got := tb.text("#live"); got != "Paused" {
		t.Errorf("after a click on a tile it is %q, want Paused", got)
	}
	tb.click("#live")
	w.run(t, "b")
	tb.waitNames("a b")
	if got := tb.text("#live"); got != "Live" {
		t.Errorf("it is %q, want Live", got)
	}
}

// TestReconnect has the server go away and come back at the same address. It keeps
// the port meanwhile, which could be another's afterwards: who asks is cut off.
func TestReconnect(t *testing.T) {
	w := newWorld(t)
	w.run(t, "a")
	var away atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler)
		}
		w.page.ServeHTTP(out, r)
	}))
	t.Cleanup(func() { // after the tab, which would complain
		server.CloseClientConnections()
		server.Close()
	})
	tb := newTab(t, http.NotFoundHandler())
	tb.load(server.URL + "/")
	tb.waitNames("a")
	away.Store(true)
	server.CloseClientConnections()
	tb.wait(`document.getElementById('live').innerText === 'Reconnecting'`)

	away.Store(false)
	w.run(t, "b")
	tb.waitNames("a b")
	tb.wait(`document.getElementById('live').innerText === 'Live'`)
	tb.forgive("ERR_")
}

// TestSearch types into the field: the table follows, the focus stays, and what
// is found can be linked to.
func TestSearch(t *testing.T) {
	w := newWorld(t)
	w.fail("key/a", errors.New("Quota exceeded"))
	w.run(t, "bucket/a", "bucket/b", "key/a")
	tb := open(t, w.page, "/?sort=item")
	tb.waitNames("bucket/a bucket/b key/a")
	tb.click("#text")
	tb.keys("BUCKET")
	tb.waitNames("bucket/a bucket/b")
	if got := eval[string](tb, "location.search"); got != "?sort=item&search=BUCKET" {
		t.Errorf("the address has %q", got)
	}
	if got := eval[string](tb, "document.activeElement.id"); got != "text" {
		t.Errorf("the focus is on %q", got)
	}
	tb.wait(`document.getElementById('said').innerText === 'Items 1–2 of 2'`)
	w.run(t, "bucket/c")
	tb.waitNames("bucket/a bucket/b bucket/c")
	if got := eval[string](tb, "document.getElementById('text').value"); got != "BUCKET" {
		t.Errorf("an update made %q of the text", got)
	}
	eval[bool](tb, `document.getElementById('text').select() || true`)
	tb.keys("quota")
	tb.waitNames("key/a")
	tb.keys("!")
	tb.wait(`document.querySelector('.empty')?.innerText === 'No item matches.'`)
	tb.keys(kb.Backspace + kb.Enter)
	tb.waitNames("key/a")
}

// TestSorting turns the table round by mouse and by keyboard.
func TestSorting(t *testing.T) {
	w := newWorld(t)
	w.run(t, "b", "c", "a")
	tb := open(t, w.page, "/")
	tb.waitNames("a b c")
	sorted := func() string {
		return eval[string](tb, `[...document.querySelectorAll('.items th[aria-sort]')].map((th) => th.innerText.trim() + ' ' + th.getAttribute('aria-sort')).join()`)
	}
	tb.click(".items thead th:nth-child(6) a")
	tb.waitNames("a c b") // the last run first
	if got := strings.ReplaceAll(sorted(), "▼", ""); strings.Join(strings.Fields(got), " ") != "Last run descending" {
		t.Errorf("aria-sort: %s", got)
	}
	tb.keys(kb.Enter) // the focus is on the link
	tb.waitNames("b c a")
	if got := sorted(); !strings.HasSuffix(got, "ascending") {
		t.Errorf("aria-sort: %s", got)
	}
	w.run(t, "b")
	tb.waitNames("c a b")
	if got := eval[string](tb, "document.activeElement.closest('th').getAttribute('aria-sort')"); got != "ascending" {
		t.Errorf("the focus is elsewhere: %s", got)
	}
	eval[bool](tb, "history.back() || true")
	tb.waitNames("b a c")
	eval[bool](tb, "history.back() || true")
	tb.waitNames("a b c")
}

// TestPaging goes through more items than a page has, live and back.
func TestPaging(t *testing.T) {
	w := newWorld(t)
	var items []string
	for i := range 120 {
		items = append(items, fmt.Sprintf("item-%03d", i))
	}
	w.run(t, items...)
	tb := open(t, w.page, "/")
	waitRange := func(want string) {
		t.Helper()
		tb.wait("document.querySelector('.range').innerText === " + quote(want))
	}
	waitRange("1–50 of 120")
	tb.click("a[rel=next]")
	tb.waitNames(strings.Join(items[50:100], " "))
	waitRange("51–100 of 120")
	tb.click("a[rel=next]")
	tb.waitNames(strings.Join(items[100:], " "))
	if got := eval[bool](tb, "document.querySelector('a[rel=next]') === null"); !got {
		t.Error("the last page has a link to the next")
	}
	w.run(t, "item-120")
	waitRange("101–121 of 121")
	eval[bool](tb, "history.back() || true")
	waitRange("51–100 of 121")
	tb.click(".tile.failing, .tile.bad")
	tb.wait(`document.querySelector('.empty')?.innerText === 'No item is failing.'`)
	if got := eval[string](tb, "document.querySelector('#tiles a[aria-current]').innerText"); !strings.HasPrefix(got, "Failing") {
		t.Errorf("the tile that is marked is %q", got)
	}
}

// TestHundredThousandItems opens a page of a long queue.
func TestHundredThousandItems(t *testing.T) {
	w := newWorld(t)
	for i := range 100_000 {
		w.queue.EnqueueAfter(fmt.Sprintf("item-%06d", i), 1e18)
	}
	tb := open(t, w.page, "/")
	tb.wait(`document.querySelector('.range').innerText === '1–50 of 100,000'`)
	tb.click(".pages a:last-child")
	tb.wait(`document.querySelector('.range').innerText === '99,951–100,000 of 100,000'`)
	tb.click("#text")
	tb.keys("077777")
	tb.waitNames("item-077777")
	if got := eval[int](tb, "document.querySelectorAll('*').length"); got > 1000 {
		t.Errorf("the page has %d elements", got)
	}
}
