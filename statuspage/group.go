// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/supervise"
)

// A Group is a [supervise.Group] whose members a [Page] shows: since when each runs or, in
// [supervise.After], waits, or how it ended. In all other ways it behaves as a supervise.Group. The zero Group is
// ready for use. A Group may be part of only one page, and must not be copied.
type Group struct {
	Name string // shown above the members; may be empty

	supervise.Group

	page atomic.Pointer[Page] // nil before New

	mu      sync.Mutex // guards the fields below
	members []*member  // in the order in which they were added
}

// A member is what is known of a Runner of a Group, as a page and JSON show it.
type member struct {
	Name    string      `json:"name"`
	State   memberState `json:"state"`
	Since   time.Time   `json:"since,omitzero"` // when it entered the state; zero if it never ran
	Starts  int         `json:"starts"`
	Error   string      `json:"error,omitempty"` // why it failed last
	failed  time.Time   // and when
	stopped bool        // and is not shown again

	poll      bool      // the rest is of polls alone
	Failures  int       `json:"failures,omitempty"` // in a row
	Succeeded time.Time `json:"succeeded,omitzero"` // the last one that did
}

type memberState string

const (
	memberNew     memberState = "not started"
	memberWaiting memberState = "waiting" // until what it is to run after is ready
	memberRunning memberState = "running"
	memberEnded   memberState = "ended"
	memberFailed  memberState = "failed"
	memberPolled  memberState = "succeeded"
)

// maxMembers is from how many members on those that do not run are forgotten. One that
// runs or polls again is shown again.
const maxMembers = 200

// Add is [supervise.Group.Add]. After a call of stop, the page no longer shows the
// member.
func (g *Group) Add(name string, r reconcile.Runner) (stop func()) {
	m := g.newMember(name, false)
	end := g.Group.Add(name, &watched{g, m, r})
	return func() {
		end()
		g.mu.Lock()
		defer g.mu.Unlock()
		m.stopped = true
		g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	}
}

// Watch returns a Runner that runs r, and adds it to the members that the page shows. Use
// it within [supervise.Restart], to see how often and why a Runner was restarted:
//
//	group.Add("events", supervise.Restart(nil, group.Watch("event stream", feed)))
func (g *Group) Watch(name string, r reconcile.Runner) reconcile.Runner {
	return &watched{g, g.newMember(name, false), r}
}

func (g *Group) newMember(name string, poll bool) *member {
	m := &member{Name: cut(name, maxText), State: memberNew, poll: poll}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.showLocked(m)
	return m
}

// showLocked adds a member to those that are shown. If there is no room, one that ended is
// forgotten, then one of which nothing is known, then a poll that succeeds, and one that
// failed last.
func (g *Group) showLocked(m *member) {
	if len(g.members) >= maxMembers {
		for _, state := range []memberState{memberEnded, memberNew, memberPolled, memberFailed} {
			if i := slices.IndexFunc(g.members, func(o *member) bool { return o.State == state }); i >= 0 {
				g.members = slices.Delete(g.members, i, i+1)
				break
			}
		}
	}
	g.members = append(g.members, m)
}

// A watched is a Runner that notes what becomes of another.
type watched struct {
	group  *Group
	member *member
	runner reconcile.Runner
}

// Unwrap lets a Group know what runs in here.
func (w *watched) Unwrap() reconcile.Runner { return w.runner }

func (w *watched) Run(ctx context.Context) (err error) {
	if w.runner == nil {
		err := reconcile.Terminal(errors.New("statuspage: Group needs a Runner, got nil"))
		w.group.note(w.member, memberEnded, err)
		return err
	}
	failure := errPanicked // unless Run returns; the panic goes on to whoever catches it, with its stack
	defer func() { w.group.note(w.member, memberEnded, failure) }()
	err = w.start(ctx, w.runner)
	failure = err
	if ctx.Err() != nil { // Restart returns nil for the error of ctx. Before the end of ctx, it could call the function again.
		failure = supervise.Restart(reconcile.NoRetry, reconcile.RunFunc(func(context.Context) error { return err })).Run(ctx)
	}
	return err
}

