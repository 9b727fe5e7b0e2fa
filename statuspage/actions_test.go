// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/url"
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
		}
	})
}

// TestActionsRefused goes through the requests that are not to do anything.
func TestActionsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.queue.EnqueueAfter("a", time.Hour)
		reconcileA := form("a", "reconcile")

		if got, want := body(t, post(t, w.page, "/item.json", reconcileA), http.StatusForbidden), "Page.AllowActions"; !strings.Contains(got, want) {
			t.Errorf("where it is not allowed: %s, want a word of %s", got, want)
		}
		w.page.AllowActions = true
		for name, change := range map[string]func(r *http.Request){
			"from another site":        header("Sec-Fetch-Site", "cross-site"),
			"from another subdomain":   header("Sec-Fetch-Site", "same-site"),
			"with another origin":      header("Origin", "https://evil.example"),
			"with an origin of null":   header("Origin", "null"),
			"with the port of another": header("Origin", "http://example.com:81"),
		} {
			for _, target := range []string{"/item", "/item.json"} {
				if r := post(t, w.page, target, reconcileA, change); r.StatusCode != http.StatusForbidden {
					t.Errorf("%s %s: %d, want 403", target, name, r.StatusCode)
				}
			}
		}
		for _, target := range []string{"/item?" + reconcileA.Encode(), "/item.json?" + reconcileA.Encode()} {
			get(t, w.page, target)
		}
		body(t, post(t, w.page, "/item.json?"+reconcileA.Encode(), nil), http.StatusBadRequest)
		body(t, post(t, w.page, "/item.json", form("a", "explode")), http.StatusBadRequest)
		body(t, post(t, w.page, "/item.json", form("b", "reconcile")), http.StatusNotFound)
		body(t, post(t, w.page, "/item.json", url.Values{"queue": {"x"}, "item": {"a"}, "action": {"reconcile"}}), http.StatusNotFound)
		body(t, post(t, w.page, "/item.json", form(strings.Repeat("a", 70_000), "reconcile")), http.StatusBadRequest)
		body(t, post(t, w.page, "/item.json", reconcileA, header("Content-Type", "text/plain")), http.StatusBadRequest)

		synctest.Wait()
		if s := w.queue.State("a"); s.Phase != reconcile.Waiting || !s.Hold || w.queue.Stats().Taken != 0 {
			t.Errorf("something was done all the same: %+v", s)
		}

		for name, change := range map[string]func(r *http.Request){
			"from the page":          header("Sec-Fetch-Site", "same-origin"),
			"from the address bar":   header("Sec-Fetch-Site", "none"),
			"with the page's origin": header("Origin", "http://example.com"), // which is the host of httptest
			"from curl":              func(*http.Request) {},
		} {
			if r := post(t, w.page, "/item", reconcileA, change); r.StatusCode != http.StatusSeeOther {
				t.Errorf("%s: %d, want 303", name, r.StatusCode)
			}
		}
		synctest.Wait()
		if n := w.queue.Stats().Taken; n == 0 {
			t.Error("what is allowed did nothing")
		}
	})
}

func TestActionsAreLogged(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("a")
	page := statuspage.New(&statuspage.Loop[string]{Name: "assets", Queue: queue})
	page.AllowActions = true
	var log bytes.Buffer
	page.Logger = slog.New(slog.NewTextHandler(&log, nil))
	body(t, post(t, page, "/item.json", form("a", "cancel")), http.StatusOK)
	if want := `msg="statuspage: action" action=cancel queue=assets item=a from=192.0.2.1:1234`; !strings.Contains(log.String(), want) {
		t.Errorf("the log has %q, want %q", log.String(), want)
	}
}

// TestNotices has a URL that is to make the page say something.
func TestNotices(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("a")
	page := statuspage.New(&statuspage.Loop[string]{Name: "assets", Queue: queue})
	if text := body(t, get(t, page, "/item?item=a&notice=You+have+won"), http.StatusOK); strings.Contains(text, "won") {
		t.Error("a URL makes the page say what it wants")
	}
}
