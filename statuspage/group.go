// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Group is a [reconcile.Group] whose members a [Page] shows: since when they
// run, and how they ended. It does the same otherwise. The zero Group is ready,
// and must not be copied.
type Group struct {
	Name string // shown above the members; may be empty

	reconcile.Group

	mu      sync.Mutex // guards the fields below
	members []*member  // in the order in which they were added
}

// A member is what is known of a Runner of a Group, as a page and JSON show it.
type member struct {
	Name   string      `json:"name"`
	State  memberState `json:"state"`
	Since  time.Time   `json:"since,omitzero"` // when it entered the state; zero if it never ran
	Starts int         `json:"starts"`
	Error  string      `json:"error,omitempty"` // why it failed last
	failed time.Time   // and when

	// Of polls alone.
	Failures  int       `json:"failures,omitempty"` // in a row
	Succeeded time.Time `json:"succeeded,omitzero"` // the last one that did
}

type memberState string

const (
	memberNew     memberState = "not started"
	memberRunning memberState = "running"
	memberEnded   memberState = "ended"
	memberFailed  memberState = "failed"
	memberPolled  memberState = "succeeded"
)

// maxMembers is from how many members on those that ended are forgotten.
const maxMembers = 200

// Add is [reconcile.Group.Add]. A member that is stopped is shown no more.
func (g *Group) Add(name string, r reconcile.Runner) (stop func()) {
	w, m := g.watch(name, r)
	end := g.Group.Add(name, w)
	return func() {
		end()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	}
}

// Watch returns a Runner that runs r, and that is shown with the members. Use it
// inside of [reconcile.Restart], to see how often a Runner was restarted and why:
//
//	group.Add("events", reconcile.Restart(nil, group.Watch("event stream", feed)))
func (g *Group) Watch(name string, r reconcile.Runner) reconcile.Runner {
	w, _ := g.watch(name, r)
	return w
}

func (g *Group) watch(name string, r reconcile.Runner) (*watched, *member) {
	m := g.newMember(name)
	return &watched{g, m, r}, m
}

func (g *Group) newMember(name string) *member {
	m := &member{Name: name, State: memberNew}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) >= maxMembers {
		if i := slices.IndexFunc(g.members, func(o *member) bool { return o.State == memberEnded }); i >= 0 {
			g.members = slices.Delete(g.members, i, i+1)
		}
	}
	g.members = append(g.members, m)
	return m
}

// panicked is what is said of a member that did not return.
const panicked = "panic or runtime.Goexit; the log says where"

// A watched is a Runner that notes what becomes of another.
type watched struct {
	group  *Group
	member *member
	runner reconcile.Runner
}

// Unwrap lets a Group know what runs in here.
func (w *watched) Unwrap() reconcile.Runner { return w.runner }

func (w *watched) Run(ctx context.Context) error {
	if w.runner == nil {
		err := errors.New("statuspage: Group needs a Runner, got nil")
		w.set(memberFailed, err.Error())
		return err
	}
	w.set(memberRunning, "")
	returned := false
	defer func() {
		if !returned { // the panic goes on to whoever catches it, with its stack
			w.set(memberFailed, panicked)
		}
	}()
	err := w.runner.Run(ctx)
	returned = true
	if err == nil || ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		w.set(memberEnded, "")
	} else {
		w.set(memberFailed, textOf(err))
	}
	return err
}

func (w *watched) set(state memberState, err string) {
	w.group.mu.Lock()
	defer w.group.mu.Unlock()
	m := w.member
	m.State, m.Since = state, time.Now()
	if state == memberRunning {
		m.Starts++
	}
	if state == memberFailed {
		m.Error, m.failed = err, m.Since
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
			v.Members = append(v.Members, *m)
		}
		g.mu.Unlock()
		views = append(views, v)
	}
	return views
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

// Class returns the class of its state in the style sheet.
func (m member) Class() string {
	switch m.State {
	case memberRunning:
		return "in-flight"
	case memberFailed:
		return "failed"
	case memberPolled:
		return "in-order"
	}
	return "idle"
}

// Age returns for how long it has been in the state.
func (m member) Age() string {
	if m.Since.IsZero() {
		return "–"
	}
	return age(time.Since(m.Since))
}

// addTo makes a Group a Part.
func (g *Group) addTo(p *Page) { p.groups = append(p.groups, g) }