// start runs r, and notes whether it waits or runs.
func (w *watched) start(ctx context.Context, r reconcile.Runner) error {
	after, ok := r.(interface {
		Ready() func(ctx context.Context) error
		Unwrap() reconcile.Runner
	})
	if !ok || after.Unwrap() == nil {
		w.group.note(w.member, memberRunning, nil)
		return r.Run(ctx)
	}
	w.group.note(w.member, memberWaiting, nil)
	return supervise.After(after.Ready(), reconcile.RunFunc(func(ctx context.Context) error {
		return w.start(ctx, after.Unwrap())
	})).Run(ctx)
}

// errPanicked is the failure of what did not return.
var errPanicked = errors.New("panic or runtime.Goexit; the log says where")

// Poll returns a function that calls list, and shows the results of the calls among the
// members of g: when a call last succeeded and, while calls fail, since when, how often
// and why. Use it for GetItems of a [reconcile.Poller], and for the argument of
// tracker.FromMap:
//
//	poller.GetItems = statuspage.Poll(group, "list of buckets", poller.GetItems)
//
// The page must have g as a part, but g need not run: if your loops are in a
// [supervise.Group], use a Group that has only polls.
//
// A call whose context is cancelled, for example at shutdown, does not count. If list is
// nil, Poll returns nil.
func Poll[R any](g *Group, name string, list func(context.Context) (R, error)) func(context.Context) (R, error) {
	if list == nil {
		return nil
	}
	m := g.newMember(name, true)
	return func(ctx context.Context) (result R, err error) {
		err = errPanicked // unless list returns
		defer func() {
			if ctx.Err() != context.Canceled {
				g.note(m, memberPolled, err)
			}
		}()
		return list(ctx)
	}
}

// note notes the state of a member, which is that it failed if there is an error.
func (g *Group) note(m *member, state memberState, err error) {
	var format errorFormat
	if p := g.page.Load(); p != nil {
		format = p.FormatError
	}
	text := format.text(err, maxText) // with no lock held: it calls a method of the user's
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.stopped && !slices.Contains(g.members, m) {
		g.showLocked(m)
	}
	now := time.Now()
	if err != nil {
		state = memberFailed
	}
	if state != memberFailed || m.State != memberFailed {
		m.Since = now
	}
	m.State = state
	if state == memberFailed {
		m.Error, m.failed = text, now
	}
	if state == memberRunning || m.poll {
		m.Starts++
	}
	switch {
	case !m.poll:
	case state == memberFailed:
		m.Failures++
	default:
		m.Succeeded, m.Failures = now, 0
	}
}

// A groupView is a group as a page and JSON show it.
type groupView struct {
	Name    string   `json:"name"`
	Members []member `json:"members"`
}

// groupViews returns the groups as they are now.
func (p *Page) groupViews() []groupView {
	views := []groupView{}
	for _, g := range p.groups {
		v := groupView{g.Name, []member{}}
		g.mu.Lock()
		for _, m := range g.members {
			shown := *m
			shown.Since, shown.Succeeded = onClock(m.Since), onClock(m.Succeeded)
			v.Members = append(v.Members, shown)
		}
		g.mu.Unlock()
		views = append(views, v)
	}
	return views
}

// onClock returns a time that was read before as the wall clock tells it now, which may
// have been stepped since. It leaves out what is less than half a second, so that a time
// that is shown again stays the same.
func onClock(t time.Time) time.Time {
	now := time.Now()
	step := (now.Round(0).Sub(t.Round(0)) - now.Sub(t)).Round(time.Second)
	if step == 0 {
		return t
	}
	return t.Round(0).Add(step) // without the monotonic reading, which was right, and which Add would change
}

// Alert returns a line about a member that failed, also if it runs again but
// has not done so for long. It says nothing that changes from second to second:
// a screen reader reads it aloud each time.
func (m member) Alert() string {
	switch {
	case m.State == memberFailed:
		return fmt.Sprintf("%s failed: %s", m.Name, m.Error)
	case m.Error != "" && time.Since(m.failed) < time.Minute:
		return fmt.Sprintf("%s failed: %s (it runs again)", m.Name, m.Error)
	}
	return ""
}

// Story says how often polls failed, "" if the last one did not.
func (m member) Story() string {
	switch {
	case m.Failures == 0:
		return ""
	case m.Succeeded.IsZero():
		return fmt.Sprintf("(%s in a row, none succeeded)", number(m.Failures))
	}
	return fmt.Sprintf("(%s in a row, last success %s ago)", number(m.Failures), since(m.Succeeded))
}

// addTo makes a Group a Part.
func (g *Group) addTo(p *Page) {
	g.page.Store(p)
	p.groups = append(p.groups, g)
}
