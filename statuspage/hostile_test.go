// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"encoding/json"
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

// hostile are names that try to be more than text.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	`</title></style></script><svg onload=alert(1)>`,
	`javascript:alert(1)`,
	`{{.}} {{template "head"}} ${alert(1)}`,
	"line\nfeed\r\n\r\ndata: {\"items\": \"<b>x</b>\"}\n\nevent: regions\n",
	"nul\x00 bell\a escape\x1b[31m",
	"right to left \u202e gnp.exe \u2066 isolated \u2028 separated",
	"not UTF-8: \xff\xfe\xc0",
	"a/../../b?c=d&e=f#g%2e%00+ ;=",
	"//example.org/x",
	" ",
	"",
	strings.Repeat("long & ", 20_000),
}

// TestHostile has hostile names of items and queues, and hostile errors. Each item is
// found again by its URL, and each text appears only as text.
func TestHostile(t *testing.T) {
	for n, name := range hostile {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testHostile(t, name) })
		})
	}
}

func testHostile(t *testing.T, name string) {
	queue := reconcile.NewQueue[string]()
	queueName := "q" + name[:min(len(name), 1000)]
	loop := &statuspage.Loop[string]{Name: queueName, Queue: queue}
	group := &statuspage.Group{Name: name}
	paused := &gate.Gate{Logger: discard, Pause: func(error) time.Duration { return time.Hour }}
	page := statuspage.New(loop, group, &statuspage.Loop[string]{Name: "other"},
		&statuspage.Gate{Name: queueName, Gate: paused}, &statuspage.Listing{Name: queueName, Of: rejected{err: &keep.Rejection[string]{Keys: []string{name}}, accepted: new(error)}})
	page.AllowActions = true
	page.Logger = discard
	queue.Enqueue(name)
	queue.Close()
	if err := group.Watch(name, &reconcile.Reconciler[string]{
		Queue: queue, OnResult: loop.OnResult(nil), Logger: discard,
		Reconcile: func(context.Context, string) error { return reconcile.Terminal(errors.New(name)) },
	}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	failing := reconcile.RunFunc(func(context.Context) error { return errors.New(name) })
	if err := group.Watch(name, failing).Run(t.Context()); err == nil {
		t.Fatal("the failing runner ended well")
	}

	// What keeps items from running is shown too.
	done, err := paused.Admit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done(reconcile.OutcomeRetrying, errors.New(name), 0)

	plain := statuspage.New(&statuspage.Loop[string]{Name: "other", Queue: reconcile.NewQueue[string]()})
	// tags returns the names of all tags and of their attributes.
	tags := func(text string) map[string]bool {
		found := make(map[string]bool)
		for _, tag := range regexp.MustCompile(`<[^>]*`).FindAllString(text, -1) {
			tag = regexp.MustCompile(`"[^"]*"`).ReplaceAllString(tag, "")
			for name := range strings.FieldsSeq(tag) {
				found[name] = true
			}
		}
		return found
	}
	usual := tags(body(t, get(t, plain, "/"), http.StatusOK))
	for tag := range strings.FieldsSeq("<p </p <pre </pre <b </b <tr </tr <th </th <td </td <bdi </bdi <h2 </h2 <main <form </form <input " +
		"<button </button <details </details <summary </summary <section </section aria-labelledby= tabindex= method= data-action= form= formaction= aria-label= " +
		"data-key= data-label= title= type= name= value= aria-current= rel= disabled") {
		usual[tag] = true
	}
	check := func(where, text string) {
		t.Helper()
		for tag := range tags(text) {
			if !usual[tag] {
				t.Errorf("%s: %q came out as more than text: %s", where, name, tag)
			}
		}
	}

	list := body(t, get(t, page, "/?queue="+url.QueryEscape(queueName)), http.StatusOK)
	check("list", list)
	check("search", body(t, get(t, page, "/?search="+url.QueryEscape(name[:min(len(name), 200)])), http.StatusOK))

	var rows items
	fromJSON(t, get(t, page, "/items.json?queue="+url.QueryEscape(queueName)), &rows)
	if len(rows.Items) != 1 {
		t.Fatalf("%d items, want 1", len(rows.Items))
	}
	if rest, isCut := strings.CutSuffix(rows.Items[0].Name, " … (cut)"); isCut && len(name) > 4096 {
		if !strings.HasPrefix(name, rest) || len(rest) > 4096 {
			t.Errorf("the name in JSON is cut to %d bytes, %.20q", len(rest), rest)
		}
	} else if want := strings.ToValidUTF8(name, "\ufffd"); len([]rune(rows.Items[0].Name)) != len([]rune(name)) && rows.Items[0].Name != want {
		t.Errorf("the name in JSON is %q", rows.Items[0].Name)
	}
	href := regexp.MustCompile(`href="(item\?[^"]*)"`).FindStringSubmatch(list)
	if href == nil {
		t.Fatalf("no link to the item:\n%s", list)
	}
	link := html.UnescapeString(href[1])
	if len(link) > 4000 {
		t.Errorf("the link to the item has %d bytes; many servers refuse that", len(link))
	}
	one := body(t, get(t, page, "/"+link), http.StatusOK)
	check("item", one)
	if !strings.Contains(one, "with a terminal error") {
		t.Error("the link does not lead to the item")
	}

	var i item
	fromJSON(t, get(t, page, "/"+rows.Items[0].URL), &i)
	if i.Outcome != "terminal_error" {
		t.Errorf("the URL of the item leads to %+v", i)
	}

	// An action finds it too.
	action := html.UnescapeString(regexp.MustCompile(`<form id="actions" method="post" action="([^"]*)"`).FindStringSubmatch(one)[1])
	r := post(t, page, "/"+action, url.Values{"action": {"cancel"}})
	if r.StatusCode != http.StatusSeeOther || !strings.HasPrefix(r.Header.Get("Location"), "item?") {
		t.Errorf("the form answers %d to %q", r.StatusCode, r.Header.Get("Location"))
	}

	// So does one on what is selected in the list.
	box := html.UnescapeString(regexp.MustCompile(`name="escaped" value="([^"]*)"`).FindStringSubmatch(list)[1])
	to := html.UnescapeString(regexp.MustCompile(`formaction="([^"]*)"`).FindStringSubmatch(list)[1])
	r = post(t, page, "/"+to, url.Values{"action": {"reconcile"}, "escaped": {box}})
	if r.StatusCode != http.StatusSeeOther || !strings.HasPrefix(r.Header.Get("Location"), "./?") {
		t.Errorf("the form of what is selected answers %d to %q", r.StatusCode, r.Header.Get("Location"))
	}

	// The form of the search, which a browser sends with CRLF as every line end.
	sent := strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n").Replace(queueName)
	body(t, get(t, page, "/?search=x&queue="+url.QueryEscape(sent)), http.StatusOK)

	// And the stream, of which each event is two lines and an empty one.
	events := stream(t, page, "/events?queue="+url.QueryEscape(queueName))
	event := <-events
	check("event", event["items"])
	check("event", event["gates"])
	if len(event) != 8 {
		t.Errorf("the event has %d regions, want 8", len(event))
	}
}

// TestLongNamesAreCut has names of a megabyte. Each of them is found by what is left of
// it, and their ids tell them apart.
func TestLongNamesAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := reconcile.NewQueue[string]()
		var keys []string
		for i := range 20 {
			keys = append(keys, strings.Repeat("x", 1<<20)+fmt.Sprint(i))
			queue.EnqueueAfter(keys[i], time.Hour)
		}
		page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: queue},
			&statuspage.Loop[string]{Name: "panics", Queue: queue, Format: func(s string) string { panic(s) }},
			&statuspage.Listing{Name: "l", Of: rejected{err: &keep.Rejection[string]{Keys: keys}}})
		for target, status := range map[string]int{
			"/":                                   http.StatusOK,
			"/?queue=panics":                      http.StatusOK,
			"/items.json?queue=q":                 http.StatusOK,
			"/item?queue=q&item=" + keys[0][:512]: http.StatusMultipleChoices,
			"/status.json":                        http.StatusOK,
		} {
			if n := len(body(t, get(t, page, target), status)); n > 200_000 {
				t.Errorf("%.30s has %d bytes", target, n)
			}
		}
		var several struct{ Items []item }
		text := body(t, get(t, page, "/item.json?queue=q&item="+keys[0][:512]), http.StatusMultipleChoices)
		if err := json.Unmarshal([]byte(text), &several); err != nil || len(several.Items) != len(keys) {
			t.Fatalf("%d items, %v, want all of them", len(several.Items), err)
		}
		if n := len(body(t, get(t, page, "/"+several.Items[0].URL), http.StatusOK)); n > 20_000 {
			t.Errorf("an item has %d bytes", n)
		}
	})
}

