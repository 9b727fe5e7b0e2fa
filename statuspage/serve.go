// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
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
	p.html(w, r, http.StatusOK, "overview-page", o)
}

func (p *Page) serveItem(w http.ResponseWriter, r *http.Request) {
	l, found, err := p.found(r.URL.Query())
	if err != nil {
		p.fail(w, r, http.StatusNotFound, err)
		return
	}
	if len(found) > 1 {
		p.html(w, r, http.StatusMultipleChoices, "choice-page", p.newChoicePage(l, found))
		return
	}
	v := p.newItemPage(l, found[0])
	v.Notice = notices[r.FormValue("notice")]
	p.html(w, r, http.StatusOK, "item-page", v)
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
		p.html(w, r, status, "error-page", errorPage{p.frame(), http.StatusText(status), err.Error()})
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
	"reconcile": "Asked for a run now.",
	"cancel":    "The next run is cancelled.",
	"nothing":   "There was no next run to cancel.",
}

// maxForm is how many bytes a form may have.
const maxForm = 64 << 10

// serveAction does what a form asks for, and then shows the item.
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
	l, found, err := p.found(r.Form)
	switch {
	case err != nil:
		p.fail(w, r, http.StatusNotFound, err)
		return
	case len(found) > 1:
		p.fail(w, r, http.StatusConflict, fmt.Errorf("%d items are shown as %q: add the id of the one that is meant, from the page of the item", len(found), found[0].name()))
		return
	case !l.hasActions():
		p.fail(w, r, http.StatusForbidden, fmt.Errorf("queue %q has no such actions", l.name()))
		return
	}

	h, notice := found[0], string(a)
	if !h.do(a) {
		notice = "nothing"
	}
	p.log(r.Context(), "statuspage: action", "action", string(a), "queue", l.name(), "item", h.name(), "from", r.RemoteAddr)
	if wantsJSON(r) {
		p.json(w, r, http.StatusOK, map[string]string{"message": notices[notice]})
		return
	}
	to := itemURL("item", l.name(), h.name(), h.id()) + "&notice=" + url.QueryEscape(notice)
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
