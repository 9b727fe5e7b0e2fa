// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

func form(item, action string) url.Values {
	return url.Values{"queue": {"assets"}, "item": {item}, "action": {action}}
}

func TestReconcileNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.page.AllowActions = true
		w.fill()
		for _, item := range []string{"held", "planned", "retrying", "refused", "well"} {
			ran := false
			w.does(item, func(context.Context) error { ran = true; return nil })
			if text := body(t, get(t, w.page, "/item?item="+item), http.StatusOK); !strings.Contains(text, "Reconcile now") {
				t.Errorf("the page of %s has no button", item)
			}
			r := post(t, w.page, "/item", form(item, "reconcile"))
			body(t, r, http.StatusSeeOther)
			if got, want := r.Header.Get("Location"), "item?id="; !strings.HasPrefix(got, want) {
				t.Errorf("it leads to %q, want %q", got, want)
			}
			synctest.Wait()
			if !ran {
				t.Errorf("%s did not run", item)
			}
			if text := body(t, get(t, w.page, "/"+r.Header.Get("Location")), http.StatusOK); !strings.Contains(text, "Asked for a run now.") {
				t.Errorf("the page of %s does not say what was done", item)
			}
		}
	})
}

func TestCancelNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.page.AllowActions = true
		w.fill()
		w.queue.Enqueue("running")
		for _, test := range []struct{ item, want, phase string }{
			{"held", "The next run is cancelled.", "idle"},
			{"retrying", "The next run is cancelled.", "idle"},
			{"running", "The next run is cancelled.", "in flight"},
			{"running", "There was no next run to cancel.", "in flight"},
			{"well", "There was no next run to cancel.", "idle"},
		} {
			var got struct{ Message string }
			fromJSON(t, post(t, w.page, "/item.json", form(test.item, "cancel")), &got)
			if got.Message != test.want {
				t.Errorf("cancel %s: %q, want %q", test.item, got.Message, test.want)
			}
			var i item
			fromJSON(t, get(t, w.page, "/item.json?item="+test.item), &i)
			if i.Phase != test.phase || i.Again {
				t.Errorf("%s is %s, again %v; want %s", test.item, i.Phase, i.Again, test.phase)
			}
			shown := body(t, get(t, w.page, "/item?item="+test.item), http.StatusOK)
			if !strings.Contains(shown, `value="cancel" disabled>`) {
				t.Errorf("%s has no next run, and the button that cancels it is not disabled", test.item)
			}
		}
	})
}

