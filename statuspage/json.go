// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"net/http"
	"time"

	"github.com/reconkernel/reconcile"
)

// What programs get. Times are RFC 3339, durations are numbers of seconds. A
// field is never renamed or given another meaning; new ones may come.

type statusJSON struct {
	At       time.Time     `json:"at"`
	Queues   []queueJSON   `json:"queues"`
	Groups   []groupView   `json:"groups"`
	Gates    []gateView    `json:"gates"`
	Listings []listingView `json:"listings"`
}

type queueJSON struct {
	Name string `json:"name"`
	counts
	LongestReady    duration `json:"longest_ready_seconds"`
	LongestInFlight duration `json:"longest_in_flight_seconds"`
	LongestPending  duration `json:"longest_pending_seconds"` // of those in the queue that are out of sync

	Runs    map[reconcile.Outcome]uint64 `json:"runs"`    // by outcome, since the start
	Dropped uint64                       `json:"dropped"` // of these, counted but not remembered
	Rate    float64                      `json:"runs_per_second"`
	P50     duration                     `json:"p50_seconds"` // of the last 15 minutes; null if there was no run
	P99     duration                     `json:"p99_seconds"`

	ItemsURL string `json:"items_url"`
}

type itemsJSON struct {
	At    time.Time  `json:"at"`
	Queue string     `json:"queue"`
	Total int        `json:"total"` // on all pages
	Page  int        `json:"page"`
	Pages int        `json:"pages"`
	Size  int        `json:"size"`
	Items []itemJSON `json:"items"`
	Next  string     `json:"next_url,omitempty"`
}

type itemJSON struct {
	Name      string            `json:"name"`
	ID        string            `json:"id,omitempty"`
	Phase     string            `json:"phase"` // in the queue: "idle", "ready", "waiting" or "in flight"
	InSync    bool              `json:"in_sync"`
	Since     time.Time         `json:"since,omitzero"`
	Pending   time.Time         `json:"pending,omitzero"` // since when there has been work
	Due       time.Time         `json:"due,omitzero"`
	NotBefore time.Time         `json:"not_before,omitzero"` // when an event starts it at the earliest, if not at once
	Again     bool              `json:"again"`
	Failing   bool              `json:"failing"`
	Failures  int               `json:"failures"`
	Error     string            `json:"error,omitempty"`
	Outcome   reconcile.Outcome `json:"last_outcome,omitempty"`
	Ended     moment            `json:"last_run,omitzero"`
	Took      duration          `json:"last_duration_seconds,omitzero"`
	URL       string            `json:"url"`
	Story     string            `json:"story,omitempty"` // item.json alone
	Runs      []run             `json:"runs,omitempty"`  // item.json alone; the latest first
}

func (p *Page) serveStatusJSON(w http.ResponseWriter, r *http.Request) error {
	p.json(w, r, http.StatusOK, statusJSON{time.Now(), p.queues(), p.groupViews(), p.gateViews(), p.listingViews()})
	return nil
}

// queues returns what is known of all loops.
func (p *Page) queues() []queueJSON {
	all := []queueJSON{}
	for _, l := range p.loops {
		s := l.snapshot(p.refresh())
		q := queueJSON{
			Name:     l.name(),
			counts:   s.counts,
			Runs:     make(map[reconcile.Outcome]uint64),
			Dropped:  s.dropped,
			Rate:     s.perSecond,
			P50:      s.p50,
			P99:      s.p99,
			ItemsURL: "items.json" + query{Size: defaultSize}.WithQueue(l.name()).String(),
		}
		if s.Ready > 0 {
			q.LongestReady = duration(max(0, s.taken.Sub(s.readySince))) // a queue elsewhere may have a clock that is ahead
		}
		if s.InFlight > 0 {
			q.LongestInFlight = duration(max(0, s.taken.Sub(s.inFlightSince)))
		}
		if !s.pending.IsZero() {
			q.LongestPending = duration(max(0, s.taken.Sub(s.pending)))
		}
		for i, n := range s.totals {
			q.Runs[outcomes[i]] = n
		}
		all = append(all, q)
	}
	return all
}

func (p *Page) serveItemsJSON(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	l, err := p.onlyLoop(q.Queue)
	if err != nil {
		return err
	}
	s := l.snapshot(p.refresh())
	page := s.page(q)
	v := itemsJSON{
		At: s.taken, Queue: l.name(), Items: []itemJSON{},
		Total: page.Total, Page: page.Page, Pages: page.Pages, Size: q.Size,
	}
	for _, r := range page.Rows {
		v.Items = append(v.Items, newItemJSON(handle{l, r}))
	}
	if v.Page < v.Pages {
		v.Next = "items.json" + q.WithPage(v.Page+1).String()
	}
	p.json(w, r, http.StatusOK, v)
	return nil
}

func (p *Page) serveItemJSON(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	if _, err := p.onlyLoop(v.Get("queue")); err != nil {
		return err
	}
	found, err := p.found(v)
	if err != nil {
		return err
	}
	items := []itemJSON{}
	for _, h := range found {
		now, runs := h.current(h.row)
		h.row = now
		i := newItemJSON(h)
		i.ID, i.URL, i.Story, i.Runs = h.id(), h.url("item.json"), h.story(), runs
		items = append(items, i)
	}
	if len(items) > 1 {
		p.json(w, r, http.StatusMultipleChoices, map[string]any{"error": errAlike(found[0].text).Error(), "items": items})
	} else {
		p.json(w, r, http.StatusOK, items[0])
	}
	return nil
}

func newItemJSON(h handle) itemJSON {
	v := itemJSON{
		Name:      h.text,
		Phase:     h.Phase.String(),
		InSync:    h.inSync(),
		Since:     h.Since,
		Pending:   h.Pending,
		Due:       h.Due,
		NotBefore: h.NotBefore,
		Again:     h.Again,
		Failing:   h.Failing(),
		Failures:  h.Failures,
		Error:     h.Last.Error,
		Outcome:   h.Last.Outcome,
		Ended:     h.Last.Ended,
		Took:      h.Last.Duration,
		URL:       itemURL("item.json", h.name(), h.text, ""),
	}
	if h.Last.Outcome == "" {
		v.Took = none
	}
	return v
}
