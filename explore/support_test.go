// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A shelf is the world of these tests: the desired and the actual things.
type shelf struct {
	mu              sync.Mutex // of things, because a process may read them without a call
	desired, things map[string]string
	made            int
	wrong           error
}

func newShelf() *shelf { return &shelf{desired: map[string]string{}, things: map[string]string{}} }

func (w *shelf) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.things)) {
		fmt.Fprintf(&b, "%s = %s\n", name, w.things[name])
	}
	return b.String()
}

// A client is how a process reaches the shelf.
type client struct {
	*Process
	*shelf
}

func (c client) get(ctx context.Context, name string) (string, error) {
	return Read(ctx, c.Process, "get "+name, func() (string, error) { return c.things[name], nil })
}

func (c client) put(ctx context.Context, name, value string) error {
	return c.Do(ctx, "put "+name, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.things[name] = value
		return nil
	})
}

func (c client) remove(ctx context.Context, name string) error {
	return c.Do(ctx, "remove "+name, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.things, name)
		return nil
	})
}

// removeUndesired notes a removal of what is desired, which is wrong.
func (c client) removeUndesired(ctx context.Context, name string) error {
	return c.Do(ctx, "remove "+name, func() error {
		if _, ok := c.desired[name]; ok {
			c.wrong = fmt.Errorf("%s is removed, although desired", name)
		}
		delete(c.things, name)
		return nil
	})
}

// asDesired makes the things as desired.
func (c client) asDesired(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(c.desired)) {
		is, err := c.get(ctx, name)
		if err == nil && is != c.desired[name] {
			err = c.put(ctx, name, c.desired[name])
		}
		if err != nil {
			return err
		}
	}
	c.mu.Lock()
	names := slices.Sorted(maps.Keys(c.things))
	c.mu.Unlock()
	for _, name := range names {
		if _, ok := c.desired[name]; !ok {
			if err := c.remove(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// loop calls work at once, after each event, each period, and a second after an error.
func loop(proc *Process, period time.Duration, work func(ctx context.Context) error) {
	events := make(chan struct{}, 1)
	proc.OnEvent(func(any) {
		select {
		case events <- struct{}{}:
		default:
		}
	})
	proc.Go(func(ctx context.Context) error {
		for proc.Step() {
			pause := period
			run, cancel := context.WithTimeout(ctx, 10*time.Second)
			if work(run) != nil {
				pause = time.Second
			}
			cancel()
			select {
			case <-events:
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// comes is a Steps in which a is desired.
func comes(s *Environment, w *shelf) {
	w.desired["a"] = "1"
	s.Event("a")
	s.Advance(time.Minute)
}

// of is a scenario with one desired thing; work returns the code that makes it.
func of(work func(c client) func(context.Context) error) Scenario[*shelf] {
	return Scenario[*shelf]{
		World:     newShelf,
		Start:     func(proc *Process, w *shelf) { loop(proc, 10*time.Minute, work(client{proc, w})) },
		Steps:     comes,
		State:     (*shelf).String,
		Invariant: func(w *shelf) error { return w.wrong },
		Plans:     300,
	}
}

func plain() Scenario[*shelf] {
	return of(func(c client) func(context.Context) error { return c.asDesired })
}

func explorerOf[W any](t *testing.T, s Scenario[W]) *explorer {
	t.Helper()
	x, err := newExplorer(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// watch has f called at the end of each plan.
func (x *explorer) watch(f func(p *play)) {
	direct := x.direct
	x.direct = func(p *play) {
		defer f(p)
		direct(p)
	}
}

func search[W any](t *testing.T, s Scenario[W]) *Report {
	t.Helper()
	r, err := Search(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// planOf is the plan of faults as they are printed.
func planOf(t *testing.T, faults string) plan {
	t.Helper()
	s := plain()
	s.Replay = strings.Split(faults, "; ")
	return explorerOf(t, s).replay
}

// played is the journal of these faults, and why the plan fails, or "".
func played[W any](t *testing.T, s Scenario[W], faults ...string) (journal []string, failure string) {
	t.Helper()
	s.Replay = append([]string{}, faults...)
	r := search(t, s)
	if r.Found != nil {
		failure = r.Found.Failure
	}
	return r.Journal(), failure
}

var errBoom = errors.New("boom")
