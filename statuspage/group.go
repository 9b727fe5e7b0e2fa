// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
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

// A member is what is known of a Runner of a Group.
type member struct {
	name   string
	phase  memberPhase
	since  time.Time // when it entered the phase; zero if it never ran
	starts int
	err    string    // why it failed last
	failed time.Time // and when
}

type memberPhase uint8

const (
	memberNew memberPhase = iota
	memberRunning
	memberEnded
	memberFailed
)

func (p memberPhase) String() string {
	return [...]string{"not started", "running", "ended", "failed"}[p]
}

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
	m := &member{name: name}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) >= maxMembers {
		if i := slices.IndexFunc(g.members, func(o *member) bool { return o.phase == memberEnded }); i >= 0 {
			g.members = slices.Delete(g.members, i, i+1)
		}
	}
	g.members = append(g.members, m)
	return &watched{g, m, r}, m
}

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
			w.set(memberFailed, "panic or runtime.Goexit; the log says where")
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

func (w *watched) set(phase memberPhase, err string) {
	w.group.mu.Lock()
	defer w.group.mu.Unlock()
	m := w.member
	m.phase, m.since = phase, time.Now()
	if phase == memberRunning {
		m.starts++
	}
	if phase == memberFailed {
		m.err, m.failed = err, m.since
	}
}

// list returns the members as they are now.
func (g *Group) list() []member {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]member, len(g.members))
	for i, m := range g.members {
		all[i] = *m
	}
	return all
}

// addTo makes a Group a Part.
func (g *Group) addTo(p *Page) { p.groups = append(p.groups, g) }
