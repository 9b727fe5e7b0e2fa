// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
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
	choose := p.chooseOne
	if strings.HasPrefix(r.URL.Path, "/items") {
		choose = p.chooseMany
	}
	c, status, err := choose(r)
	if err == nil && !c.loop.hasActions() {
		status, err = http.StatusForbidden, fmt.Errorf("queue %q has no such actions", c.loop.name())
	}
	if err != nil {
		p.fail(w, r, status, err)
		return
	}

	n := 0
	for _, h := range c.items {
		if h.act(h.item, a) {
			n++
		}
	}
	p.log(r.Context(), "statuspage: action", slices.Concat([]any{"action", string(a), "queue", c.loop.name()}, c.log, []any{"from", r.RemoteAddr})...)
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
	w.Header().Set("Location", c.shown+"&notice="+notice)
	w.WriteHeader(http.StatusSeeOther)
}

// A choice is what a form asks to act on.
type choice struct {
	loop  loop
	items []handle
	log   []any  // which they are
	shown string // the URL of the page that shows them, with a question mark
}

// chooseOne returns the item that a form names, or with which status to refuse.
func (p *Page) chooseOne(r *http.Request) (c choice, status int, err error) {
	h, status, err := p.foundOne(r.Form)
	if err != nil {
		return c, status, err
	}
	return choice{h.loop, []handle{h}, []any{"item", h.text}, h.url("item")}, 0, nil
}

// chooseMany returns the items that a form names, without those that are gone by
// now, or, if it says all, those that its query finds.
func (p *Page) chooseMany(r *http.Request) (c choice, status int, err error) {
	q, err := parseQuery(r.Form)
	if err != nil {
		return c, http.StatusBadRequest, err
	}
	c.shown = "./" + q.String()
	if c.loop, err = p.onlyLoop(q.Queue); err != nil {
		return c, http.StatusNotFound, err
	}
	names := make(map[string]int) // and how many items are shown so
	if r.PostForm.Has("all") {
		c.items = c.loop.choose(p.refresh(), q.has)
		c.log = []any{"items", len(c.items), "query", q.String()}
	} else {
		for _, name := range r.PostForm["item"] {
			names[name] = 0
		}
		for _, escaped := range r.PostForm["escaped"] { // a browser changes line feeds and such of what it sends
			name, err := url.QueryUnescape(escaped)
			if err != nil {
				return c, http.StatusBadRequest, fmt.Errorf("escaped: %w", err)
			}
			names[name] = 0
		}
		if len(names) == 0 {
			return c, http.StatusBadRequest, errors.New("no item is selected: want item=NAME, as often as needed, or all=true")
		}
		c.items = c.loop.choose(p.refresh(), func(r *row) bool {
			_, chosen := names[nameInURL(r.name)]
			if chosen {
				names[nameInURL(r.name)]++
			}
			return chosen
		})
		c.log = []any{"items", len(c.items), "item", fmt.Sprintf("%q", slices.Sorted(maps.Keys(names)))}
	}
	for name, n := range names {
		if n > 1 {
			return c, http.StatusConflict, errAlike(n, name)
		}
	}
	if len(c.items) == 0 {
		return c, http.StatusNotFound, errors.New("no such item is known any more")
	}
	return c, 0, nil
}

func errAlike(n int, name string) error {
	return fmt.Errorf("%d items are shown as %q: add the id of the one that is meant", n, name)
}
