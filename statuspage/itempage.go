// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
)

// An itemPage is the page of one item.
type itemPage struct {
	frame
	Queue      string
	Name       string // whole, and not blank
	HasActions bool
	Action     string // the URL for them: in fields of a form a line break would not stay what it is
	Notice     string // what became of an action

	Row     rowView
	Story   string // how it stands, in words
	Error   string // whole, as it is kept
	Runs    []runView
	Choices []choiceView // if several items are shown alike: the rest is empty then
}

type runView struct {
	Key     int64
	At, Ago string
	Outcome string
	Fail    bool
	Took    string
	Waited  string
	Next    string
	Tries   int
	Error   string
	More    string // the whole error, if Error is not
	Repeat  bool   // the error is that of the run after it, which stands above
}

type choiceView struct{ Text, URL string }

// newItemPage returns the page of an item as it is now.
func (p *Page) newItemPage(h handle) *itemPage {
	r, runs, base := h.one(h)
	now := time.Since(base)
	v := &itemPage{
		frame:      p.frame(h.name()),
		Queue:      h.name(),
		Name:       visible(h.text),
		HasActions: p.AllowActions && h.hasActions(),
		Action:     h.url("item"),
		Row:        rowView{row: &r, loop: h.loop, now: now},
		Story:      story(&r, now, h.hasQueue()),
		Error:      r.err,
	}
	v.Live, v.JSON = true, h.url("item.json")
	if !r.outcome.failed() {
		v.Error = headline(r.err, r.outcome)
	}
	for i, x := range runs {
		run := runView{
			Key:     int64(x.ended),
			At:      base.Add(x.ended).UTC().Format("2006-01-02 15:04:05 MST"),
			Ago:     age(now-x.ended) + " ago",
			Outcome: x.outcome.String(),
			Fail:    x.outcome.failed(),
			Took:    took(x.duration),
			Waited:  took(x.waited),
			Tries:   int(x.failures),
			Error:   shorten(headline(x.err, x.outcome), 200),
			Repeat:  i > 0 && x.err != "" && x.err == runs[i-1].err,
		}
		if len(x.err) > len(run.Error) && x.outcome.failed() {
			run.More = x.err
		}
		if x.plans() {
			run.Next = took(x.next)
			if x.outcome == succeeded {
				run.Outcome += ", again within " + run.Next
			}
		}
		v.Runs = append(v.Runs, run)
	}
	return v
}

// newChoicePage returns a page that lets choose between items that are shown
// alike.
func (p *Page) newChoicePage(found []handle) *itemPage {
	v := &itemPage{frame: p.frame(found[0].name()), Name: visible(found[0].text)}
	for _, h := range found {
		v.Choices = append(v.Choices, choiceView{shorten(h.describe(), 500), h.url("item")})
	}
	return v
}

// story says in words how an item stands, and what comes next.
func story(r *row, now time.Duration, hasQueue bool) string {
	if !hasQueue {
		return "What the queue knows of it cannot be seen from here."
	}
	since := age(now - r.since)
	text := ""
	if r.failures == 1 {
		text = "Its last run failed. "
	} else if r.failures > 1 {
		text = fmt.Sprintf("Its last %s runs failed. ", number(r.failures))
	}
	switch r.phase {
	case reconcile.InFlight:
		text += fmt.Sprintf("It has been running for %s.", since)
		if r.again {
			text += " It has a next run already."
		}
	case reconcile.Ready:
		text += fmt.Sprintf("It has been ready for %s, and runs as soon as a worker is free.", since)
	case reconcile.Waiting:
		due := age(r.due - now + time.Second - 1)
		if r.settled {
			return fmt.Sprintf("All was well %s ago. It is looked at again in %s; an event brings it sooner.", since, due)
		}
		what := "The next run"
		if r.failures > 0 {
			what = "The next try"
		}
		brings := "an event brings it sooner"
		if r.hold {
			brings = "it is held, and an event does not bring it sooner"
		}
		text += fmt.Sprintf("%s is in %s; %s.", what, due, brings)
	default:
		text += idleStory(r, age(now-r.ended))
	}
	return text
}

func idleStory(r *row, ago string) string {
	const fed = "It runs again only when it is fed again."
	switch r.outcome {
	case noOutcome:
		return "The queue does not know it, and no run of it is remembered. " + fed
	case gaveUp:
		return fmt.Sprintf("It was given up %s ago. %s", ago, fed)
	case terminated:
		return fmt.Sprintf("It failed for good %s ago: its error is one that no retry mends. %s", ago, fed)
	case retrying, requeued, aborted:
		return fmt.Sprintf("It ran %s ago, and its next run was cancelled. %s", ago, fed)
	}
	return fmt.Sprintf("All was well %s ago. %s", ago, fed)
}

// found returns the items that a URL or form names: one, or several that are
// shown alike.
func (p *Page) found(v url.Values) ([]handle, error) {
	l, err := p.loop(v.Get("queue"))
	if err != nil {
		return nil, err
	}
	if !v.Has("item") {
		return nil, fmt.Errorf("no item is named: want item=NAME")
	}
	name, id := v.Get("item"), v.Get("id")
	found := l.choose(p.refresh(), func(r *row) bool { return nameInURL(r.name) == name })
	found = slices.DeleteFunc(found, func(h handle) bool { return id != "" && h.id() != id })
	if len(found) == 0 {
		return nil, fmt.Errorf("queue %q does not know item %q, and no run of it is remembered", l.name(), shorten(name, 200))
	}
	return found, nil
}
