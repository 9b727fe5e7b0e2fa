// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/reconkernel/reconcile"
)

// What programs get. Times are RFC 3339, durations are numbers of seconds. A
// field is never renamed or given another meaning; new ones may come.

type statusJSON struct {
	At     time.Time   `json:"at"`
	Queues []queueJSON `json:"queues"`
	Groups []groupView `json:"groups"`
}

type queueJSON struct {
	Name string `json:"name"`
	counts
	LongestReady    float64 `json:"longest_ready_seconds"`
	LongestInFlight float64 `json:"longest_in_flight_seconds"`

	Runs    map[string]uint64 `json:"runs"`    // by outcome, since the start
	Dropped uint64            `json:"dropped"` // of these, counted but not remembered
	Rate    float64           `json:"runs_per_second"`
	P50     *float64          `json:"p50_seconds"` // of the last 15 minutes; null if there was no run
	P99     *float64          `json:"p99_seconds"`

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
	Name     string    `json:"name"`
	ID       string    `json:"id,omitempty"`
	Phase    string    `json:"phase"` // in the queue: "idle", "ready", "waiting" or "in flight"
	InOrder  bool      `json:"in_order"`
	Since    time.Time `json:"since,omitzero"`
	Due      time.Time `json:"due,omitzero"`
	Hold     bool      `json:"hold"`
	Again    bool      `json:"again"`
	Failing  bool      `json:"failing"`
	Failures int       `json:"failures"`
	Error    string    `json:"error,omitempty"`
	Outcome  string    `json:"last_outcome,omitempty"`
	Ended    time.Time `json:"last_run,omitzero"`
	Took     *float64  `json:"last_duration_seconds,omitempty"`
	URL      string    `json:"url"`
	Story    string    `json:"story,omitempty"` // item.json alone
	Runs     []runJSON `json:"runs,omitempty"`  // item.json alone; the latest first
}

type runJSON struct {
	Ended    time.Time `json:"ended"`
	Outcome  string    `json:"outcome"`
	Duration float64   `json:"duration_seconds"`
	Waited   float64   `json:"waited_seconds"`
	Next     *float64  `json:"next_seconds,omitempty"`
	Failures int       `json:"failures"`
	Error    string    `json:"error,omitempty"`
}

func (p *Page) json(w http.ResponseWriter, r *http.Request, status int, v any) {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)              // nobody takes it for HTML, and URLs stay readable
	if err := encoder.Encode(v); err != nil { // a type above cannot be marshalled: a fault of this package
		p.log(r.Context(), "statuspage: JSON failed", "err", err)
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data.Bytes()) // if the reader is gone there is nobody to tell
}

func (p *Page) serveStatusJSON(w http.ResponseWriter, r *http.Request) {
	s := statusJSON{At: time.Now(), Queues: []queueJSON{}, Groups: p.groupViews()}
	for _, l := range p.loops {
		s.Queues = append(s.Queues, newQueueJSON(l, l.snapshot(p.refresh())))
	}
	p.json(w, r, http.StatusOK, s)
}

func newQueueJSON(l loop, s *snapshot) queueJSON {
	c := &s.counts
	q := queueJSON{
		Name:            l.name(),
		counts:          *c,
		LongestReady:    max(0, s.now-c.longestReady).Seconds(),
		LongestInFlight: max(0, s.now-c.longestInFlight).Seconds(),
		Runs:            make(map[string]uint64),
		Dropped:         s.dropped,
		Rate:            s.perSecond,
		ItemsURL:        "items.json" + query{Size: defaultSize}.withQueue(l.name()).String(),
	}
	for o := succeeded; o < outcomes; o++ {
		q.Runs[o.String()] = s.totals[o]
	}
	if s.timed {
		p50, p99 := s.p50.Seconds(), s.p99.Seconds()
		q.P50, q.P99 = &p50, &p99
	}
	return q
}

func (p *Page) serveItemsJSON(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		p.fail(w, r, http.StatusBadRequest, err)
		return
	}
	l, err := p.onlyLoop(q.Queue)
	if err != nil {
		p.fail(w, r, http.StatusNotFound, err)
		return
	}
	s := l.snapshot(p.refresh())
	rows, total, page := s.page(q)
	v := itemsJSON{
		At: s.taken, Queue: l.name(), Items: []itemJSON{},
		Total: total, Page: page, Pages: max(1, (total+q.Size-1)/q.Size), Size: q.Size,
	}
	for i := range rows {
		v.Items = append(v.Items, newItemJSON(l, &rows[i], s.base))
	}
	if v.Page < v.Pages {
		v.Next = "items.json" + q.withPage(v.Page+1).String()
	}
	p.json(w, r, http.StatusOK, v)
}

func (p *Page) serveItemJSON(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	if _, err := p.onlyLoop(v.Get("queue")); err != nil {
		p.fail(w, r, http.StatusNotFound, err)
		return
	}
	found, err := p.found(v)
	switch {
	case err != nil:
		p.fail(w, r, http.StatusNotFound, err)
	case len(found) > 1:
		items := []itemJSON{}
		for _, h := range found {
			items = append(items, fullItemJSON(h))
		}
		p.json(w, r, http.StatusMultipleChoices, map[string]any{
			"error": errAlike(found[0].text).Error(),
			"items": items,
		})
	default:
		p.json(w, r, http.StatusOK, fullItemJSON(found[0]))
	}
}

// onlyLoop is loop, but does without a name only if there is one loop alone.
func (p *Page) onlyLoop(name string) (loop, error) {
	if name == "" && len(p.loops) > 1 {
		var names []string
		for _, l := range p.loops {
			names = append(names, l.name())
		}
		return nil, fmt.Errorf("which queue? Add queue=NAME; there are %s", list(names))
	}
	return p.loop(name)
}

func newItemJSON(l loop, r *row, base time.Time) itemJSON {
	v := itemJSON{
		Name:     r.name,
		Phase:    r.phase.String(),
		InOrder:  r.inOrder(),
		Hold:     r.hold,
		Again:    r.again,
		Failing:  r.Failing(),
		Failures: int(r.failures),
		Error:    r.err,
		URL:      itemURL("item.json", l.name(), r.name, ""),
	}
	if r.known() {
		v.Since = base.Add(r.since)
	}
	if r.phase == reconcile.Waiting {
		v.Due = base.Add(r.due)
	}
	if r.outcome != noOutcome {
		seconds := r.took.Seconds()
		v.Outcome, v.Ended, v.Took = r.outcome.String(), base.Add(r.ended), &seconds
	}
	return v
}

func fullItemJSON(h handle) itemJSON {
	r, runs, base := h.one(h)
	v := newItemJSON(h, &r, base)
	v.ID, v.URL = h.id(), h.url("item.json")
	v.Story = story(&r, time.Since(base), h.hasQueue())
	for _, x := range runs {
		run := runJSON{
			Ended:    base.Add(x.ended),
			Outcome:  x.outcome.String(),
			Duration: x.duration.Seconds(),
			Waited:   x.waited.Seconds(),
			Failures: int(x.failures),
			Error:    x.err,
		}
		if x.plans() {
			next := x.next.Seconds()
			run.Next = &next
		}
		v.Runs = append(v.Runs, run)
	}
	return v
}
