// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package browser

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestLive tests what the script of the page does: updates, searches and actions without
// loading the page again, and what happens when the connection breaks.
func TestLive(t *testing.T) {
	t.Run("updates keep the focus", testFocus)
	t.Run("pause", testPause)
	t.Run("search, sort and back", testSearch)
	t.Run("actions", testActions)
	t.Run("the connection breaks", testReconnect)
	t.Run("the login expires", testLogin)
	t.Run("no stream", testNoFlush)
}

// testFocus has the focus on an item that rises, sinks and is removed.
func testFocus(t *testing.T) {
	w := newWorld(t)
	w.run(t, "b", "d")
	w.queue.EnqueueAfter("c", 1e18)
	tb := open(t, w.page, "/")
	tb.waitNames("b c d")
	eval[bool](tb, `[...document.querySelectorAll('.items .name a')][1].focus() || true`)
	check := func(names string) {
		t.Helper()
		tb.waitNames(names)
		if got := eval[string](tb, "document.activeElement.innerText"); got != "c" {
			t.Errorf("with the rows %s, the focus is on %q, want c", names, got)
		}
	}
	w.run(t, "a")
	check("a b c d")
	w.fail("c", errors.New("quota of 100 buckets exceeded"))
	w.run(t, "c")
	check("c a b d")
	if row := tb.text(".items tr.failing"); !strings.Contains(row, "quota of 100 buckets exceeded") {
		t.Errorf("the failing row is %q", row)
	}
	tb.wait(`document.querySelector('.tile.bad .count')?.innerText === '1'`)
	w.fail("c", nil)
	w.run(t, "c")
	check("a b c d")
	eval[bool](tb, `(document.querySelector('#text').value = 'b') && document.querySelector('#text').dispatchEvent(new Event('input'))`)
	tb.waitNames("b")
	if got := eval[string](tb, "document.activeElement.id"); got != "items" {
		t.Errorf("after its row went, the focus is on %q, want items", got)
	}
}

func testPause(t *testing.T) {
	w := newWorld(t)
	tb := open(t, w.page, "/")
	tb.click("#live")
	tb.wait(`document.getElementById('live').innerText === 'Paused'`)
	w.run(t, "a")
	open(t, w.page, "/").waitNames("a") // the server sends it to a page that is live
	if got := eval[string](tb, namesJS); got != "" {
		t.Errorf("the paused page shows %s", got)
	}
	// What one asks for comes while paused too, once.
	tb.click(".tile.in-sync")
	tb.waitNames("a")
	if got := tb.text("#live"); got != "Paused" {
		t.Errorf("after a click on a tile it is %q, want Paused", got)
	}
	tb.click("#live")
	w.run(t, "b")
	tb.waitNames("a b")
	tb.wait(`document.getElementById('live').innerText === 'Live'`)
}

func testSearch(t *testing.T) {
	w := newWorld(t)
	w.run(t, "bucket/a", "bucket/b", "key/c")
	tb := open(t, w.page, "/")
	tb.waitNames("bucket/a bucket/b key/c")
	tb.click(".items thead th:nth-child(6) a") // the last run first
	tb.waitNames("key/c bucket/b bucket/a")
	tb.click("#text")
	tb.do(chromedp.KeyEvent("BUCKET"))
	tb.wait(`location.search === '?sort=last&search=BUCKET'`)
	tb.waitNames("bucket/b bucket/a")
	tb.waitSaid("Items 1–2 of 2")
	w.run(t, "bucket/d")
	tb.waitNames("bucket/d bucket/b bucket/a")
	if got := eval[string](tb, "document.activeElement.id + ' ' + document.activeElement.value"); got != "text BUCKET" {
		t.Errorf("after an update, the focus and the text are %q, want text BUCKET", got)
	}
	eval[bool](tb, "history.back() || true")
	tb.waitNames("bucket/a bucket/b bucket/d key/c")
}

