// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
)

// A Gate shows a [gate.Gate] on a [Page]: its budget and its limit and, while it is
// paused, since when, until when and why. With [Page.AllowActions], people can pause the
// gate for a time and end a pause.
//
// Name and Gate are required. Name is unique among the gates of the page. The fields must
// not change after [New].
type Gate struct {
	Name string // such as the cloud that it stands in front of
	Gate *gate.Gate
}

// addTo makes a Gate a Part.
func (g *Gate) addTo(p *Page) {
	switch {
	case g.Name == "":
		panic("statuspage: Gate.Name is required, and empty")
	case g.Gate == nil:
		panic(fmt.Sprintf("statuspage: Gate.Gate of gate %q is required, and nil", g.Name))
	case p.gate(g.Name) != nil:
		panic(fmt.Sprintf("statuspage: there are two gates named %q", g.Name))
	}
	p.gates = append(p.gates, g)
}

// A Listing shows a [keep.Set] on a [Page]: how many things are missing, out of sync and
// surplus, and the age of the last accepted listing. While the Set rejects its listings,
// it shows since when, and the names of all things that would be deleted. With
// [Page.AllowActions], people can then accept the deletion of exactly those names.
//
// Both fields are required. Name is unique among the listings of the page. The fields
// must not change after [New].
type Listing struct {
	Name string // such as what the Set keeps
	Of   Set
}

// A Set is the part of a [*keep.Set] that a [Listing] uses. Its methods do not block and
// may be called from any goroutine.
type Set interface {
	Stats() keep.Stats
	Age() time.Duration
	Rejected() (since time.Time, err error)
	Accept(rejected error) error
}

// addTo makes a Listing a Part.
func (l *Listing) addTo(p *Page) {
	switch {
	case l.Name == "":
		panic("statuspage: Listing.Name is required, and empty")
	case l.Of == nil, isNilPointer(l.Of):
		panic(fmt.Sprintf("statuspage: Listing.Of of listing %q is required, and nil", l.Name))
	case p.listing(l.Name) != nil:
		panic(fmt.Sprintf("statuspage: there are two listings named %q", l.Name))
	}
	p.listings = append(p.listings, l)
}

// gate returns the gate of a name, nil if there is none.
func (p *Page) gate(name string) *Gate {
	if i := slices.IndexFunc(p.gates, func(g *Gate) bool { return sameName(g.Name, name) }); i >= 0 {
		return p.gates[i]
	}
	return nil
}

// listing returns the listing of a name, nil if there is none.
func (p *Page) listing(name string) *Listing {
	if i := slices.IndexFunc(p.listings, func(l *Listing) bool { return sameName(l.Name, name) }); i >= 0 {
		return p.listings[i]
	}
	return nil
}

