// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package browser

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile"
)

// TestItemPage looks at an item with more runs than are kept, and at the next
// one as it comes.
func TestItemPage(t *testing.T) {
	w := newWorld(t)
	for i := range 24 {
		w.fail("a", fmt.Errorf("failure %d", i+1))
		w.run(t, "a")
	}
	tb := open(t, w.page, "/")
	tb.clickAndLoad(".items .name a")
	if got := tb.text("h1"); got != "a" {
		t.Errorf("the heading is %q", got)
	}
	tb.wait(`document.querySelectorAll('#runs tbody tr').length === 20`)
	if got := tb.text(".story"); !strings.Contains(got, "Its last 24 runs failed. The next try is in") {
		t.Errorf("the story is %q", got)
	}
	if got := tb.text("pre"); got != "failure 24" {
		t.Errorf("the error is %q", got)
	}
	w.fail("a", nil)
	w.run(t, "a")
	tb.wait(`document.querySelector('#runs tbody tr').innerText.includes('succeeded, again within 1 h')`)
	errorsJS := `[...document.querySelectorAll('#runs tbody tr')].map((tr) => tr.lastElementChild.innerText).join()`
	want := []string{"in sync"}
	for i := range 19 {
		want = append(want, fmt.Sprintf("failure %d", 24-i))
	}
	if got := eval[string](tb, errorsJS); got != strings.Join(want, ",") {
		t.Errorf("the errors of the runs are %s", got)
	}
	tb.wait(`document.querySelector('.story').innerText.includes('The recheck is in')`)
}

// TestReconcileNow presses the button of an item that is held for an hour.
func TestReconcileNow(t *testing.T) {
	w := newWorld(t)
	w.queue.EnqueueAfter("a", 3.6e12)
	tb := open(t, w.page, "/item?item=a")
	if got := tb.text(".story"); !strings.Contains(got, "it is held") {
		t.Errorf("the story is %q", got)
	}
	eval[bool](tb, "window.mark = true")
	tb.click("#item button[value=reconcile]")
	if got := w.ran(t); got != "a" {
		t.Errorf("%s ran", got)
	}
	tb.wait(`document.getElementById('said').innerText === 'Asked for a run now.'`)
	tb.wait(`document.querySelectorAll('#runs tbody tr').length === 1`)
	if got := eval[string](tb, "document.activeElement.value"); got != "reconcile" {
		t.Errorf("the focus is on %q", got)
	}
	if !eval[bool](tb, "window.mark") {
		t.Error("the page was loaded again")
	}
}

func TestCancelNext(t *testing.T) {
	w := newWorld(t)
	w.fail("a", errors.New("no"))
	w.run(t, "a")
	tb := open(t, w.page, "/item?item=a")
	tb.click("#item button[value=cancel]")
	tb.wait(`document.getElementById('said').innerText === 'The next run is cancelled.'`)
	tb.wait(`document.querySelector('.story').innerText.includes('its next run was cancelled')`)
	if s := w.queue.State("a"); s.Phase != reconcile.Idle {
		t.Errorf("the item is %v", s.Phase)
	}
	tb.wait(`document.querySelector('#item button[value=cancel]').disabled`) // there is no other
}

// TestRetryMany selects one of the items that fail, and then takes all of them.
func TestRetryMany(t *testing.T) {
	w := newWorld(t)
	failing := []string{"a", "b", "line\nfeed", " "}
	for _, item := range failing {
		w.fail(item, errors.New("quota exceeded"))
	}
	w.run(t, failing...)
	tb := open(t, w.page, "/")
	tb.wait(`document.querySelectorAll('.items input').length === 4`)
	eval[bool](tb, "window.mark = true")
	for _, item := range failing {
		w.fail(item, nil)
	}
	const selected = `[...document.querySelectorAll('.items input:checked')].map(b => b.value).join()`
	tb.click(".items input[value='line%0Afeed']")
	w.run(t, "another")
	tb.wait(`document.querySelectorAll('.items tbody tr').length === 5`)
	if got := eval[string](tb, selected); got != "line%0Afeed" {
		t.Errorf("when the table has changed, %q is selected", got)
	}
	tb.click(".retry button")
	if got := w.ran(t); got != failing[2] {
		t.Errorf("%q ran", got)
	}
	tb.wait(`document.getElementById('said').innerText === 'Asked for a run now.'`)
	tb.wait(`document.querySelectorAll('.items input').length === 3`)
	tb.wait(selected + ` === ''`)

	tb.click(".retry button[name=all]")
	for range 3 {
		w.ran(t)
	}
	tb.wait(`document.getElementById('said').innerText === 'Asked for 3 runs now.'`)
	tb.wait(`!document.querySelector('.retry') && !document.querySelector('.items input')`)
	if !eval[bool](tb, "window.mark && document.getElementById('said').checkVisibility()") {
		t.Error("the page was loaded again, or says nothing to the eye")
	}
}

