// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
)

func TestQuery(t *testing.T) {
	standard := query{State: allItems, Sort: byAttention, Page: 1, Size: 50}
	with := func(change func(q *query)) query {
		q := standard
		change(&q)
		return q
	}
	for _, test := range []struct {
		text string
		want query
	}{
		{"?", standard},
		{"?queue=a%26b", with(func(q *query) { q.Queue = "a&b" })},
		{"?search=%3Cb%3E+x", with(func(q *query) { q.Search = "<b> x" })},
		{"?state=in-flight", with(func(q *query) { q.State = inFlightItems })},
		{"?sort=-since", with(func(q *query) { q.Sort, q.Descending = bySince, true })},
		{"?page=3&size=1000", with(func(q *query) { q.Page, q.Size = 3, 1000 })},
	} {
		values, err := url.ParseQuery(test.text[1:])
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseQuery(values)
		if err != nil || got != test.want {
			t.Errorf("parseQuery(%s) = %+v, %v, want %+v", test.text, got, err, test.want)
		}
		if got.String() != test.text {
			t.Errorf("String of %+v = %s, want %s", got, got, test.text)
		}
	}
}

func TestQueryErrors(t *testing.T) {
	for text, want := range map[string]string{
		"state=sleeping": `no state "sleeping"; there are all, in-sync, failing, in-flight, ready, waiting, idle`,
		"sort=color":     `cannot sort by "color"; there are attention, item, state, since, next, failures, last, duration, pending, with a hyphen in front for the reverse`,
		"sort=--item":    `cannot sort by "-item"; there are attention, item, state, since, next, failures, last, duration, pending, with a hyphen in front for the reverse`,
		"page=0":         `page "0": want a number, 1 or more`,
		"size=-1":        `size "-1": want a number, 1 or more`,
		"size=1001":      `size 1001: want at most 1000`,
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseQuery(values); err == nil || err.Error() != want {
			t.Errorf("parseQuery(%s) = %v, want %s", text, err, want)
		}
	}
	if _, err := parseQuery(url.Values{"search": {string(make([]byte, maxSearch+1))}}); err == nil {
		t.Error("a search of any length is accepted")
	}
}

func TestQueryLinks(t *testing.T) {
	q := query{Queue: "a", Search: "x", State: failingItems, Sort: byName, Page: 4, Size: 10}
	for _, test := range []struct {
		name string
		got  query
		want string
	}{
		{"the same column turns round", q.WithSort(byName), "?queue=a&search=x&size=10&sort=-item&state=failing"},
		{"and back", q.WithSort(byName).WithSort(byName), "?queue=a&search=x&size=10&sort=item&state=failing"},
		{"another column", q.WithSort(bySince), "?queue=a&search=x&size=10&sort=since&state=failing"},
		{"another state", q.WithState(allItems), "?queue=a&search=x&size=10&sort=item"},
		{"another queue", q.WithQueue("b"), "?queue=b&size=10"},
		{"another page", q.WithPage(5), "?page=5&queue=a&search=x&size=10&sort=item&state=failing"},
	} {
		if got := test.got.String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// FuzzRequest asks for pages, and sends forms, with anything behind the question mark:
// each is answered, none as a fault of this package, and no text becomes a tag.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"queue=q&state=failing&sort=-since&page=2&size=1", "item=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E", "item=a&id=00&notice=nothing",
		"queue=q&item=a&action=cancel", "queue=q&all=true&action=reconcile&state=idle", "gate=g&action=pause&for=1h", "listing=l&action=believe",
		"escaped=%25&queue=q&action=reconcile", "search=%ff%00", "page=99999999999999999999", "for=-1h&gate=g&action=pause",
	} {
		for path := range uint8(8) {
			f.Add(path, seed)
		}
	}
	queue := reconcile.NewQueue[string]()
	for _, item := range []string{"a", "<img src=x onerror=alert(1)>", "", "\xff"} {
		queue.EnqueueAfter(item, time.Hour)
	}
	page := New(&Loop[string]{Name: "q", Queue: queue}, &Gate{Name: "g", Gate: &gate.Gate{Logger: slog.New(slog.DiscardHandler)}})
	page.AllowActions, page.Logger = true, slog.New(slog.DiscardHandler)
	paths := []string{"/", "/item", "/item.json", "/items.json", "/status.json", "/items", "/gate", "/listing.json"}
	f.Fuzz(func(t *testing.T, path uint8, query string) {
		target := paths[int(path)%len(paths)]
		get := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: target, RawQuery: query}, RequestURI: target + "?x", Host: "localhost"}
		post := httptest.NewRequest(http.MethodPost, target, strings.NewReader(query))
		post.Host = "localhost"
		post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, r := range []*http.Request{get, post} {
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r)
			text := w.Body.String()
			html := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")
			if w.Code >= 500 || w.Code < 200 || html && strings.Contains(text, "<img") {
				t.Errorf("%s %s?%s: %d\n%s", r.Method, target, query, w.Code, text)
			}
		}
	})
}
