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
	"sync"
	"sync/atomic"
	"time"
)

// A Page shows loops, groups, gates and listings to people and to programs. It is an
// [http.Handler]. Create one with [New].
//
// The fields must not change once it serves. It may serve any number of requests at once.
// It starts no goroutine: all its work is done within requests. The event stream that
// keeps an open page up to date ends with the context of its request. About ten seconds
// after the last request, the page frees its snapshot of the items.
type Page struct {
	Title string // of the page; "" means "Reconcilers"

	// AllowActions turns on the actions. The page of an item then has the buttons
	// "Reconcile now" (EnqueueNow) and "Cancel the next run" (Remove), if the queue has
	// these methods. While items fail, the overview has buttons that reconcile the
	// selected items, or all failing ones, now. An action ends with its request, and with
	// the first item for which the queue returns an error. A [Gate] has buttons that pause it and
	// end a pause. A [Listing] that is rejected has a button that accepts the deletions
	// that are shown.
	//
	// The page rejects requests that another site makes a browser send. It does not know
	// who sends a request: to restrict the actions to some people, put a handler in
	// front.
	AllowActions bool

	// FormatError returns the text of an error. All that the page shows and remembers of
	// errors comes from it: those of runs, of members of a [Group], of a [Gate] that is
	// paused and of a [Listing] that is rejected. Use it to leave out secrets, such as a
	// token in a URL. Nil means the Error method. It is called from any goroutine, by
	// workers too, so it must be set before the first run of a Reconciler.
	FormatError func(err error) string

	// Refresh is the interval at which an open page is updated, and the maximum age of
	// the data in JSON. 0 or less means a second. If reading all items would take more
	// than a twentieth of the time, the interval is longer.
	Refresh time.Duration

	// Hosts are the host names of the page, without the port. A page with a host name,
	// behind a proxy or not, needs it here. Localhost and IP addresses need not be
	// listed.
	//
	// The page rejects requests for other hosts, because another site can make its own
	// name point to the address of the page. If Hosts is empty, this check applies only
	// to actions and to requests that arrive on a loopback address. Actions on a page
	// with a listed name also work behind a proxy that changes the Host header.
	Hosts []string

	// Logger has a line for each action; nil means slog.Default().
	Logger *slog.Logger

	streams    atomic.Int32 // of events, at this time
	noFlush    sync.Once    // the log line about a handler that hides http.Flusher
	loops      []loop
	groups     []*Group
	gates      []*Gate
	listings   []*Listing
	mux        *http.ServeMux
	protection *http.CrossOriginProtection
}

// A Part is a part of a page: a [*Loop], a [*Group], a [*Gate] or a [*Listing].
type Part interface{ addTo(p *Page) }

// New returns a page that shows the parts in the given order. It panics if a part is nil,
// if a required field is missing, or if two parts of a kind have the same name.
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

// ServeHTTP serves the page. Its links are relative: to serve it below a prefix, use
// [http.StripPrefix].
//
//	/            the overview, for people
//	/item        the page of an item
//	/status.json all loops, groups, gates and listings
//	/items.json  the items of a loop
//	/item.json   an item and its last runs
//
// The package comment describes the parameters of a query and the actions.
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
	if err := checkSite(r); err != nil {
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

// checkSite refuses to be loaded into another site by a browser. The site cannot read the
// answer, but would have the program make it. A link that somebody follows is let in.
func checkSite(r *http.Request) error {
	site := r.Header.Get("Sec-Fetch-Site")
	if (site != "cross-site" && site != "same-site") || r.Header.Get("Sec-Fetch-Dest") == "document" || r.Method == http.MethodPost {
		return nil
	}
	return refuse(http.StatusForbidden, "refused: another site cannot load this into a page of its own")
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

// errorText returns the text of an error as the page shows it.
func (p *Page) errorText(err error) string { return errorFormat(p.FormatError).text(err, maxText) }

func (p *Page) refresh() time.Duration {
	if p.Refresh <= 0 {
		return time.Second
	}
	return p.Refresh
}

// loop returns the loop of a name; "" means the first.
func (p *Page) loop(name string) (loop, error) {
	for _, l := range p.loops {
		if sameName(l.name(), name) || name == "" {
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
	slog.New(guarded{cmp.Or(p.Logger, slog.Default()).Handler()}).InfoContext(ctx, msg, args...)
}
