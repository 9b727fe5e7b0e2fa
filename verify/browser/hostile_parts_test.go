// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/statuspage"
)

// A rejecting Set is one whose listings are rejected. It tells what was accepted.
type rejecting struct {
	err      error
	accepted chan error
}

func (r *rejecting) Stats() keep.Stats                      { return keep.Stats{Rejected: 1} }
func (r *rejecting) Age() time.Duration                     { return time.Hour }
func (r *rejecting) Rejected() (since time.Time, err error) { return time.Now(), r.err }
func (r *rejecting) Accept(err error) error                 { r.accepted <- err; return nil }

// newHostileParts returns a page with a gate and a rejected listing of each hostile name.
func newHostileParts(t *testing.T) (*statuspage.Page, []*gate.Gate, []*rejecting) {
	t.Helper()
	var parts []statuspage.Part
	var gates []*gate.Gate
	var sets []*rejecting
	for _, name := range hostile {
		g, s := new(gate.Gate), &rejecting{&keep.Rejection[string]{Keys: hostile}, make(chan error, 10)}
		gates, sets = append(gates, g), append(sets, s)
		parts = append(parts, &statuspage.Gate{Name: name, Gate: g}, &statuspage.Listing{Name: name, Of: s})
	}
	page := statuspage.New(parts...)
	page.AllowActions, page.Refresh, page.Logger = true, 50*time.Millisecond, newWorld(t).page.Logger
	return page, gates, sets
}

// TestHostileGatesAndListings presses each button of parts with hostile names: each is
// for its own part, and what the page shows is text.
func TestHostileGatesAndListings(t *testing.T) {
	page, gates, sets := newHostileParts(t)
	tb := open(t, page, "/")
	clean := func(when string) {
		t.Helper()
		if n := eval[int](tb, `document.querySelectorAll('main :is(img, iframe, style, base, meta, [onerror], [onfocus], [onbegin]), script:not([src])').length`); n != 0 {
			t.Errorf("%s: %d elements were injected", when, n)
		}
	}
	clean("loaded")
	button := func(table, i int, value string) string { // the first table is of the gates
		return fmt.Sprintf(`#gates section:nth-of-type(%d) tbody tr:nth-child(%d) button[value="%s"]`, table, i+1, value)
	}
	for i, g := range gates {
		tb.click(button(1, i, "1h"))
		tb.wait(fmt.Sprintf(`document.querySelector(%s) !== null`, quote(button(1, i, "go-on"))))
		if s := g.Stats(); time.Until(s.Until) < 59*time.Minute {
			t.Errorf("gate %q is not paused for an hour: %+v", hostile[i], s)
		}
		tb.click(button(1, i, "go-on"))
		tb.wait(`document.getElementById('said').innerText.startsWith('The pause has ended')`)
		if s := g.Stats(); time.Until(s.Until) > 0 {
			t.Errorf("gate %q does not go on: %+v", hostile[i], s)
		}
	}
	clean("after the gates")
	for i, s := range sets {
		tb.click(button(2, i, "accept"))
		select {
		case err := <-s.accepted:
			if err != s.err {
				t.Errorf("listing %q: %v was accepted, want what was shown", hostile[i], err)
			}
		case <-time.After(patience):
			t.Fatalf("listing %q: nothing was accepted: %q", hostile[i], tb.text("#said"))
		}
	}
	clean("after the listings")
	for i, s := range sets {
		if len(s.accepted) > 0 {
			t.Errorf("listing %q was accepted twice", hostile[i])
		}
	}
	// What was shown is another one by now: the button of the page that is open does nothing.
	tb.click("#live") // the page stays as it is
	sets[0].err = &keep.Rejection[string]{Keys: []string{"another"}}
	tb.click(button(2, 0, "accept"))
	tb.wait(`document.getElementById('said').innerText !== ''`)
	if len(sets[0].accepted) > 0 {
		t.Errorf("the button accepted another rejection than is shown: %q", tb.text("#said"))
	}
	tb.forgive("409")
}

// TestCrossSiteGatesAndListings has another site press the buttons of gates and listings.
func TestCrossSiteGatesAndListings(t *testing.T) {
	page, gates, sets := newHostileParts(t)
	target := newTab(t, page)
	evil := newTab(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(rw, `<!doctype html><title>evil</title>
			<form method=post action="%[1]s/gate"><input name=gate value="__proto__"><input name=action value=pause><button id=g name=for value=8h>go</button></form>
			<form method=post action="%[1]s/listing"><input name=listing value="__proto__"><input name=shown value=""><button id=l name=action value=accept>go</button></form>`, target.url)
	}))
	elsewhere := strings.Replace(evil.url, "127.0.0.1", "localhost", 1)
	for _, button := range []string{"#g", "#l"} {
		evil.load(elsewhere + "/")
		evil.clickAndLoad(button)
		if got := evil.text("body"); !strings.Contains(got, "refused: cross-origin request") {
			t.Errorf("a form of another site got %q", got)
		}
		evil.forgive("403")
	}
	for i := range hostile {
		if s := gates[i].Stats(); !s.PausedSince.IsZero() || len(sets[i].accepted) > 0 {
			t.Errorf("another site did something to %q: %+v", hostile[i], s)
		}
	}
}