// testActions presses buttons of the list and of an item. The page is not loaded again.
func testActions(t *testing.T) {
	w := newWorld(t)
	failing := []string{"a", "b", "line\nfeed"}
	for _, item := range failing {
		w.fail(item, errors.New("quota exceeded"))
	}
	w.run(t, failing...)
	tb := open(t, w.page, "/")
	tb.wait(`document.querySelectorAll('.items input').length === 3`)
	eval[bool](tb, "window.mark = true")
	for _, item := range failing {
		w.fail(item, nil)
	}
	const selected = `[...document.querySelectorAll('.items input:checked')].map(b => b.value).join()`
	tb.click(".items input[value='line%0Afeed']")
	w.run(t, "another")
	tb.wait(`document.querySelectorAll('.items tbody tr').length === 4`)
	if got := eval[string](tb, selected); got != "line%0Afeed" {
		t.Errorf("when the table has changed, %q is selected", got)
	}
	tb.click(".retry button")
	if got := w.ran(t); got != "line\nfeed" {
		t.Errorf("%q ran", got)
	}
	tb.waitSaid("Asked for a run now.")
	tb.wait(`document.querySelectorAll('.items input').length === 2 && ` + selected + ` === ''`)
	tb.click(".retry button") // and nothing is selected
	tb.wait(`document.getElementById('said').innerText.startsWith('no item is')`)
	tb.forgive("400")
	tb.click(".retry button[name=all]")
	w.ran(t)
	w.ran(t)
	tb.waitSaid("Asked for 2 runs now.")
	tb.wait(`!document.querySelector('.retry')`)
	if !eval[bool](tb, "window.mark && document.getElementById('said').checkVisibility()") {
		t.Error("the page was loaded again, or does not show what it says")
	}

	tb = open(t, w.page, "/item?item=a")
	tb.click("#item button[value=cancel]")
	tb.waitSaid("The next run is cancelled.")
	tb.wait(`document.querySelector('#item button[value=cancel]').disabled`)
}

// testReconnect has the server break all connections, and answer again later. An error
// that was unfolded stays so.
func testReconnect(t *testing.T) {
	w := newWorld(t)
	w.fail("a", errors.New(strings.Repeat("long ", 100)))
	w.run(t, "a")
	var away atomic.Bool
	tb := open(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler)
		}
		w.page.ServeHTTP(out, r)
	}), "/item?item=a")
	tb.click("#runs summary")
	away.Store(true)
	tb.server.CloseClientConnections()
	tb.wait(`document.getElementById('live').innerText === 'Reconnecting'`)
	tb.click("#item button[value=reconcile]")
	tb.waitSaid("The program did not answer; reload the page if you have to log in again.")
	away.Store(false)
	w.fail("a", nil)
	w.run(t, "a")
	tb.wait(`document.querySelectorAll('#runs tbody tr').length === 2`)
	tb.wait(`document.getElementById('live').innerText === 'Live'`)
	if n := eval[int](tb, "document.querySelectorAll('#runs details[open]').length"); n != 1 {
		t.Errorf("%d errors are unfolded, want 1", n)
	}
	tb.forgive("ERR_")
}

// testLogin has a login in front of the page that expires, and then works again.
func testLogin(t *testing.T) {
	w := newWorld(t)
	var expired atomic.Bool
	tb := open(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if expired.Load() {
			out.Header().Set("Content-Type", "text/html")
			_, _ = out.Write([]byte("<h1>Log in</h1>"))
			return
		}
		w.page.ServeHTTP(out, r)
	}), "/")
	tb.wait(`document.getElementById('live').innerText === 'Live'`)
	expired.Store(true)
	tb.server.CloseClientConnections()
	tb.wait(`document.getElementById('live').innerText === 'Reconnecting; reload the page if you have to log in again'`)
	expired.Store(false)
	tb.wait(`document.getElementById('live').innerText === 'Live'`)
	tb.forgive("error: ")
}

// testNoFlush has a handler around the page that hides http.Flusher: the page says that it
// is updated from time to time, and is.
func testNoFlush(t *testing.T) {
	w := newWorld(t)
	w.run(t, "a")
	tb := open(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.page.ServeHTTP(struct{ http.ResponseWriter }{out}, r)
	}), "/")
	tb.wait(`document.getElementById('live').innerText === 'Updated every 5 seconds'`)
	eval[bool](tb, `(window.seen = new Set()) && new MutationObserver(() => seen.add(document.getElementById('live').innerText)).observe(document.getElementById('live'), {childList: true, characterData: true, subtree: true}) || true`)
	w.run(t, "b")
	tb.waitNames("a b")
	if seen := eval[string](tb, "[...seen].join()"); strings.Contains(seen, "Reconnecting") || strings.Contains(seen, "Live") {
		t.Errorf("while it works, the button has said %s", seen)
	}
}