// TestItemIsFoundByItsWholeName has names that are longer than those in URLs, and begin
// alike: a program finds each by the name that JSON shows.
func TestItemIsFoundByItsWholeName(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	long := strings.Repeat("x", 1000)
	for _, name := range []string{long + "1", long + "2", strings.Repeat("y", 10_000)} {
		queue.EnqueueAfter(name, time.Hour)
	}
	page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: queue})
	page.AllowActions, page.Logger = true, discard
	var all items
	fromJSON(t, get(t, page, "/items.json"), &all)
	names := url.Values{"action": {"reconcile"}}
	for _, shown := range all.Items {
		var i item
		fromJSON(t, get(t, page, "/item.json?item="+url.QueryEscape(shown.Name)), &i)
		if i.Name != shown.Name {
			t.Errorf("%.10s… leads to %.10s…", shown.Name, i.Name)
		}
		names.Add("item", shown.Name)
	}
	if text := body(t, post(t, page, "/items.json", names), http.StatusOK); !strings.Contains(text, "Asked for 3 runs now.") {
		t.Errorf("an action on three items: %s", text)
	}
}

// TestOtherSitesLoadNothing has a browser load the page for another site: as an image, a
// script, a frame or a stream. Whoever follows a link gets in.
func TestOtherSitesLoadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := &countingQueue{Queue: reconcile.NewQueue[string]()}
		page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: queue})
		for _, site := range []string{"cross-site", "same-site"} {
			for _, target := range []string{"/", "/items.json", "/status.json", "/item?item=a", "/item.json?item=a", "/events", "/script.js"} {
				for _, dest := range []string{"image", "script", "iframe", "empty"} {
					body(t, get(t, page, target, header("Sec-Fetch-Site", site), header("Sec-Fetch-Dest", dest)), http.StatusForbidden)
				}
			}
			if n := queue.all.Load(); n > 0 {
				t.Errorf("%s: the items were listed %d times", site, n)
			}
		}
		for _, target := range []string{"/", "/items.json"} {
			body(t, get(t, page, target, header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Dest", "document")), http.StatusOK)
			body(t, get(t, page, target, header("Sec-Fetch-Site", "same-origin"), header("Sec-Fetch-Dest", "empty")), http.StatusOK)
			body(t, get(t, page, target), http.StatusOK)
		}
	})
}
