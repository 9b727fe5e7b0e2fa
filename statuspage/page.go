// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A Page shows loops and groups to people and programs. It is an [http.Handler].
//
// Make one with [New]. The fields are set before it serves, and not changed
// after. It may serve any number of requests at once. It runs no goroutine of
// its own: whatever it does, it does in a request, and a stream of events ends
// when the context of its request does. Some seconds after the last request it
// lets go of what it has read.
type Page struct {
	Title string // of the page; "" means "Reconcilers"

	// AllowActions has the page of an item show the buttons "Reconcile now"
	// (EnqueueNow) and "Cancel the next run" (Remove), if the queue has these
	// methods. Where items fail, the page of all then has buttons to reconcile now
	// those that are selected, or all of them. A [Gate] has buttons that pause it and
	// let it go on, and a [Listing] that is rejected has one that accepts what is shown.
	// Requests that another site makes a
	// browser send are refused. Who may press the buttons is for the program to say,
	// by a handler around this one.
	AllowActions bool

	// Refresh is how often an open page is brought up to date, and how old at
	// most is what a program gets; zero or less means a second. It is longer when
	// there are so many items that looking at them all would take more than a
	// twentieth of the time.
	Refresh time.Duration

	// Hosts are names under which the page is reached, beside localhost and IP
	// addresses: without the port. A request for any other host is refused, as it
	// would be that of a site which has made its own name point here. With no
	// Hosts, only requests that came by a loopback address are checked, and all
	// actions: a page with a name, behind a proxy or not, has to say it here. The
	// buttons of a page at one of them work behind a proxy that sends another Host.
	Hosts []string

	// Logger has a line for each action; nil means slog.Default().
	Logger *slog.Logger

	streams    atomic.Int32 // of events, at this time
	loops      []loop
	groups     []*Group
	gates      []*Gate
	listings   []*Listing
	mux        *http.ServeMux
	protection *http.CrossOriginProtection
}

// A Part is what a page is made of: a [*Loop], a [*Group],
// a [*Gate] or a [*Listing].
type Part interface{ addTo(p *Page) }

// New returns a page of these parts, in this order. It panics if a name that
// is required is missing, or there twice, or if a part is nil.
func New(parts ...Part) *Page {
	p := &Page{mux: http.NewServeMux(), protection: http.NewCrossOriginProtection()}
	for _, part := range parts {
		if part == nil {
			panic("statuspage: New needs a *Loop, *Group, *Gate or *Listing, got nil")
		}
		part.addTo(p)
	}
	p.handle("GET /{$}", p.serveOverview)
	p.handle("GET /item", p.serveItem)
	p.handle("GET /events", p.serveEvents)
	p.handle("GET /status.json", p.serveStatusJSON)
	p.handle("GET /items.json", p.serveItemsJSON)
	p.handle("GET /item.json", p.serveItemJSON)
	for _, path := range []string{"/item", "/item.json", "/items", "/items.json"} {
		p.handle("POST "+path, p.serveAction)
	}
	for _, twin := range []string{"", ".json"} {
		p.handle("POST /gate"+twin, p.serveGateAction)
		p.handle("POST /listing"+twin, p.serveListingAction)
	}
	files, _ := fs.Sub(assets, "assets")
	file := http.FileServerFS(files)
	for _, name := range []string{"style.css", "script.js", "icon.svg"} {
		p.mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
			file.ServeHTTP(w, r)
		})
	}
	return p
}

// ServeHTTP serves the page. Its paths are relative to where it is: below a
// prefix, put it behind [http.StripPrefix].
//
//	/            the page for people
//	/item        the page of an item
//	/status.json what a program wants to know of all loops and groups
//	/items.json  the items of a loop
//	/item.json   an item and its last runs
//
// The package comment says what may stand behind the question mark.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	// Not no-referrer: with that a browser calls the origin of our own forms null.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if r.ContentLength != 0 {
		// Also of a body that nobody wants: the server reads it before the answer. Past
		// the deadline it does not wait for the rest, and sets its own after it.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(writeTimeout))
	}
	if err := p.checkHost(r, false); err != nil {
		p.fail(w, r, err)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/") { // http.StripPrefix took the slash as well
		if was, query, _ := strings.Cut(r.RequestURI, "?"); !strings.HasSuffix(was, "/") && r.URL.Path == "" {
			// Relative, so that it cannot lead to another host.
			h.Set("Location", "./"+path.Base(was)+"/?"+query)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = "/"+r.URL.Path, ""
	}
	p.mux.ServeHTTP(w, r)
}

// checkHost keeps other sites from reading a page that only this machine, or who
// is behind the same firewall, can reach: such a site has its own name point to
// the address, and the browser then takes the page for a part of the site. Without
// Hosts a page that does not listen on a loopback address may have any name; so
// whoever only wants to read is let in there, and who wants to act is not.
func (p *Page) checkHost(r *http.Request, acts bool) error {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !acts && len(p.Hosts) == 0 && (!ok || !isLoopback(local.String())) {
		return nil
	}
	host := hostOf(r)
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || isIP(host) || p.isHost(host) {
		return nil
	}
	return refuse(http.StatusMisdirectedRequest, "this page is at localhost, or an IP address, not at %q; if that is its name, the program has to say so in Page.Hosts", host)
}

// hostOf returns the host that a request is for, without a port.
func hostOf(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isHost reports whether a host is one of Hosts.
func (p *Page) isHost(host string) bool {
	return slices.ContainsFunc(p.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// isIP reports whether a host is an address: no site has that as its name.
func isIP(host string) bool {
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (p *Page) refresh() time.Duration {
	if p.Refresh <= 0 {
		return time.Second
	}
	return p.Refresh
}

// loop returns the loop of a name; "" means the first.
func (p *Page) loop(name string) (loop, error) {
	for _, l := range p.loops {
		if l.name() == name || name == "" {
			return l, nil
		}
	}
	return nil, refuse(http.StatusNotFound, "no queue %q; there are %s", name, p.loopNames())
}

// onlyLoop is loop, but does without a name only if there is one loop alone.
func (p *Page) onlyLoop(name string) (loop, error) {
	if name == "" && len(p.loops) > 1 {
		return nil, refuse(http.StatusNotFound, "which queue? Add queue=NAME; there are %s", p.loopNames())
	}
	return p.loop(name)
}

func (p *Page) loopNames() string {
	var names []string
	for _, l := range p.loops {
		names = append(names, l.name())
	}
	return strings.Join(names, ", ")
}

func (p *Page) log(ctx context.Context, msg string, args ...any) {
	cmp.Or(p.Logger, slog.Default()).InfoContext(ctx, msg, args...)
}
