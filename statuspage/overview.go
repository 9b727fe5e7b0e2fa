// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
)

// An overview is the page of a loop.
type overview struct {
	frame
	Query  query
	Queues []queueView // if there are several
	Tiles  []tileView
	Charts []chart
	Groups []groupView
	Note   string
	Notice string // what came of an action

	// The buttons above the table. The URLs are of items and items.json.
	HasActions     bool
	RetryAll       string // the label; empty if nothing that fails is shown
	Selected, Fail string // queries: this one, and that of all that fail in it

	// The table.
	Name        string
	None        bool // there is no loop at all
	HasQueue    bool
	Columns     []columnView
	Rows        []rowView
	Range       string
	Empty       string // why there are no rows
	First, Prev string // URLs, empty on the first page
	Next, Last  string // URLs, empty on the last page
}

type queueView struct {
	Name, URL string
	Current   bool
	counts
	Rate, P99 string
}

type tileView struct {
	Label, Count, Detail, URL, Class string
	Current                          bool
	filter                           filter
}

type columnView struct {
	Label, URL string
	Number     bool
	Sorted     string // "ascending" or "descending", for aria-sort
}

// A rowView is a row as the templates read it.
type rowView struct {
	*row
	loop
	now time.Duration
	Box bool // it can be selected
}

func (v rowView) Name() string     { return shorten(visible(v.row.name), 200) }
func (v rowView) URL() string      { return itemURL("item", v.loop.name(), v.row.name, "") }
func (v rowView) Key() string      { return url.QueryEscape(nameInURL(v.row.name)) } // as the form has it
func (v rowView) Err() string      { return shorten(headline(v.err, v.outcome), 300) }
func (v rowView) Since() string    { return age(v.now - v.since) }
func (v rowView) Hold() bool       { return v.hold }
func (v rowView) Failures() int    { return int(v.failures) }
func (v rowView) Outcome() outcome { return v.outcome }
func (v rowView) Ended() string    { return age(v.now-v.ended) + " ago" }
func (v rowView) Took() string     { return took(v.took) }

// State returns the state, "" if it is not known.
func (v rowView) State() filter {
	if !v.hasQueue() {
		return ""
	}
	return v.state()
}

// Next returns when the next run is, "" if there is none.
func (v rowView) Next() string {
	switch {
	case v.phase == reconcile.Waiting:
		return "in " + age(v.due-v.now+time.Second-1)
	case v.phase == reconcile.Ready:
		return "now"
	case v.again:
		return "after this run"
	}
	return ""
}

// overview puts together the page that a query asks for. It returns when there
// is something new to see.
func (p *Page) overview(q query) (*overview, time.Time, error) {
	o := &overview{frame: p.frame(q.Queue), Query: q, Groups: p.groupViews()}
	o.Live = true
	if len(p.loops) == 0 {
		o.None = true
		return o, time.Now().Add(p.refresh()), nil
	}
	l, err := p.loop(q.Queue)
	if err != nil {
		return nil, time.Time{}, err
	}
	s := l.snapshot(p.refresh())
	if len(p.loops) > 1 {
		q.Queue = l.name()
		o.Queues = p.queueViews(q)
	}
	o.Query = q
	o.Name = l.name()
	o.Home = "./" + q.withQueue(q.Queue).String()
	o.JSON = "items.json" + q.String()
	o.HasQueue = l.hasQueue()
	o.Tiles = tiles(q, s, o.HasQueue)
	o.Lead = p.lead()
	o.Charts = s.charts()
	o.Note = fmt.Sprintf("Remembers up to %s runs, at most %d of an item.", number(l.bound()), perItem)
	if s.dropped > 0 {
		o.Note += fmt.Sprintf(" %s results came too fast, and are only counted.", number(s.dropped))
	}
	o.table(q, l, s)
	o.HasActions = p.AllowActions && slices.ContainsFunc(p.loops, loop.hasActions)
	if p.AllowActions && l.hasActions() {
		o.buttons(q, s)
	}
	return o, s.expires(p.refresh()), nil
}