// TestReconcileMany requests runs of the named items, or of all items that a query finds.
func TestReconcileMany(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	loop := &statuspage.Loop[string]{Name: "assets", Queue: queue, Format: func(item string) string { return strings.TrimRight(item, "'") }}
	page := statuspage.New(loop, &statuspage.Loop[string]{Name: "others", Queue: reconcile.NewQueue[string]()})
	page.AllowActions = true
	var log bytes.Buffer
	page.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	report := loop.OnResult(nil)
	restore := func() { // four fail, of which one is blank; two of the others are shown alike
		for _, item := range []string{"disk-1", "disk-2", "net-1", "", "well", "alike", "alike'"} {
			queue.Remove(item)
			queue.EnqueueAfter(item, time.Hour)
			outcome, err := reconcile.OutcomeRetrying, errors.New("no room")
			if strings.HasPrefix(item, "well") || strings.HasPrefix(item, "alike") {
				outcome, err = reconcile.OutcomeSucceeded, nil
			}
			report(reconcile.Result[string]{Item: item, Outcome: outcome, Err: err, Failures: 1})
		}
	}
	for _, test := range []struct {
		name, target, form string
		status             int
		answer, ready      string
		log                string
	}{
		{"two", "/items.json?queue=assets", "item=disk-1&item=well&action=reconcile", 200, "Asked for 2 runs now.", "disk-1 well", `msg="statuspage: action" action=reconcile queue=assets items=2 item="[\"disk-1\" \"well\"]" from=192.0.2.1:1234`},
		{"the blank", "/items.json", "queue=assets&item=&action=reconcile", 200, "Asked for a run now.", "", `items=1 item="[\"\"]"`},
		{"as a browser sends it", "/items.json?queue=assets", "escaped=disk%252D1&action=reconcile", 200, "Asked for a run now.", "disk-1", ""},
		{"badly escaped", "/items.json?queue=assets", "escaped=%25x&action=reconcile", 400, "escaped: ", "-", ""},
		{"one twice", "/items.json?queue=assets", "item=well&item=well&action=reconcile", 200, "Asked for a run now.", "well", ""},
		{"one that is gone", "/items.json?queue=assets", "item=well&item=gone&action=reconcile", 200, "Asked for a run now.", "well", ""},
		{"all that fail", "/items.json?queue=assets&state=failing", "all=true&escaped=well&action=reconcile", 200, "Asked for 4 runs now.", " disk-1 disk-2 net-1", `items=4 query="?queue=assets&state=failing"`},
		{"all by form", "/items.json", "queue=assets&state=failing&search=DISK&all=true&action=reconcile", 200, "Asked for 2 runs now.", "disk-1 disk-2", ""},
		{"cancel", "/items.json?queue=assets", "item=disk-1&item=net-1&action=cancel", 200, "The next runs of 2 items are cancelled.", "", ""},
		{"on paper", "/items?queue=assets&state=failing&page=1", "all=true&action=reconcile", 303, "./?queue=assets&state=failing&notice=reconcile-many", " disk-1 disk-2 net-1", ""},
		{"none", "/items.json?queue=assets", "action=reconcile", 400, "no item is selected: want item=NAME, as often as needed, or all=true", "-", ""},
		{"only gone", "/items.json?queue=assets", "item=gone&action=reconcile", 404, "no such item is known any more", "-", ""},
		{"none fails", "/items.json?queue=others&state=failing", "all=true&action=reconcile", 404, "no such item is known any more", "-", ""},
		{"a misspelled query", "/items.json?queue=assets", "status=failing&all=true&action=reconcile", 400, `parameter \"status\" does not go with all=true`, "-", ""},
		{"all and one", "/items.json?queue=assets", "item=well&all=true&action=reconcile", 400, `parameter \"item\" does not go with all=true`, "-", ""},
		{"not all", "/items.json?queue=assets", "all=false&item=well&action=cancel", 400, `all \"false\": want true`, "-", ""},
		{"alike", "/items.json?queue=assets", "item=well&item=alike&action=reconcile", 409, `several items are shown as \"alike\"`, "-", ""},
		{"no queue", "/items.json?queue=x", "item=well&action=reconcile", 404, `no queue \"x\"`, "-", ""},
		{"no such state", "/items.json?queue=assets&state=x", "all=true&action=reconcile", 400, `no state \"x\"`, "-", ""},
		{"no action", "/items.json?queue=assets", "item=well&action=explode", 400, "no action", "-", ""},
	} {
		restore()
		log.Reset()
		form, err := url.ParseQuery(test.form)
		if err != nil {
			t.Fatal(err)
		}
		r := post(t, page, test.target, form)
		answer := r.Header.Get("Location") + body(t, r, test.status)
		if !strings.Contains(answer, test.answer) {
			t.Errorf("%s: it answers %s, want %s", test.name, answer, test.answer)
		}
		var ready []string
		for item, state := range queue.All() {
			if state.Phase == reconcile.PhaseReady {
				ready = append(ready, item)
			}
		}
		slices.Sort(ready)
		if got := strings.Join(ready, " "); got != strings.Trim(test.ready, "-") {
			t.Errorf("%s: %q are ready, want %q", test.name, got, test.ready)
		}
		if !strings.Contains(log.String(), test.log) || (log.Len() > 0) != (test.status < 400) {
			t.Errorf("%s: the log has %s, want %s", test.name, &log, test.log)
		}
	}
}