// TestDetailsStayOpen unfolds an error: an update does not fold it.
func TestDetailsStayOpen(t *testing.T) {
	w := newWorld(t)
	w.fail("a", errors.New(strings.Repeat("long ", 100)))
	w.run(t, "a")
	tb := open(t, w.page, "/item?item=a")
	tb.click("#runs summary")
	w.fail("a", nil)
	w.run(t, "a")
	tb.wait(`document.querySelectorAll('#runs tbody tr').length === 2`)
	w.fail("a", errors.New(strings.Repeat("long ", 100)))
	w.run(t, "a")
	tb.wait(`document.querySelectorAll('#runs tbody tr').length === 3`)
	if n := eval[int](tb, "document.querySelectorAll('#runs details[open]').length"); n != 1 {
		t.Errorf("%d errors are unfolded, want 1", n)
	}
}

// TestWithoutJavaScript does all of it by links and forms.
func TestWithoutJavaScript(t *testing.T) {
	w := newWorld(t)
	var items []string
	for i := range 60 {
		items = append(items, fmt.Sprintf("item-%02d", i))
	}
	w.fail("item-59", errors.New("quota exceeded"))
	w.run(t, items...)
	tb := newTab(t, w.page)
	tb.withoutScripts()
	tb.load("/")
	if got := tb.names(); !strings.HasPrefix(got, "item-59 item-00") {
		t.Errorf("the table has %s", got)
	}
	if eval[bool](tb, "document.getElementById('live').checkVisibility()") {
		t.Error("a button is shown that does nothing")
	}
	tb.click(".items input")
	tb.clickAndLoad(".retry button")
	if got := w.ran(t); got != "item-59" {
		t.Errorf("%s ran", got)
	}
	if got := tb.text("#said"); got != "Asked for a run now." {
		t.Errorf("the page says %q", got)
	}
	tb.clickAndLoad("a[rel=next]")
	if got := tb.text(".range"); got != "51–60 of 60" {
		t.Errorf("the next page has %s", got)
	}
	tb.clickAndLoad(".items thead th:first-child a")
	tb.clickAndLoad(".items thead th:first-child a")
	if got := tb.names(); !strings.HasPrefix(got, "item-59 item-58") {
		t.Errorf("turned round the table has %s", got)
	}
	tb.click("#text")
	tb.keys("-59")
	tb.clickAndLoad("#search button")
	if got := tb.names(); got != "item-59" {
		t.Errorf("the search finds %s", got)
	}
	if got := eval[string](tb, "location.search"); !strings.Contains(got, "sort=-item") {
		t.Errorf("the search forgets the order: %s", got)
	}
	tb.clickAndLoad(".items .name a")
	if got := tb.text(".story"); !strings.Contains(got, "Its last 2 runs failed.") {
		t.Errorf("the story is %q", got)
	}
	tb.clickAndLoad("#item button[value=reconcile]")
	if got := w.ran(t); got != "item-59" {
		t.Errorf("%s ran", got)
	}
	if got := tb.text("#said"); got != "Asked for a run now." {
		t.Errorf("the page says %q", got)
	}
	tb.clickAndLoad("#item button[value=cancel]")
	if got := tb.text("#said"); got != "The next run is cancelled." {
		t.Errorf("the page says %q", got)
	}
	open(t, w.page, "/?state=idle").waitNames("item-59") // what one reader sees, another one is told who asks
	tb.clickAndLoad(".back a")
	tb.clickAndLoad(".tile.idle")
	if got := tb.names(); got != "item-59" {
		t.Errorf("idle are %s", got)
	}
}