func (o *overview) table(q query, l loop, s *snapshot) {
	for _, c := range []struct {
		by    sorting
		label string
		down  bool // its key has the largest first
	}{
		{byName, "Item", false},
		{byState, "State", false},
		{bySince, "Since", false},
		{byDue, "Next run", false},
		{byFailures, "Failures", true},
		{byOutcome, "Last run", true},
		{byDuration, "Took", true},
	} {
		column := columnView{
			Label:  c.label,
			URL:    "./" + q.withSort(c.by).String(),
			Number: c.by == byFailures || c.by == byDuration,
		}
		if q.Sort == c.by {
			column.Sorted = "ascending"
			if q.Descending != c.down {
				column.Sorted = "descending"
			}
		}
		o.Columns = append(o.Columns, column)
	}

	rows, total, page := s.page(q)
	for i := range rows {
		o.Rows = append(o.Rows, rowView{row: &rows[i], loop: l, now: s.now})
	}
	pages := max(1, (total+q.Size-1)/q.Size)
	first := (page - 1) * q.Size
	switch {
	case total == 0 && q.Search != "":
		o.Empty = "No item matches."
	case total == 0 && q.State != allItems:
		o.Empty = "No item is " + q.State.words() + "."
	case total == 0:
		o.Empty = "No item is known: nothing is queued, and no result has come lately. Is Loop.OnResult the Reconciler's OnResult?"
	default:
		o.Range = fmt.Sprintf("%s–%s of %s", number(first+1), number(first+len(rows)), number(total))
	}
	if page > 1 {
		o.First, o.Prev = "./"+q.withPage(1).String(), "./"+q.withPage(page-1).String()
	}
	if page < pages {
		o.Next, o.Last = "./"+q.withPage(page+1).String(), "./"+q.withPage(pages).String()
	}
}

// buttons adds the boxes and the buttons, if something that fails is shown.
func (o *overview) buttons(q query, s *snapshot) {
	shown := false
	for i := range o.Rows {
		o.Rows[i].Box = o.Rows[i].Failing()
		shown = shown || o.Rows[i].Box
	}
	if !shown {
		return
	}
	fail := q.withState(failingItems)
	n := s.counts.Failing
	if q.Search != "" {
		_, n, _ = s.page(fail)
	}
	o.RetryAll = fmt.Sprintf("Reconcile all %s failing now", number(n))
	if n == 1 {
		o.RetryAll = "Reconcile the failing one now"
	}
	o.Selected, o.Fail = q.String(), fail.String()
}

// lead returns how many of all items are in order; "" if there is none.
func (p *Page) lead() string {
	inOrder, all := 0, 0
	for _, l := range p.loops {
		c := l.snapshot(p.refresh()).counts
		inOrder, all = inOrder+c.InOrder, all+c.Items
	}
	if all == 0 {
		return ""
	}
	return part(inOrder, all) + " in order"
}

func part(n, all int) string { return number(n) + " of " + number(all) }

func tiles(q query, s *snapshot, hasQueue bool) []tileView {
	c := &s.counts
	in := func(at time.Duration, what string) string {
		if at == never {
			return ""
		}
		return what + " in " + age(at-s.now+time.Second-1)
	}
	longest := func(n int, since time.Duration) string {
		if n == 0 {
			return ""
		}
		return "longest " + age(s.now-since)
	}
	views := []tileView{
		{Label: "In order", Count: part(c.InOrder, c.Items), Detail: in(c.firstLook, "next look"), filter: inOrderItems},
		{Label: "All items", Count: number(c.Items), Detail: strings.Replace(perSecond(s.perSecond), "/", " runs/", 1), filter: allItems},
		{Label: "Failing", Count: number(c.Failing), filter: failingItems},
		{Label: "In flight", Count: number(c.InFlight), Detail: longest(c.InFlight, c.longestInFlight), filter: inFlightItems},
		{Label: "Ready", Count: number(c.Ready), Detail: longest(c.Ready, c.longestReady), filter: readyItems},
		{Label: "Waiting", Count: number(c.Waiting), Detail: in(c.firstDue, "next"), filter: waitingItems},
		{Label: "Idle", Count: number(c.Idle), Detail: "remembered", filter: idleItems},
	}
	if c.InOrder > 0 && c.InOrder == c.Items {
		views[0].Class = "in-order done"
	}
	switch failing := &views[2]; {
	case c.GivenUp > 0:
		failing.Class, failing.Detail = "bad", number(c.GivenUp)+" not retried"
	case c.Failing > 0:
		failing.Class, failing.Detail = "bad", fmt.Sprintf("up to %s in a row", number(c.mostFailures))
	}
	if c.Held > 0 {
		views[5].Detail += fmt.Sprintf(", %s held", number(c.Held))
	}
	if !hasQueue {
		views = views[:3]
	}
	for i := range views {
		v := &views[i]
		v.URL = "./" + q.withState(v.filter).String()
		v.Current = q.State == v.filter
		v.Class = cmp.Or(v.Class, string(v.filter))
	}
	return views
}

func (p *Page) queueViews(q query) []queueView {
	var views []queueView
	for _, l := range p.loops {
		s := l.snapshot(p.refresh())
		v := queueView{l.name(), "./" + q.withQueue(l.name()).String(), l.name() == q.Queue, s.counts, perSecond(s.perSecond), "–"}
		if s.timed {
			v.P99 = took(s.p99)
		}
		views = append(views, v)
	}
	return views
}
