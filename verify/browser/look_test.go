// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

// newFullWorld has something of everything that a page can show.
func newFullWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.fail("bucket/failing", errors.New("quota of 100 buckets exceeded"))
	w.fail("bucket/refused", reconcile.Terminal(errors.New(strings.Repeat("a long reason and ", 30))))
	w.run(t, "bucket/well", "bucket/failing", "bucket/refused", "bucket/"+strings.Repeat("very-long-name-", 20))
	w.queue.EnqueueAfter("bucket/held", 3.6e12)
	group := &statuspage.Group{Name: "Controller"}
	watched := group.Watch("event stream", reconcile.RunFunc(func(context.Context) error { return errors.New("connection reset") }))
	if err := watched.Run(t.Context()); err == nil {
		t.Fatal("it did not fail")
	}
	loop := &statuspage.Loop[string]{Name: "assets", Queue: w.queue}
	record := loop.OnResult(nil)
	record(reconcile.Result[string]{Item: "bucket/failing", Outcome: reconcile.Retrying, Err: errors.New("quota"), Failures: 1})
	other := &statuspage.Loop[string]{Name: "tenants", Queue: reconcile.NewQueue[string]()}
	w.page = statuspage.New(loop, other, group)
	w.page.AllowActions = true
	return w
}

// contrastJS finds the text of which the color is too near to what is behind it,
// by the rule of WCAG 2: 4.5 to 1, or 3 to 1 for large text.
const contrastJS = `(() => {
	const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
	const rgba = (color) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data];
	};
	const luminance = ([r, g, b]) => {
		const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * x + 0.7152 * y + 0.0722 * z;
	};
	const behind = (element) => {
		for (let e = element; e; e = e.parentElement) {
			const color = rgba(getComputedStyle(e).backgroundColor);
			if (color[3] === 255) return color;
		}
		return [255, 255, 255, 255];
	};
	const found = [];
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let seen = 0;
	while (walker.nextNode()) {
		const element = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest('.hidden, .skip, svg, script')) continue;
		seen++;
		const style = getComputedStyle(element);
		const [a, b] = [luminance(rgba(style.color)), luminance(behind(element))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700;
		if (ratio < (large ? 3 : 4.5)) found.push(walker.currentNode.data.trim().slice(0, 40) + ' ' + ratio.toFixed(2));
	}
	if (seen < 20) found.push('only ' + seen + ' texts are on the page');
	return found;
})()`

// TestLook goes through light and dark, wide and narrow, for what can be
// measured of a design: text that can be read, and a page that fits.
func TestLook(t *testing.T) {
	w := newFullWorld(t)
	tb := newTab(t, w.page)
	backgrounds := make(map[string]bool)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 768, 360} {
			tb.emulate(scheme, width, 800)
			for _, path := range []string{"/?queue=assets", "/item?queue=assets&item=bucket/failing"} {
				tb.load(path)
				where := fmt.Sprintf("%s, %s, %d pixels wide", path, scheme, width)
				if bad := eval[[]string](tb, contrastJS); len(bad) > 0 {
					t.Errorf("%s: too little contrast: %s", where, strings.Join(bad, "; "))
				}
				if got := eval[int64](tb, "document.documentElement.scrollWidth"); got > width {
					t.Errorf("%s: the page is %d pixels wide", where, got)
				}
			}
		}
		backgrounds[eval[string](tb, "getComputedStyle(document.body).backgroundColor")] = true
	}
	if len(backgrounds) != 2 {
		t.Errorf("light and dark look the same: %v", backgrounds)
	}
}

// An axNode is what a screen reader is told of an element.
type axNode struct{ role, name string }

// accessible returns what a screen reader is told of a page.
func (tb *tab) accessible() []axNode {
	tb.t.Helper()
	tree, err := chromedp.Call(tb.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		tb.t.Fatal(err)
	}
	text := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		var s string
		if err := json.Unmarshal(v.Value, &s); err != nil {
			tb.t.Fatal(err)
		}
		return s
	}
	var nodes []axNode
	for _, n := range tree.Nodes {
		if !n.Ignored {
			nodes = append(nodes, axNode{text(n.Role), text(n.Name)})
		}
	}
	return nodes
}