// TestRetryButtons checks on which pages the buttons for TestReconcileMany's requests
// appear.
func TestRetryButtons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := reconcile.NewQueue[string]()
		loop := &statuspage.Loop[string]{Name: "assets", Queue: queue}
		page := statuspage.New(loop)
		report := loop.OnResult(nil)
		report(reconcile.Result[string]{Item: "well", Outcome: reconcile.OutcomeSucceeded})
		const buttons, box = `<button form="retry"`, `<input type="checkbox" `
		if text := body(t, get(t, page, "/"), http.StatusOK); strings.Contains(text, `"retry"`) {
			t.Error("there are buttons though actions are not allowed")
		}
		page.AllowActions = true
		if text := body(t, get(t, page, "/"), http.StatusOK); strings.Contains(text, buttons) || strings.Contains(text, box) {
			t.Error("there are buttons though nothing fails")
		}
		time.Sleep(time.Second) // what was shown is out of date then
		report(reconcile.Result[string]{Item: "bad & worse", Outcome: reconcile.OutcomeTerminal, Err: errors.New("no room"), Failures: 1})
		report(reconcile.Result[string]{Item: "bad", Outcome: reconcile.OutcomeTerminal, Err: errors.New("no name"), Failures: 1})
		for target, want := range map[string][]string{
			"/":                          {">Reconcile all 2 failing now</button>", `formaction="items?state=failing"`, `value="bad+%26+worse"`, `value="bad"`},
			"/?search=ROOM":              {">Reconcile the failing one now</button>", `formaction="items?search=ROOM&amp;state=failing"`, `value="bad+%26+worse"`},
			"/?search=well":              nil,
			"/?state=in-sync&sort=-item": nil,
			"/?notice=reconcile-many":    {">Asked for the runs now.</p>"},
		} {
			text := html.UnescapeString(body(t, get(t, page, target), http.StatusOK))
			for _, want := range want {
				if !strings.Contains(text, html.UnescapeString(want)) {
					t.Errorf("%s lacks %s", target, want)
				}
			}
			if n := strings.Count(text, box); want == nil && n > 0 || strings.Contains(target, "ROOM") && n != 1 {
				t.Errorf("%s has %d boxes", target, n)
			}
			if want == nil && strings.Contains(text, buttons) {
				t.Errorf("%s has buttons, and nothing that fails", target)
			}
		}
	})
}

// TestActionsRejected sends requests that must have no effect.
func TestActionsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.queue.EnqueueAfter("a", time.Hour)
		reconcileA := form("a", "reconcile")

		for _, target := range []string{"/item.json", "/items.json"} {
			if got, want := body(t, post(t, w.page, target, reconcileA), http.StatusForbidden), "Page.AllowActions"; !strings.Contains(got, want) {
				t.Errorf("%s where it is not allowed: %s, want a word of %s", target, got, want)
			}
		}
		w.page.AllowActions = true
		for name, change := range map[string]func(r *http.Request){
			"from another site":        header("Sec-Fetch-Site", "cross-site"),
			"from another subdomain":   header("Sec-Fetch-Site", "same-site"),
			"with another origin":      header("Origin", "https://evil.example"),
			"with an origin of null":   header("Origin", "null"),
			"with the port of another": header("Origin", "http://example.com:81"),
		} {
			for _, target := range []string{"/item", "/item.json", "/items", "/items.json"} {
				if r := post(t, w.page, target, reconcileA, change); r.StatusCode != http.StatusForbidden {
					t.Errorf("%s %s: %d, want 403", target, name, r.StatusCode)
				}
			}
		}
		body(t, post(t, w.page, "/items.json?all=true&"+reconcileA.Encode(), nil), http.StatusBadRequest)
		for _, target := range []string{"/item?" + reconcileA.Encode(), "/item.json?" + reconcileA.Encode(), "/items.json?all=true&" + reconcileA.Encode()} {
			get(t, w.page, target)
		}
		body(t, post(t, w.page, "/item.json?"+reconcileA.Encode(), nil), http.StatusBadRequest)
		body(t, post(t, w.page, "/item.json", form("a", "explode")), http.StatusBadRequest)
		body(t, post(t, w.page, "/item.json", form("b", "reconcile")), http.StatusNotFound)
		body(t, post(t, w.page, "/item.json", url.Values{"queue": {"x"}, "item": {"a"}, "action": {"reconcile"}}), http.StatusNotFound)
		body(t, post(t, w.page, "/item.json", form(strings.Repeat("a", 70_000), "reconcile")), http.StatusBadRequest)
		body(t, post(t, w.page, "/item.json", reconcileA, header("Content-Type", "text/plain")), http.StatusBadRequest)

		synctest.Wait()
		if s := w.queue.State("a"); s.Phase != reconcile.PhaseWaiting || !s.NotBefore.Equal(s.Due) || w.queue.Stats().Taken != 0 {
			t.Errorf("something was done all the same: %+v", s)
		}

		for name, change := range map[string]func(r *http.Request){
			"from the page":          header("Sec-Fetch-Site", "same-origin"),
			"from the address bar":   header("Sec-Fetch-Site", "none"),
			"with the page's origin": header("Origin", "http://localhost"), // which is the host of httptest
			"from curl":              func(*http.Request) {},
		} {
			if r := post(t, w.page, "/item", reconcileA, change); r.StatusCode != http.StatusSeeOther {
				t.Errorf("%s: %d, want 303", name, r.StatusCode)
			}
		}
		// Behind a proxy that sends its own Host, over plain HTTP.
		w.page.Hosts = []string{"status.example"}
		for name, test := range map[string]struct {
			host, origin, site string
			status             int
		}{
			"at its own name":                {"10.0.0.1:8080", "http://status.example:81", "", http.StatusSeeOther},
			"at another name":                {"10.0.0.1:8080", "http://evil.example", "", http.StatusForbidden},
			"from another site":              {"10.0.0.1:8080", "http://status.example", "cross-site", http.StatusForbidden},
			"from another port":              {"status.example", "http://status.example:81", "", http.StatusForbidden},
			"from an address, to an address": {"10.0.0.1:8080", "http://10.0.0.2", "", http.StatusForbidden},
		} {
			r := post(t, w.page, "/item", reconcileA, header("Origin", test.origin), func(r *http.Request) {
				r.Host = test.host
				if test.site != "" {
					r.Header.Set("Sec-Fetch-Site", test.site)
				}
			})
			if r.StatusCode != test.status {
				t.Errorf("behind a proxy, %s: %d, want %d", name, r.StatusCode, test.status)
			}
		}
		synctest.Wait()
		if n := w.queue.Stats().Taken; n == 0 {
			t.Error("what is allowed did nothing")
		}
	})
}

