// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"html"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

func TestPageHeaders(t *testing.T) {
	page := statuspage.New(&statuspage.Loop[string]{Name: "a", Queue: reconcile.NewQueue[string]()})
	page.AllowActions = true
	for _, target := range []string{"/", "/item?item=x", "/status.json", "/items.json", "/nothing", "/style.css", "/script.js", "/icon.svg", "/?page=x"} {
		h := get(t, page, target).Header
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "same-origin",
			"Cache-Control":           "no-store",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", target, name, got, want)
			}
		}
	}
}

// TestPageInlinesNothing searches for parts that the Content-Security-Policy would block.
func TestPageInlinesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.page.AllowActions = true
		w.fill()
		for _, target := range []string{"/", "/?page=x", "/item?item=refused", "/item?item=nothing"} {
			r := get(t, w.page, target)
			text := body(t, r, r.StatusCode)
			for _, bad := range []string{"<style", " style=", "<script>", "javascript:", "http://", "https://", "//"} {
				if strings.Contains(text, bad) {
					t.Errorf("%s contains %s", target, bad)
				}
			}
			want := 1
			if r.StatusCode != http.StatusOK {
				want = 0 // there is nothing to keep up to date
			}
			if n := strings.Count(text, "<script"); n != want {
				t.Errorf("%s has %d scripts, want %d", target, n, want)
			}
			if match := regexp.MustCompile(` on\w+=`).FindString(text); match != "" {
				t.Errorf("%s has a handler: %s", target, match)
			}
		}
	})
}

func TestPageAssets(t *testing.T) {
	page := statuspage.New()
	text := body(t, get(t, page, "/"), http.StatusOK)
	for path, contentType := range map[string]string{
		"style.css": "text/css; charset=utf-8", "script.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		link := regexp.MustCompile(`"(` + path + `)"`).FindStringSubmatch(text)
		if link == nil {
			t.Errorf("the page does not use %s", path)
			continue
		}
		r := get(t, page, "/"+link[1])
		if body(t, r, http.StatusOK) == "" || r.Header.Get("Content-Type") != contentType {
			t.Errorf("%s has the type %q, want %q", path, r.Header.Get("Content-Type"), contentType)
		}
	}
}

func TestPageMethods(t *testing.T) {
	page := statuspage.New(&statuspage.Loop[string]{Name: "a", Queue: reconcile.NewQueue[string]()})
	for _, test := range []struct {
		method, target string
		status         int
	}{
		{http.MethodHead, "/", 200},
		{http.MethodPost, "/", 405},
		{http.MethodDelete, "/item", 405},
		{http.MethodPut, "/item.json", 405},
		{http.MethodPost, "/status.json", 405},
		{http.MethodPost, "/events", 405},
		{http.MethodGet, "/../etc/passwd", 307},
		{http.MethodGet, "/assets/style.css", 404},
		{http.MethodGet, "/page.html", 404},
	} {
		if got := send(t, page, httptest.NewRequestWithContext(t.Context(), test.method, test.target, nil)).StatusCode; got != test.status {
			t.Errorf("%s %s: %d, want %d", test.method, test.target, got, test.status)
		}
	}
}

