// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

func (p *Page) serveOverview(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		p.fail(w, r, http.StatusBadRequest, err)
		return
	}
	o, _, err := p.overview(q)
	if err != nil {
		p.fail(w, r, http.StatusNotFound, err)
		return
	}
	o.Notice = notices[r.FormValue("notice")]
	p.html(w, r, http.StatusOK, "overview-page", o)
}

func (p *Page) serveItem(w http.ResponseWriter, r *http.Request) {
	found, err := p.found(r.URL.Query())
	switch {
	case err != nil:
		p.fail(w, r, http.StatusNotFound, err)
	case len(found) > 1:
		p.html(w, r, http.StatusMultipleChoices, "choice-page", p.newChoicePage(found))
	default:
		v := p.newItemPage(found[0])
		v.Notice = notices[r.FormValue("notice")]
		p.html(w, r, http.StatusOK, "item-page", v)
	}
}

// html writes a page.
func (p *Page) html(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	var page bytes.Buffer
	if err := templates.ExecuteTemplate(&page, name, data); err != nil {
		p.log(r.Context(), "statuspage: template failed", "template", name, "err", err)
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // if the reader is gone there is nobody to tell
}

type errorPage struct {
	frame
	Status string
	Error  string
}

// fail writes an error in the form that the request asks for.
func (p *Page) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	switch {
	case wantsJSON(r):
		p.json(w, r, status, map[string]string{"error": err.Error()})
	case strings.HasSuffix(r.URL.Path, "/events"):
		http.Error(w, err.Error(), status)
	default:
		p.html(w, r, status, "error-page", errorPage{p.frame(""), http.StatusText(status), err.Error()})
	}
}

func wantsJSON(r *http.Request) bool { return path.Ext(r.URL.Path) == ".json" }

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
}

// maxForm is how many bytes a form may have.
const maxForm = 64 << 10

// serveAction does what a form asks for, and then shows the item, or the items.
func (p *Page) serveAction(w http.ResponseWriter, r *http.Request) {
	if err := p.protection.Check(r); err != nil {
		p.fail(w, r, http.StatusForbidden, fmt.Errorf("refused: %w", err))
		return
	}
	if !p.AllowActions {
		p.fail(w, r, http.StatusForbidden, errors.New("this program does not allow actions on this page (Page.AllowActions)"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		p.fail(w, r, http.StatusBadRequest, fmt.Errorf("the form cannot be read: %w", err))
		return
	}
	a := action(r.PostForm.Get("action"))
	if a != reconcileNow && a != cancelNext {
		p.fail(w, r, http.StatusBadRequest, fmt.Errorf("no action %q; there are %s, %s", a, reconcileNow, cancelNext))
		return
	}
	q, err := parseQuery(r.Form)
	if err != nil {
		p.fail(w, r, http.StatusBadRequest, err)
		return
	}
	items, log, status, err := p.chosen(r, q)
	if err != nil {
		p.fail(w, r, status, err)
		return
	}
	n, queue := 0, items[0].name()
	for _, h := range items {
		if h.act(h.item, a) {
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
		return
	}
	shown := "./" + q.String()
	if r.URL.Path == "/item" {
		shown = items[0].url("item")
	}
	w.Header().Set("Location", shown+"&notice="+notice)
	w.WriteHeader(http.StatusSeeOther)
}

// chosen returns the items that a form names, without those that are gone by now,
// or, if it says all, those that its query finds; and what a log says of them. If
// there is an error, it has a status.
func (p *Page) chosen(r *http.Request, q query) (items []handle, log slog.Attr, status int, err error) {
	refuse := func(status int, err error) ([]handle, slog.Attr, int, error) { return nil, log, status, err }
	l, err := p.onlyLoop(q.Queue)
	if err != nil {
		return refuse(http.StatusNotFound, err)
	}
	if !l.hasActions() {
		return refuse(http.StatusForbidden, fmt.Errorf("queue %q has no such actions", l.name()))
	}
	if r.PostForm.Has("all") {
		items = l.choose(p.refresh(), q.has)
		log = slog.String("query", q.String())
	} else {
		names := make(map[string]int) // and how many items are shown so
		for _, name := range r.Form["item"] {
			names[name] = 0
		}
		for _, escaped := range r.PostForm["escaped"] { // a browser changes line feeds and such of what it sends
			name, err := url.QueryUnescape(escaped)
			if err != nil {
				return refuse(http.StatusBadRequest, fmt.Errorf("escaped: %w", err))
			}
			names[name] = 0
		}
		if len(names) == 0 {
			return refuse(http.StatusBadRequest, errors.New("no item is selected: want item=NAME, as often as needed, or all=true"))
		}
		log = slog.String("item", fmt.Sprintf("%q", slices.Sorted(maps.Keys(names))))
		for _, h := range l.choose(p.refresh(), func(r *row) bool { _, ok := names[nameInURL(r.name)]; return ok }) {
			if id := r.Form.Get("id"); id == "" || id == h.id() {
				items = append(items, h)
				name := nameInURL(h.text)
				if names[name]++; names[name] > 1 {
					return refuse(http.StatusConflict, errAlike(name))
				}
			}
		}
	}
	if len(items) == 0 {
		return refuse(http.StatusNotFound, errors.New("no such item is known any more"))
	}
	return items, log, 0, nil
}

func errAlike(name string) error {
	return fmt.Errorf("several items are shown as %q: add the id of the one that is meant", name)
}