// sameName reports whether two names are equal except for their line ends, because a
// browser sends the fields of a form with CRLF.
func sameName(a, b string) bool {
	return a == b || lineEnds.Replace(a) == lineEnds.Replace(b)
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// A gateView is a gate as a page and JSON show it.
type gateView struct {
	Name     string    `json:"name"`
	Rate     float64   `json:"runs_per_second"` // the budget; 0 means none
	Burst    int       `json:"burst"`
	Limit    int       `json:"limit"` // of runs at once; 0 means none
	InFlight int       `json:"in_flight"`
	Waiting  int       `json:"waiting"`
	Pauses   uint64    `json:"pauses"`
	Paused   time.Time `json:"paused_since,omitzero"`
	Until    time.Time `json:"paused_until,omitzero"`
	Error    string    `json:"error,omitempty"` // why it is paused; empty if a person paused it
}

func (p *Page) gateViews() []gateView {
	views := []gateView{}
	for _, g := range p.gates {
		s := g.Gate.Stats()
		v := gateView{
			Name: g.Name, Burst: max(1, g.Gate.Burst), Limit: s.Limit, InFlight: s.InFlight, Waiting: s.Waiting,
			Pauses: s.Pauses, Paused: s.PausedSince, Until: s.Until, Error: p.errorText(s.Err),
		}
		if g.Gate.Every > 0 {
			v.Rate = 1 / g.Gate.Every.Seconds()
		}
		views = append(views, v)
	}
	return views
}

// IsPaused reports whether no run may start.
func (v gateView) IsPaused() bool { return !v.Paused.IsZero() }

// State says in a word how the gate stands.
func (v gateView) State() string {
	switch {
	case !v.IsPaused():
		return "open"
	case v.Until.After(time.Now()):
		return "paused"
	}
	return "probing"
}

// Next says until when the gate is paused, or that a probe has to end well.
func (v gateView) Next() string {
	switch {
	case !v.IsPaused():
		return ""
	case v.Until.After(time.Now()):
		return "in " + until(v.Until)
	}
	return "after a run that succeeds"
}

// Why says who paused the gate.
func (v gateView) Why() string {
	if !v.IsPaused() {
		return ""
	}
	return cmp.Or(v.Error, "an operator's pause")
}

// Budget says how many runs may start.
func (v gateView) Budget() string {
	if v.Rate == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s at once", perSecond(v.Rate), number(v.Burst))
}

// Alert returns a line about a gate that is paused. Like [member.Alert] it says nothing
// that changes from second to second.
func (v gateView) Alert() string {
	if !v.IsPaused() {
		return ""
	}
	return fmt.Sprintf("Gate %s is paused, nothing behind it runs: %s", v.Name, shorten(v.Why(), 300))
}

// A listingView is a listing as a page and JSON show it.
type listingView struct {
	Name      string    `json:"name"`
	Desired   int       `json:"desired"`
	Actual    int       `json:"actual"`
	Missing   int       `json:"missing"`
	OutOfSync int       `json:"out_of_sync"`
	Surplus   int       `json:"surplus"`
	Age       float64   `json:"age_seconds"` // of the last listing that was accepted
	Rejected  bool      `json:"rejected"`
	Since     time.Time `json:"rejected_since,omitzero"`
	Error     string    `json:"error,omitempty"`
	Names     []string  `json:"would_be_deleted,omitempty"` // the first ones of all
	More      int       `json:"more,omitempty"`             // how many follow
	Shown     string    `json:"shown,omitempty"`            // stands for all the names, in an action
}

// maxNames is how many names of a rejection are shown.
const maxNames = 1000

func (p *Page) listingView(l *Listing) listingView {
	s := l.Of.Stats()
	since, err := l.Of.Rejected()
	v := listingView{
		Name: l.Name, Desired: s.Desired, Actual: s.Actual, Missing: s.Missing, OutOfSync: s.OutOfSync, Surplus: s.Surplus,
		Age: l.Of.Age().Seconds(), Rejected: err != nil, Since: onClock(since), Error: p.errorText(err), Shown: shown(err),
	}
	if err != nil {
		v.Names = namesOf(err)
		v.More = max(0, len(v.Names)-maxNames)
		v.Names = slices.Clone(v.Names[:len(v.Names)-v.More])
		for i, name := range v.Names {
			v.Names[i] = cut(name, maxText)
		}
	}
	return v
}

// namesOf returns the names of all things that a rejection is about.
func namesOf(err error) []string {
	var rejection interface{ Names() []string }
	if errors.As(err, &rejection) {
		return rejection.Names()
	}
	return nil
}

// shown returns a text that is the same only for rejections of the same names, and empty
// without an error.
func shown(err error) string {
	if err == nil {
		return ""
	}
	hash := sha256.New()
	for _, name := range namesOf(err) {
		fmt.Fprintf(hash, "%d %s ", len(name), name)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// Alert returns a line about listings that are rejected.
func (v listingView) Alert() string {
	if !v.Rejected {
		return ""
	}
	return fmt.Sprintf("The listings of %s are rejected, nothing that is newly surplus is deleted: %s", v.Name, shorten(v.Error, 300))
}

func (p *Page) listingViews() []listingView {
	views := []listingView{}
	for _, l := range p.listings {
		views = append(views, p.listingView(l))
	}
	return views
}

// The actions of gates and listings.
const (
	pauseGate     action = "pause"
	goOn          action = "go-on"
	acceptListing action = "accept"
)

// longestPause is how long a pause may be: what is longer is a slip.
const longestPause = 30 * 24 * time.Hour

// serveGateAction pauses a gate, or lets it go on.
func (p *Page) serveGateAction(w http.ResponseWriter, r *http.Request) error {
	if err := p.readAction(w, r); err != nil {
		return err
	}
	name, a := r.PostForm.Get("gate"), action(r.PostForm.Get("action"))
	g := p.gate(name)
	if g == nil {
		var names []string
		for _, g := range p.gates {
			names = append(names, g.Name)
		}
		return refuse(http.StatusNotFound, "no gate %q; there are %s", name, strings.Join(names, ", "))
	}
	var end time.Time
	switch a {
	case goOn:
	case pauseGate:
		d, err := time.ParseDuration(r.PostForm.Get("for"))
		if err != nil || d <= 0 || d > longestPause {
			return fmt.Errorf("for %q: want a time such as 10m or 1h30m, more than 0 and at most %v", r.PostForm.Get("for"), longestPause)
		}
		end = time.Now().Add(d)
	default:
		return fmt.Errorf("no action %q; there are %s, %s", a, pauseGate, goOn)
	}
	g.Gate.PauseUntil(end)
	p.log(r.Context(), "statuspage: action", "action", string(a), "gate", name, "for", r.PostForm.Get("for"), "from", r.RemoteAddr)
	p.acted(w, r, string(a))
	return nil
}

// serveListingAction accepts what was rejected of a listing, if it is still what the form
// was shown for.
func (p *Page) serveListingAction(w http.ResponseWriter, r *http.Request) error {
	if err := p.readAction(w, r); err != nil {
		return err
	}
	name, a := r.PostForm.Get("listing"), action(r.PostForm.Get("action"))
	l := p.listing(name)
	switch {
	case l == nil:
		var names []string
		for _, l := range p.listings {
			names = append(names, l.Name)
		}
		return refuse(http.StatusNotFound, "no listing %q; there are %s", name, strings.Join(names, ", "))
	case a != acceptListing:
		return fmt.Errorf("no action %q; there is %s", a, acceptListing)
	}
	_, err := l.Of.Rejected()
	switch {
	case err == nil:
		return errors.New("the last listing was not rejected: there is nothing to accept")
	case r.PostForm.Get("shown") != shown(err):
		return refuse(http.StatusConflict, "the rejection of listing %q is not the one that was shown: %s; shown is %q now", name, p.errorText(err), shown(err))
	}
	if err := l.Of.Accept(err); err != nil {
		return refuse(http.StatusConflict, "%s", p.errorText(err))
	}
	p.log(r.Context(), "statuspage: action", "action", string(a), "listing", name, "rejected", p.errorText(err), "from", r.RemoteAddr)
	p.acted(w, r, string(a))
	return nil
}

// acted says what came of an action that is of no item.
func (p *Page) acted(w http.ResponseWriter, r *http.Request, notice string) {
	if wantsJSON(r) {
		p.json(w, r, http.StatusOK, map[string]string{"message": notices[notice]})
		return
	}
	w.Header().Set("Location", "./?notice="+notice)
	w.WriteHeader(http.StatusSeeOther)
}
