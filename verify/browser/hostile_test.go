// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile"
)

// hostile are names and errors that try to be more than text. The browser would
// complain of a dialog, or of a breach of the Content-Security-Policy.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' autofocus onfocus='alert(1)`,
	`</a></td></table><iframe src="javascript:alert(1)"></iframe>`,
	`<svg><animate onbegin=alert(1) attributeName=x dur=1s>`,
	`<style>body{display:none}</style>`,
	`<base href="//evil.example/"><meta http-equiv=refresh content=0>`,
	`<form id=live action=x><input name=innerHTML>`,
	`javascript:alert(1)`,
	"two\nlines\r\n\r\nevent: regions\ndata: {\"items\": \"<b>x</b>\"}\n\n",
	`a/../../b?c=d&e=f#g%2e%00+ ;=`,
	`${alert(1)} {{alert(1)}} __proto__ constructor`,
	`__proto__`,
}

func TestHostileNames(t *testing.T) {
	w := newWorld(t)
	for _, name := range hostile {
		w.fail(name, errors.New("error "+name))
	}
	tb := open(t, w.page, "/?sort=item")
	elements := func(selector string) int {
		t.Helper()
		return eval[int](tb, fmt.Sprintf("document.querySelectorAll(%s).length", quote(selector)))
	}
	tb.wait(`document.querySelector('.empty') !== null`)
	w.run(t, hostile...) // they come live
	tb.wait(fmt.Sprintf("document.querySelectorAll('.items tbody tr').length === %d", len(hostile)))

	check := func(where string) {
		t.Helper()
		if n := elements("#items :is(script, img, iframe, svg, style, form, input:not([form=retry]), base, meta, [onerror], [onfocus], [onload])"); n != 0 {
			t.Errorf("%s: %d elements were injected", where, n)
		}
		if n := elements("script"); n != 1 {
			t.Errorf("%s: %d scripts, want 1", where, n)
		}
		shown := make(map[string]bool)
		for _, text := range eval[[]string](tb, `[...document.querySelectorAll('.items .name a')].map((a) => a.textContent)`) {
			shown[text] = true
		}
		for _, name := range hostile {
			if !shown[strings.ReplaceAll(strings.ReplaceAll(name, "\r\n", "\n"), "\r", "\n")] && !shown[name] {
				t.Errorf("%s: %q is not shown as it is", where, name)
			}
		}
	}
	check("live")
	tb.load("/?sort=item")
	check("loaded")
	links := eval[[]string](tb, `[...document.querySelectorAll('.items .name a')].map((a) => a.href)`)
	for i, link := range links {
		if !strings.HasPrefix(link, tb.url+"/item?") {
			t.Errorf("link %d leads to %s", i, link)
			continue
		}
		tb.load(link)
		text := eval[string](tb, "document.querySelector('h1 bdi').textContent")
		if want := "error " + text; eval[string](tb, "document.querySelector('pre bdi').textContent") != want {
			t.Errorf("the page of %q has another error", text)
		}
		if n := elements(":is(img, iframe, style, base, meta[http-equiv], #runs form, #item form)"); n != 0 {
			t.Errorf("the page of %q has %d elements too many", text, n)
		}
	}
	// The buttons find such an item too.
	for i, link := range links {
		tb.load(link)
		name := eval[string](tb, "document.querySelector('h1 bdi').textContent")
		tb.click("#item button[value=reconcile]")
		if got := strings.ReplaceAll(w.ran(t), "\r\n", "\n"); got != strings.ReplaceAll(name, "\r\n", "\n") {
			t.Errorf("the button of page %d is for %q, and %q ran", i, name, got)
		}
	}
}

// TestHostileSearch has a link that makes the page search for a script.
func TestHostileSearch(t *testing.T) {
	w := newWorld(t)
	tb := open(t, w.page, "/?search=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&queue=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
	if got := tb.text("h1"); got != "Not Found" {
		t.Errorf("an unknown queue gives %q", got)
	}
	tb.forgive("404")
	tb.load("/?search=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
	if got := eval[string](tb, "document.getElementById('text').value"); got != `"><script>alert(1)</script>` {
		t.Errorf("the field has %q", got)
	}
}

// TestCrossSite has another site try to press the buttons: by a form, by fetch,
// and by showing the page in a frame.
func TestCrossSite(t *testing.T) {
	w := newWorld(t)
	w.queue.EnqueueAfter("a", 3.6e12)
	target := newTab(t, w.page)
	// The same machine by another name is another site.
	evil := newTab(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(rw, `<!doctype html><title>evil</title>
			<form method=post action="%[1]s/item"><input name=queue value=assets><input name=item value=a><button name=action value=%[2]s>go</button></form>
			<iframe src="%[1]s/item?item=a"></iframe>`, target.url, r.FormValue("action"))
	}))
	elsewhere := strings.Replace(evil.url, "127.0.0.1", "localhost", 1)

	for _, action := range []string{"reconcile", "cancel"} {
		evil.load(elsewhere + "/?action=" + action)
		evil.forgive("frame-ancestors")
		evil.clickAndLoad("button")
		if got := evil.text("body"); !strings.Contains(got, "refused: cross-origin request") {
			t.Errorf("a form of another site got %q", got)
		}
		evil.forgive("403")
	}
	evil.load(elsewhere + "/")
	evil.forgive("frame-ancestors")
	for _, mode := range []string{"cors", "no-cors"} {
		got := eval[string](evil, fmt.Sprintf(`fetch('%s/item.json', {method: 'POST', mode: '%s', credentials: 'include',
			body: new URLSearchParams({queue: 'assets', item: 'a', action: 'reconcile'})}).then((r) => r.type, (e) => 'failed')`, target.url, mode))
		if got != "failed" && got != "opaque" {
			t.Errorf("fetch in mode %s of another site: %s", mode, got)
		}
	}
	// What the page tells is not for another site to read either.
	if got := eval[string](evil, fmt.Sprintf(`fetch('%s/items.json').then((r) => r.text(), (e) => 'failed')`, target.url)); got != "failed" {
		t.Errorf("another site reads %s", got)
	}
	if got := eval[string](evil, fmt.Sprintf(`new Promise((resolve) => {
		const events = new EventSource('%s/events');
		events.onerror = () => { events.close(); resolve('failed') };
		events.addEventListener('regions', (e) => { events.close(); resolve(e.data) });
	})`, target.url)); got != "failed" {
		t.Errorf("another site reads %s", got)
	}
	evil.forgive("CORS")
	if s := w.queue.State("a"); s.Phase != reconcile.Waiting || !s.NotBefore.Equal(s.Due) || w.queue.Stats().Taken != 0 {
		t.Errorf("another site did something: %+v", s)
	}
}

// TestJSONInBrowser opens what is for programs: it is not taken for a page.
func TestJSONInBrowser(t *testing.T) {
	w := newWorld(t)
	name := `<img src=x onerror=alert(1)>`
	w.run(t, name)
	tb := open(t, w.page, "/items.json")
	if got := eval[string](tb, "document.contentType"); got != "application/json" {
		t.Errorf("the type is %s", got)
	}
	var answer struct{ Items []struct{ Name string } }
	if err := json.Unmarshal([]byte(eval[string](tb, "document.body.querySelector('pre').textContent")), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Items) != 1 || answer.Items[0].Name != name {
		t.Errorf("the answer is %+v", answer)
	}
}
