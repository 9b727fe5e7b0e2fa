// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// An action is what a form asks for.
type action string

const (
	reconcileNow action = "reconcile"
	cancelNext   action = "cancel"
)

// notices are what is said after an action. They stand in a URL by their keys,
// so that a URL cannot make the page say something else.
var notices = map[string]string{
	"reconcile":      "Asked for a run now.",
	"reconcile-many": "Asked for the runs now.",
	"cancel":         "The next run is cancelled.",
	"cancel-many":    "The next runs are cancelled.",
	"nothing":        "There was no next run to cancel.",
	"pause":          "The gate is paused.",
	"go-on":          "The pause has ended: one run goes first.",
	"accept":         "These things may be deleted. The next listing comes soon.",
}

// fromOwnName reports whether a request comes from a page at a name of Hosts, behind a
// proxy that sends another Host, an address or localhost: over plain HTTP a browser says
// no more than the Origin. With the name as Host, the port has to be the same too.
func (p *Page) fromOwnName(r *http.Request) bool {
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && r.Header.Get("Sec-Fetch-Site") == "" && p.isHost(origin.Hostname()) && !p.isHost(hostOf(r))
}

// maxForm is how many bytes a form may have.
const maxForm = 64 << 10

// readAction reads the form of an action, or refuses it.
func (p *Page) readAction(w http.ResponseWriter, r *http.Request) error {
	if err := p.protection.Check(r); err != nil && !p.fromOwnName(r) {
		return refuse(http.StatusForbidden, "refused: %w; a page that has a name behind a proxy needs that name in Page.Hosts", err)
	}
	if err := p.checkHost(r, true); err != nil {
		return err
	}
	if !p.AllowActions {
		return refuse(http.StatusForbidden, "this program does not allow actions on this page (Page.AllowActions)")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return fmt.Errorf("the form cannot be read: %w", err)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return nil
}

// serveAction does what a form asks for, and then shows the item, or the items.
func (p *Page) serveAction(w http.ResponseWriter, r *http.Request) error {
	if err := p.readAction(w, r); err != nil {
		return err
	}
	a := action(r.PostForm.Get("action"))
	if a != reconcileNow && a != cancelNext {
		return fmt.Errorf("no action %q; there are %s, %s", a, reconcileNow, cancelNext)
	}
	q, err := parseQuery(r.Form)
	if err != nil {
		return err
	}
	items, log, err := p.chosen(r, q)
	if err != nil {
		return err
	}
	n, queue := 0, items[0].name()
	for i, h := range items {
		changed, err := h.act(r.Context(), h.item, a)
		if err != nil { // the others would wait as long, for the same answer
			p.log(r.Context(), "statuspage: action failed", "action", string(a), "queue", queue, "items", i, "of", len(items), log, "from", r.RemoteAddr, "err", err)
			return refuse(http.StatusServiceUnavailable, "action %s of item %q failed, after %d of %d items: %s", a, shorten(h.text, 200), i, len(items), p.errorText(err))
		}
		if changed {
			n++
		}
	}
	p.log(r.Context(), "statuspage: action", "action", string(a), "queue", queue, "items", len(items), log, "from", r.RemoteAddr)
	notice, message := string(a), ""
	switch {
	case n == 0:
		notice = "nothing"
	case n > 1 && a == reconcileNow:
		notice, message = "reconcile-many", fmt.Sprintf("Asked for %s runs now.", number(n))
	case n > 1:
		notice, message = "cancel-many", fmt.Sprintf("The next runs of %s items are cancelled.", number(n))
	}
	if wantsJSON(r) {
		p.json(w, r, http.StatusOK, map[string]string{"message": cmp.Or(message, notices[notice])})
		return nil
	}
	shown := "./" + q.String()
	if r.URL.Path == "/item" {
		shown = items[0].url("item")
	}
	w.Header().Set("Location", shown+"&notice="+notice)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// chosen returns the items that a form names, without those that are gone by now,
// or, if it says all, those that its query finds; and what a log says of them.
func (p *Page) chosen(r *http.Request, q query) (items []handle, log slog.Attr, err error) {
	l, err := p.onlyLoop(q.Queue)
	if err != nil {
		return nil, log, err
	}
	if !l.hasActions() {
		return nil, log, refuse(http.StatusForbidden, "queue %q has no such actions", l.name())
	}
	switch all := r.PostForm.Get("all"); all {
	default:
		return nil, log, fmt.Errorf("all %q: want true, or name the items", all)
	case "true":
		for name := range r.Form {
			if !slices.Contains(besideAll, name) { // as of a query that would find fewer items
				return nil, log, fmt.Errorf("parameter %q does not go with all=true: want only %s", name, strings.Join(besideAll, ", "))
			}
		}
		items = p.choose(l, q.finds())
		log = slog.String("query", q.String())
	case "":
		names := make(map[string]int) // and how many items are shown so
		for _, name := range r.Form["item"] {
			names[name] = 0
		}
		for _, escaped := range r.PostForm["escaped"] { // a browser changes line feeds and such of what it sends
			name, err := url.QueryUnescape(escaped)
			if err != nil {
				return nil, log, fmt.Errorf("escaped: %w", err)
			}
			names[name] = 0
		}
		if len(names) == 0 {
			return nil, log, errors.New("no item is selected: want item=NAME, as often as needed, or all=true")
		}
		log = slog.String("item", fmt.Sprintf("%q", slices.Sorted(maps.Keys(names))))
		items = p.named(l, names, r.Form.Get("id"))
		for _, h := range items {
			name, _ := nameIn(names, h.text)
			if names[name]++; names[name] > 1 {
				return nil, log, errAlike(name)
			}
		}
	}
	if len(items) == 0 {
		return nil, log, refuse(http.StatusNotFound, "no such item is known any more")
	}
	return items, log, nil
}

// besideAll are the parameters of an action on all items that a query finds. The page's form
// sends escaped names too, if items are selected.
var besideAll = []string{"queue", "search", "state", "sort", "page", "size", "escaped", "all", "action"}

func errAlike(name string) error {
	return refuse(http.StatusConflict, "several items are shown as %q: add the id of the one that is meant", name)
}
