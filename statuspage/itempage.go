// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"slices"

	"github.com/reconkernel/reconcile"
)

// A handle is an item of a loop, whatever its type.
type handle struct {
	loop
	*row
}

// Describe returns what tells it from others that are shown alike. It has no field that
// Format leaves out.
func (h handle) Describe() string {
	return fmt.Sprintf("%s, %s (%s)", shorten(visible(h.text), 400), h.Status().words(), h.id())
}

// id returns a hash of all that the item is.
func (h handle) id() string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%#v", h.item)
	return fmt.Sprintf("%016x", hash.Sum64())
}

// URL returns the URL of the item's page.
func (h handle) URL() string { return h.url("item") }

func (h handle) url(path string) string { return itemURL(path, h.name(), h.text, h.id()) }

// maxNameInURL is how much of a name stands in a URL. Browsers and servers limit
// the length of a URL.
const maxNameInURL = 512

func nameInURL(name string) string { return name[:min(len(name), maxNameInURL)] }

// itemURL returns the URL of an item's page, or of its twin in JSON, relative to
// that of the Page. The id may be empty, if the name alone will do.
func itemURL(path, queue, name, id string) string {
	v := url.Values{"queue": {queue}, "item": {nameInURL(name)}}
	if id != "" {
		v.Set("id", id)
	}
	return path + "?" + v.Encode()
}

// nameIn returns the one of the names that means an item: the whole name, as a page and
// JSON show it, or the part of it in URLs.
func nameIn(names map[string]int, text string) (name string, ok bool) {
	if _, ok = names[text]; ok {
		return text, true
	}
	name = nameInURL(text)
	_, ok = names[name]
	return name, ok
}

// named returns the items of a loop that have one of the names; and this id, if it
// is not empty.
func (p *Page) named(l loop, names map[string]int, id string) []handle {
	found := p.choose(l, func(r *row) bool { _, ok := nameIn(names, r.text); return ok })
	return slices.DeleteFunc(found, func(h handle) bool { return id != "" && h.id() != id })
}

func (p *Page) choose(l loop, chosen func(*row) bool) (found []handle) {
	rows := l.snapshot(p.refresh()).rows
	for i := range rows {
		if chosen(&rows[i]) {
			r := rows[i] // a copy: else who keeps one row keeps them all
			found = append(found, handle{l, &r})
		}
	}
	return found
}

// found returns the items that a URL names: one, or several that are shown alike.
func (p *Page) found(v url.Values) ([]handle, error) {
	l, err := p.loop(v.Get("queue"))
	if err != nil {
		return nil, err
	}
	if !v.Has("item") {
		return nil, refuse(http.StatusNotFound, "no item is named: want item=NAME")
	}
	name := v.Get("item")
	found := p.named(l, map[string]int{name: 0}, v.Get("id"))
	if len(found) == 0 {
		return nil, refuse(http.StatusNotFound, "queue %q does not know item %q, and no run of it is remembered", l.name(), shorten(name, 200))
	}
	return found, nil
}

// An itemPage is the page of one item.
type itemPage struct {
	frame
	handle
	Queue      string
	Name       string // whole, and not blank
	HasActions bool
	Notice     string // what became of an action
	Status     filter // "" if the queue cannot be asked
	Story      string // how it stands, in words
	Error      string // whole, while the queue has it; otherwise as it is kept
	Runs       []run
}

// newItemPage returns the page of an item as it is now.
func (p *Page) newItemPage(h handle) *itemPage {
	now, runs := h.current(h.row)
	h.row = now
	v := &itemPage{
		frame:      p.frame(h.name()),
		handle:     h,
		Queue:      h.name(),
		Name:       visible(h.text),
		HasActions: p.AllowActions && h.hasActions(),
		Story:      h.story(),
		Error:      now.Last.Error,
		Runs:       runs,
	}
	v.Live, v.JSON = true, h.url("item.json")
	if h.hasQueue() {
		v.Status = now.Status()
	}
	switch {
	case now.Failures > 0 && now.Err != nil:
		v.Error = h.errorText(now.Err, maxWhole)
	case !now.Last.Failed():
		v.Error = now.Last.Headline()
	}
	return v
}

func (p *Page) serveItem(w http.ResponseWriter, r *http.Request) error {
	found, err := p.found(r.URL.Query())
	switch {
	case err != nil:
		return err
	case len(found) > 1:
		p.html(w, r, http.StatusMultipleChoices, "note-page", notePage{
			p.frame(found[0].name()), visible(found[0].text), "Several items are shown like this. Which one?", found,
		})
	default:
		v := p.newItemPage(found[0])
		v.Notice = notices[r.URL.Query().Get("notice")]
		p.html(w, r, http.StatusOK, "item-page", v)
	}
	return nil
}

// story says in words how an item stands, and what comes next.
func (h handle) story() string {
	r := h.row
	if !h.hasQueue() {
		return "What the queue knows of it cannot be seen from here."
	}
	text, since := "", since(r.Since)
	if r.Failures == 1 {
		text = "Its last run failed. "
	} else if r.Failures > 1 {
		text = fmt.Sprintf("Its last %s runs failed. ", number(r.Failures))
	}
	switch r.Phase {
	case reconcile.PhaseInFlight:
		text += fmt.Sprintf("It has been running for %s.", since)
		if r.Again {
			text += " It has a next run already."
		}
	case reconcile.PhaseReady:
		text += fmt.Sprintf("It has been ready for %s, and runs as soon as a worker is free.", since)
	case reconcile.PhaseWaiting:
		due := until(r.Due)
		if r.Recheck {
			return fmt.Sprintf("The last run succeeded %s ago. The recheck is in %s; an event runs it sooner.", since, due)
		}
		what := "The next run"
		if r.Failures > 0 {
			what = "The next try"
		}
		brings := "an event runs it sooner"
		if r.Held() {
			brings = "it is held, and an event does not run it sooner"
		}
		text += fmt.Sprintf("%s is in %s; %s.", what, due, brings)
	default:
		text += idleStory(r.Last.Outcome, since)
	}
	if pending := r.PendingFor(); pending != "" {
		text += fmt.Sprintf(" It has been out of sync for %s.", pending)
	}
	return text
}

func idleStory(last reconcile.Outcome, ago string) string {
	const again = "It runs again only after the next event or poll."
	switch last {
	case "":
		return "The queue does not know it, and no run of it is remembered. " + again
	case reconcile.OutcomeGaveUp:
		return fmt.Sprintf("It failed %s ago and is not retried. %s", ago, again)
	case reconcile.OutcomeTerminal:
		return fmt.Sprintf("It failed %s ago with a terminal error and is not retried. %s", ago, again)
	case reconcile.OutcomeRetrying, reconcile.OutcomeRequeued, reconcile.OutcomeAborted:
		return fmt.Sprintf("It ran %s ago, and its next run was cancelled. %s", ago, again)
	}
	return fmt.Sprintf("The last run succeeded %s ago. %s", ago, again)
}