// A remoteQueue is a queue on a server that does not answer: a request takes five
// seconds, and then fails.
type remoteQueue struct{ *reconcile.Queue[string] }

func (remoteQueue) Remove(ctx context.Context, item string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("no answer about "+item))
	defer cancel()
	<-ctx.Done()
	return false, context.Cause(ctx)
}

// TestActionEndsWithTheFirstError cancels the next runs of many items while their server
// is down.
func TestActionEndsWithTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := remoteQueue{reconcile.NewQueue[string]()}
		page := statuspage.New(&statuspage.Loop[string]{Name: "assets", Queue: queue})
		page.AllowActions, page.Logger = true, discard
		for i := range 1000 {
			queue.EnqueueAfter(fmt.Sprint(i), time.Hour)
		}
		began := time.Now()
		cancelAll := url.Values{"queue": {"assets"}, "all": {"true"}, "action": {"cancel"}}
		got := body(t, post(t, page, "/items.json", cancelAll), http.StatusServiceUnavailable)
		if took := time.Since(began); !strings.Contains(got, "no answer about") || !strings.Contains(got, "after 0 of 1000 items") || took != 5*time.Second {
			t.Errorf("after %v: %s; want after 5s that there was no answer about an item, and how many were cancelled", took, got)
		}
		began = time.Now()
		for _, action := range []string{"cancel", "reconcile"} { // with a request that has ended, as at the shutdown
			all := url.Values{"queue": {"assets"}, "all": {"true"}, "action": {action}}
			got = body(t, post(t, page, "/items.json", all, func(r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				cancel()
				*r = *r.WithContext(ctx)
			}), http.StatusServiceUnavailable)
			if !strings.Contains(got, context.Canceled.Error()) || time.Since(began) != 0 {
				t.Errorf("%s, after %v: %s; want at once that the request has ended", action, time.Since(began), got)
			}
		}
		if s := queue.Stats(); s.Ready != 0 {
			t.Errorf("%d items are ready, want that none was enqueued by a request that has ended", s.Ready)
		}
	})
}