// TestScreenReader checks what a screen reader is told, on a wide page and on a
// narrow one, where the table looks like a list of cards.
func TestScreenReader(t *testing.T) {
	w := newFullWorld(t)
	tb := newTab(t, w.page)
	for _, width := range []int64{1280, 360} {
		tb.emulate("light", width, 800)
		tb.load("/?queue=assets&sort=-failures")
		nodes := tb.accessible()
		count := func(role string) int {
			n := 0
			for _, node := range nodes {
				if node.role == role {
					n++
				}
			}
			return n
		}
		for _, want := range []axNode{
			{"table", "Items of assets"},
			{"table", "Queues"},
			{"columnheader", "Next run"},
			{"searchbox", "Search"},
			{"button", "Search"},
			{"button", "Live: pause the updates of this page"},
			{"navigation", "Items by state"},
			{"navigation", "Pages"},
			{"heading", "Controller"},
			{"table", "Controller"},
			{"link", "Skip to the items"},
			{"link", "bucket/failing"},
		} {
			if !slices.Contains(nodes, want) {
				t.Errorf("%d pixels wide: there is no %s %q", width, want.role, want.name)
			}
		}
		// The queues, the items and the runners have 9, 7 and 5 columns.
		if n := count("columnheader"); n != 9+7+5 {
			t.Errorf("%d pixels wide: %d column headers, want 21", width, n)
		}
		if n := count("rowheader"); n != 2+4+1 {
			t.Errorf("%d pixels wide: %d row headers, want 7", width, n)
		}
		charts := 0
		for _, node := range nodes {
			if node.role == "image" && strings.Contains(node.name, "15 minutes") {
				charts++
			}
			if slices.Contains([]string{"link", "button", "image", "table", "searchbox"}, node.role) && strings.TrimSpace(node.name) == "" {
				t.Errorf("%d pixels wide: a %s has no name", width, node.role)
			}
		}
		if charts != 3 {
			t.Errorf("%d pixels wide: %d charts are told of, want 3", width, charts)
		}
	}
	tb.load("/item?queue=assets&item=bucket/failing")
	for _, want := range []axNode{
		{"heading", "bucket/failing"},
		{"button", "Reconcile now"},
		{"button", "Cancel the next run"},
		{"table", "Last runs"},
	} {
		if !slices.Contains(tb.accessible(), want) {
			t.Errorf("the page of an item has no %s %q", want.role, want.name)
		}
	}
}

// TestKeyboard goes through the page with the Tab key.
func TestKeyboard(t *testing.T) {
	w := newWorld(t)
	w.run(t, "a")
	tb := newTab(t, w.page)
	tb.emulate("light", 1280, 800)
	tb.load("/")
	tb.waitNames("a")
	focused := func() string {
		return eval[string](tb, "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || document.activeElement.name || document.activeElement.id || '').trim().split('\\n')[0]")
	}
	var got []string
	for range 20 {
		tb.keys(kb.Tab)
		if eval[bool](tb, "document.activeElement === document.body") {
			break
		}
		got = append(got, focused())
		if !eval[bool](tb, "(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1 })()") {
			t.Errorf("the focus on %q does not show", focused())
		}
	}
	want := []string{
		"Skip to the items", "Reconcilers", "Live: pause the updates of this page",
		"In sync", "All items", "Failing", "In flight", "Ready", "Waiting", "Idle",
		"search", "Search",
		"Item", "State", "Since", "Next run", "Failures", "Last run", "Took", "a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the focus goes over\n%q, want\n%q", got, want)
	}
	tb.load("/")
	tb.keys(kb.Tab)
	tb.keys(kb.Enter)
	tb.wait("document.activeElement.id === 'items'")
}
