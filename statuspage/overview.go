// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// An overview is the page of a loop.
type overview struct {
	frame
	Queue    string // "" if there is no loop at all
	HasQueue bool
	Query    query
	Queues   []queueJSON
	Tiles    []tile
	Charts   []chart
	Groups   []groupView
	Gates    []gateView
	Listings []listingView
	Note     string
	Notice   string // what came of an action

	HasActions bool
	RetryAll   string // the label of a button; empty if nothing that fails is shown

	tablePage
	Range string
	Empty string // why there are no rows
}

type tile struct {
	State                filter
	Label, Count, Detail string
	Class                string
}

// A column of the table.
type column struct {
	By    sorting
	Label string
	down  bool // its key has the largest first
}

// Columns returns the columns of the table.
func (*overview) Columns() []column {
	return []column{
		{byName, "Item", false},
		{byState, "State", false},
		{bySince, "Since", false},
		{byDue, "Next run", false},
		{byFailures, "Failures", true},
		{byOutcome, "Last run", true},
		{byDuration, "Took", true},
	}
}

// IsNumber reports whether the column has numbers, which stand to the right.
func (c column) IsNumber() bool { return c.By == byFailures || c.By == byDuration }

func (p *Page) serveOverview(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	o, _, err := p.overview(q)
	if err != nil {
		return err
	}
	o.Notice = notices[r.URL.Query().Get("notice")]
	p.html(w, r, http.StatusOK, "overview-page", o)
	return nil
}

// overview puts together the page that a query asks for. It returns when there
// is something new to see.
func (p *Page) overview(q query) (*overview, time.Time, error) {
	o := &overview{frame: p.frame(""), Query: q, Groups: p.groupViews(), Gates: p.gateViews(), HasActions: p.AllowActions}
	o.Listings, o.Live, o.Skip = p.listingViews(), true, true
	if len(p.loops) == 0 {
		return o, time.Now().Add(p.refresh()), nil
	}
	l, err := p.loop(q.Queue)
	if err != nil {
		return nil, time.Time{}, err
	}
	s := l.snapshot(p.refresh())
	o.Queue, o.HasQueue, o.Queues = l.name(), l.hasQueue(), p.queues()
	if len(p.loops) > 1 {
		o.Query.Queue = l.name()
	}
	o.Home = "./" + q.WithQueue(o.Query.Queue).String()
	o.Lead = lead(o.Queues)
	o.JSON = "items.json" + o.Query.String()
	o.Tiles = tiles(s)
	if !o.HasQueue {
		o.Tiles = o.Tiles[:3]
	}
	o.Charts = s.charts()
	o.Note = fmt.Sprintf("Remembers up to %s runs, at most %d of an item.", number(l.bound()), perItem)
	if s.dropped > 0 {
		o.Note += fmt.Sprintf(" %s results came too fast, and are only counted.", number(s.dropped))
	}
	o.tablePage = s.page(q)
	first := (o.Page - 1) * q.Size
	switch {
	case o.Total > 0:
		o.Range = fmt.Sprintf("%s–%s of %s", number(first+1), number(first+len(o.Rows)), number(o.Total))
	case q.Search != "":
		o.Empty = "No item matches."
	case q.State != allItems:
		o.Empty = "No item is " + q.State.words() + "."
	default:
		o.Empty = "No item is known: nothing is queued, and no result has come lately. Is Loop.OnResult the Reconciler's OnResult?"
	}
	if p.AllowActions && l.hasActions() && slices.ContainsFunc(o.Rows, (*row).Failing) {
		o.RetryAll = "Reconcile the failing one now"
		if n := s.page(q.WithState(failingItems)).Total; n > 1 {
			o.RetryAll = fmt.Sprintf("Reconcile all %s failing now", number(n))
		}
	}
	return o, s.expires(p.refresh()), nil
}

// ItemURL returns the URL of the page of an item.
func (o *overview) ItemURL(r *row) string { return itemURL("item", o.Queue, r.text, "") }

// lead returns how many of all items are in sync; "" if there is none.
func lead(queues []queueJSON) string {
	inSync, all := 0, 0
	for _, q := range queues {
		inSync, all = inSync+q.InSync, all+q.Items
	}
	if all == 0 {
		return ""
	}
	return part(inSync, all) + " in sync"
}

// longPending is from when on an item that is out of sync is an alarm, as it is for
// the alerts of adapters/prometheus.
const longPending = time.Hour

func part(n, all int) string { return number(n) + " of " + number(all) }

func tiles(s *snapshot) []tile {
	detail := func(what string, at time.Time, format func(time.Time) string) string {
		if at.IsZero() {
			return ""
		}
		return what + " " + format(at)
	}
	all := []tile{
		{inSyncItems, "In sync", part(s.InSync, s.Items), detail("next recheck in", s.recheck, until), ""},
		{allItems, "All items", number(s.Items), strings.Replace(perSecond(s.perSecond), "/", " runs/", 1), ""},
		{failingItems, "Failing", number(s.Failing), "", ""},
		{inFlightItems, "In flight", number(s.InFlight), detail("longest", s.inFlightSince, since), ""},
		{readyItems, "Ready", number(s.Ready), detail("longest", s.readySince, since), ""},
		{waitingItems, "Waiting", number(s.Waiting), detail("next in", s.due, until), ""},
		{idleItems, "Idle", number(s.Idle), "remembered", ""},
	}
	switch pending := s.taken.Sub(s.pending); {
	case s.InSync > 0 && s.InSync == s.Items:
		all[0].Class = "done"
	case !s.pending.IsZero() && pending >= longRun:
		all[0].Detail = "one has not been for " + since(s.pending)
		if pending >= longPending {
			all[0].Class = "bad"
		}
	}
	switch failing := &all[2]; {
	case s.GivenUp > 0:
		failing.Class, failing.Detail = "bad", number(s.GivenUp)+" not retried"
	case s.Failing > 0:
		failing.Class, failing.Detail = "bad", fmt.Sprintf("up to %s in a row", number(s.mostFailures))
	}
	if s.Held > 0 {
		all[5].Detail += fmt.Sprintf(", %s held", number(s.Held))
	}
	return all
}
