// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
)

// An overview is the page of a loop.
type overview struct {
	frame
	Query  query
	Queues []queueView // if there are several
	Alerts []string
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
	Name, URL                                       string
	Current, Bad                                    bool
	InOrder, Failing, InFlight, Ready, Waiting, All string
	Rate, P99                                       string
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

type rowView struct {
	Name, URL   string
	Key         string // the name as the form has it
	Box         bool   // it can be selected
	Failing     bool
	Final       bool
	Error       string
	State       string
	StateClass  string
	Since       string
	Next        string
	Hold        bool
	Failures    string
	Outcome     string
	OutcomeFail bool
	Ended       string
	Took        string
}

type groupView struct {
	Name    string
	Members []memberView
}

type memberView struct {
	Name, State, Class, Since, Error string
	Starts                           int
}

// overview puts together the page that a query asks for. It returns when there
// is something new to see.
func (p *Page) overview(q query) (*overview, time.Time, error) {
	o := &overview{frame: p.frame(), Query: q}
	o.Live = true
	o.Alerts, o.Groups = p.groupViews(time.Now())
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
	o.table(q, s)
	o.HasActions = p.AllowActions && slices.ContainsFunc(p.loops, loop.hasActions)
	if p.AllowActions && l.hasActions() {
		o.buttons(q, s)
	}
	return o, s.expires(p.refresh()), nil
}

func (o *overview) table(q query, s *snapshot) {
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
		v := newRowView(&rows[i], s.now, o.Name)
		if !o.HasQueue {
			v.State = "" // it is not known
		}
		o.Rows = append(o.Rows, v)
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
		o.Rows[i].Box = o.Rows[i].Failing
		shown = shown || o.Rows[i].Box
	}
	if !shown {
		return
	}
	fail := q.withState(failingItems)
	n := s.counts.failing
	if q.Search != "" {
		_, n, _ = s.page(fail)
	}
	o.RetryAll = fmt.Sprintf("Reconcile all %s failing now", number(n))
	if n == 1 {
		o.RetryAll = "Reconcile the failing one now"
	}
	o.Selected, o.Fail = q.String(), fail.String()
}

func newRowView(r *row, now time.Duration, queue string) rowView {
	v := rowView{
		Name:       shorten(visible(r.name), 200),
		URL:        itemURL("item", queue, r.name, ""),
		Key:        url.QueryEscape(nameInURL(r.name)),
		Failing:    r.failing(),
		Final:      r.final(),
		Error:      shorten(headline(r.err, r.outcome), 300),
		State:      r.state().words(),
		StateClass: string(r.state()),
		Since:      age(now - r.since),
		Hold:       r.hold,
	}
	if r.failures > 0 {
		v.Failures = number(r.failures)
	}
	v.Next = nextRun(r, now)
	if r.outcome != noOutcome {
		v.Outcome, v.OutcomeFail = r.outcome.String(), r.outcome.failed()
		v.Ended, v.Took = age(now-r.ended)+" ago", took(r.took)
	}
	return v
}

func nextRun(r *row, now time.Duration) string {
	switch {
	case r.phase == reconcile.Waiting:
		return "in " + age(r.due-now+time.Second-1)
	case r.phase == reconcile.Ready:
		return "now"
	case r.again:
		return "after this run"
	}
	return ""
}

// lead returns how many of all items are in order; "" if there is none.
func (p *Page) lead() string {
	inOrder, all := 0, 0
	for _, l := range p.loops {
		c := l.snapshot(p.refresh()).counts
		inOrder, all = inOrder+c.inOrder, all+c.all
	}
	if all == 0 {
		return ""
	}
	return part(inOrder, all) + " in order"
}

func part(n, all int) string { return number(n) + " of " + number(all) }

func tiles(q query, s *snapshot, hasQueue bool) []tileView {
	c := &s.counts
	ordered := tileView{Label: "In order", Count: part(c.inOrder, c.all), Class: "in-order", filter: inOrderItems}
	if c.inOrder > 0 && c.inOrder == c.all {
		ordered.Class += " done"
	}
	if c.firstLook < never {
		ordered.Detail = "next look in " + age(c.firstLook-s.now+time.Second-1)
	}
	all := tileView{Label: "All items", Count: number(c.all), Detail: runsPer(s.perSecond), filter: allItems}
	failing := tileView{Label: "Failing", Count: number(c.failing), filter: failingItems}
	if c.failing > 0 {
		failing.Class = "bad"
		failing.Detail = fmt.Sprintf("up to %s in a row", number(c.mostFailures))
		if c.final > 0 {
			failing.Detail = fmt.Sprintf("%s not retried", number(c.final))
		}
	}
	flying := tileView{Label: "In flight", Count: number(c.inFlight), filter: inFlightItems}
	if c.inFlight > 0 {
		flying.Detail = "longest " + age(s.now-c.longestInFlight)
	}
	due := tileView{Label: "Ready", Count: number(c.ready), filter: readyItems}
	if c.ready > 0 {
		due.Detail = "longest " + age(s.now-c.longestReady)
	}
	later := tileView{Label: "Waiting", Count: number(c.waiting), filter: waitingItems}
	if c.waiting > 0 {
		later.Detail = "next in " + age(c.firstDue-s.now+time.Second-1)
		if c.held > 0 {
			later.Detail += fmt.Sprintf(", %s held", number(c.held))
		}
	}
	idle := tileView{Label: "Idle", Count: number(c.idle), Detail: "remembered", filter: idleItems}
	views := []tileView{ordered, all, failing}
	if hasQueue {
		views = append(views, flying, due, later, idle)
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
		c := &s.counts
		v := queueView{
			Name:    l.name(),
			URL:     "./" + q.withQueue(l.name()).String(),
			Current: l.name() == q.Queue,
			Bad:     c.failing > 0,
			InOrder: number(c.inOrder), Failing: number(c.failing), InFlight: number(c.inFlight), Ready: number(c.ready),
			Waiting: number(c.waiting), All: number(c.all),
			Rate: perSecond(s.perSecond), P99: "–",
		}
		if s.timed {
			v.P99 = took(s.p99)
		}
		views = append(views, v)
	}
	return views
}

// groupViews returns the members of the groups, and a line for each that failed.
func (p *Page) groupViews(now time.Time) (alerts []string, views []groupView) {
	for _, g := range p.groups {
		v := groupView{Name: g.Name}
		for _, m := range g.list() {
			member := memberView{Name: m.name, State: m.phase.String(), Class: m.phase.class(), Starts: m.starts, Error: m.err}
			if !m.since.IsZero() {
				member.Since = age(now.Sub(m.since))
			}
			if alert := m.alert(now); alert != "" {
				alerts = append(alerts, alert)
			}
			v.Members = append(v.Members, member)
		}
		views = append(views, v)
	}
	return alerts, views
}

// alert returns a line about a member that failed, also if it runs again but
// has not done so for long. It says nothing that changes from second to second:
// a screen reader reads it aloud each time.
func (m *member) alert(now time.Time) string {
	switch {
	case m.phase == memberFailed:
		return fmt.Sprintf("%s failed: %s", m.name, m.err)
	case m.err != "" && now.Sub(m.failed) < time.Minute:
		return fmt.Sprintf("%s failed: %s (it runs again)", m.name, m.err)
	}
	return ""
}

func (p memberPhase) class() string {
	return [...]string{"idle", "in-flight", "idle", "failed"}[p]
}