// TestPagePrefix puts the page below a prefix: all its links are relative.
func TestPagePrefix(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("a")
	page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: queue})
	for _, strip := range []string{"/debug/status", "/debug/status/"} {
		mux := http.NewServeMux()
		mux.Handle("/debug/status", http.StripPrefix(strings.TrimSuffix(strip, "/"), page))
		mux.Handle("/debug/status/", http.StripPrefix(strip, page))
		server := httptest.NewServer(mux)
		for _, path := range []string{"/debug/status", "/debug/status/?queue=q", "/debug/status?queue=q"} {
			r, err := server.Client().Get(server.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			text := body(t, r, http.StatusOK)
			if got := r.Request.URL.Path; got != "/debug/status/" {
				t.Errorf("%s ends at %s, want /debug/status/", path, got)
			}
			if strings.Contains(path, "?") && r.Request.URL.RawQuery != "queue=q" {
				t.Errorf("%s loses its query: %s", path, r.Request.URL)
			}
			for _, match := range regexp.MustCompile(`(?:href|src|action)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
				target := html.UnescapeString(match[1])
				if strings.HasPrefix(target, "#") {
					continue
				}
				link, err := r.Request.URL.Parse(target)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := server.Client().Get(link.String())
				if err != nil {
					t.Fatal(err)
				}
				body(t, answer, http.StatusOK)
				if !strings.HasPrefix(answer.Request.URL.Path, "/debug/status/") {
					t.Errorf("%s links to %s, which leads to %s", path, match[1], answer.Request.URL)
				}
			}
		}
		server.Close()
	}
}

// TestPageHost acts as a site whose own name points to this machine, so that the browser
// takes the page for a part of the site.
func TestPageHost(t *testing.T) {
	named, nameless := []string{"status.example.org"}, []string(nil)
	for _, test := range []struct {
		hosts        []string
		local, host  string
		read, action int
	}{
		{named, "127.0.0.1:8080", "127.0.0.1:8080", 200, 200},
		{named, "127.0.0.1:8080", "localhost:8080", 200, 200},
		{named, "127.0.0.1:8080", "LOCALHOST", 200, 200},
		{named, "127.0.0.1:8080", "app.localhost:8080", 200, 200},
		{named, "[::1]:8080", "[::1]:8080", 200, 200},
		{named, "[::1]:8080", "[::1]", 200, 200},
		{named, "127.0.0.1:8080", "status.example.org", 200, 200},
		{named, "127.0.0.1:8080", "STATUS.example.org:80", 200, 200},
		{named, "127.0.0.1:8080", "evil.example:8080", 421, 421},
		{named, "127.0.0.1:8080", "localhost.evil.example:8080", 421, 421},
		{named, "127.0.0.1:8080", "127.0.0.1.evil.example", 421, 421},
		{named, "[::1]:8080", "evil.example", 421, 421},
		{named, "192.0.2.1:8080", "status.example.org", 200, 200},
		{named, "192.0.2.1:8080", "evil.example", 421, 421},
		{named, "192.0.2.1:8080", "192.0.2.1:8080", 200, 200},
		{named, "[2001:db8::1]:8080", "[2001:db8::1]", 200, 200},
		{named, "", "evil.example", 421, 421}, // behind a server that does not say where it listens
		{nameless, "127.0.0.1:8080", "evil.example", 421, 421},
		{nameless, "192.0.2.1:8080", "192.0.2.1:8080", 200, 200},
		{nameless, "192.0.2.1:8080", "anything.example", 200, 421}, // its own name, or that of a site: who knows
		{nameless, "", "anything.example", 200, 421},
	} {
		queue := reconcile.NewQueue[string]()
		queue.Enqueue("a")
		page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: queue})
		page.Hosts, page.AllowActions = test.hosts, true
		page.Logger = slog.New(slog.DiscardHandler)
		at := func(r *http.Request) {
			r.Host = test.host
			if test.local != "" {
				address, err := net.ResolveTCPAddr("tcp", test.local)
				if err != nil {
					t.Fatal(err)
				}
				*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(address)))
			}
		}
		for _, target := range []string{"/", "/status.json"} {
			if got := get(t, page, target, at).StatusCode; got != test.read {
				t.Errorf("GET %s at %s for %s, with the hosts %q: %d, want %d", target, test.local, test.host, test.hosts, got, test.read)
			}
		}
		post := httptest.NewRequestWithContext(t.Context(), "POST", "/items.json?queue=q", strings.NewReader("action=reconcile&item=a"))
		post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		at(post)
		if got := send(t, page, post).StatusCode; got != test.action {
			t.Errorf("an action at %s for %s, with the hosts %q: %d, want %d", test.local, test.host, test.hosts, got, test.action)
		}
	}
}
