// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Each of these faults is found by one kind of plan alone, and its correct twin passes.
func TestFaultsThatOneKindFinds(t *testing.T) {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	})
	for name, c := range map[string]struct {
		work   func(c client, faulty bool) func(context.Context) error
		change func(*Scenario[*shelf])
		plan   string
		fails  string
	}{
		"a record of an aborted step that nobody takes up": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					if c.desired["a"] == "" || c.things["a"] == "1" || c.things["a"] == "aborted" {
						return nil
					}
					if err := c.put(ctx, "a", "half"); err != nil {
						return err
					}
					select {
					case <-time.After(5 * time.Second):
					case <-c.Context().Done():
						if faulty {
							return c.put(context.WithoutCancel(ctx), "a", "aborted")
						}
						return ctx.Err()
					}
					return c.put(ctx, "a", "1")
				}
			},
			plan: "call put a #1: stops", fails: "the world is not what it is without faults",
		},
		"a late answer that is taken for none": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					begun := time.Now()
					if c.desired["a"] == "" || c.things["a"] != "" {
						return nil
					}
					err := c.put(ctx, "a", "1")
					if faulty && err == nil && time.Since(begun) > 5*time.Second {
						return c.put(ctx, "a", "timed out")
					}
					return err
				}
			},
			plan: "call put a #1: slow", fails: "the world is not what it is without faults",
		},
		"a call without a deadline": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					if faulty {
						ctx = context.WithoutCancel(ctx)
					}
					return c.asDesired(ctx)
				}
			},
			change: func(s *Scenario[*shelf]) { s.With = []Fault{NoAnswer} },
			plan:   "call get a #1: no answer", fails: "the world is not what it is without faults",
		},
		"a retry without a pause": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					err := c.asDesired(ctx)
					for faulty && err != nil && ctx.Err() == nil {
						err = c.asDesired(ctx)
					}
					return err
				}
			},
			plan: "call get a #1: outage", fails: "it retries without a pause: ",
		},
		"half of a pair, left by a crash": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					for _, name := range []string{"disk", "record"} {
						is, err := c.get(ctx, name)
						if err != nil || faulty && is != "" { // it is there, and so is its record
							return err
						}
						if err := c.put(ctx, name, "1"); err != nil {
							return errors.Join(err, c.remove(context.WithoutCancel(ctx), "disk"))
						}
					}
					return nil
				}
			},
			change: func(s *Scenario[*shelf]) { s.Without = only(DiesAfter) },
			plan:   "call put disk #1: dies after", fails: "the world is not what it is without faults",
		},
		"a thing that is created without a check": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					if is, err := c.get(ctx, "status"); err != nil || is != "" {
						return err
					}
					err := c.Do(ctx, "create", func() error {
						if c.made == 0 || faulty { // the correct twin sends a token
							c.made++
							c.things[fmt.Sprint("disk ", c.made)] = "1"
						}
						return nil
					})
					if err != nil {
						return err
					}
					return c.put(ctx, "status", "created")
				}
			},
			change: func(s *Scenario[*shelf]) { s.Without = only(AnswerLost) },
			plan:   "call create #1: answer lost", fails: "the world is not what it is without faults",
		},
		"a failed read that is taken for an empty answer": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					want, err := Read(ctx, c.Process, "desired a", func() (string, error) { return c.desired["a"], nil })
					if err != nil && !faulty {
						return err
					}
					if want == "" {
						return c.removeUndesired(ctx, "a")
					}
					return c.put(ctx, "a", want)
				}
			},
			change: func(s *Scenario[*shelf]) { s.Without = only(Fails) },
			plan:   "call desired a #2: fails", fails: "Invariant: a is removed, although desired",
		},
		"a removal by a stale list": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					want, err := Read(ctx, c.Process, "desired", func() ([]string, error) { return slices.Collect(maps.Keys(c.desired)), nil })
					if err != nil {
						return err
					}
					if slices.Contains(want, "a") {
						return c.put(ctx, "a", "1")
					}
					if _, desired := c.desired["a"]; !faulty && desired { // a precondition, which the provider checks
						return errors.New("conflict")
					}
					return c.removeUndesired(ctx, "a")
				}
			},
			change: func(s *Scenario[*shelf]) { s.Without = only(Stale) },
			plan:   "call desired #2: stale", fails: "Invariant: a is removed, although desired",
		},
		"a removal that is given up after two tries": {
			work: func(c client, faulty bool) func(context.Context) error {
				tries := 0
				return func(ctx context.Context) error {
					if c.desired["a"] != "" {
						return c.put(ctx, "a", "1")
					}
					if is, err := c.get(ctx, "a"); err != nil || is == "" {
						return err
					}
					if tries++; faulty && tries > 2 {
						return nil
					}
					return c.remove(ctx, "a")
				}
			},
			change: func(s *Scenario[*shelf]) {
				s.Without, s.Plans = only(Fails), 600
				s.Steps = func(s *Environment, w *shelf) {
					comes(s, w)
					delete(w.desired, "a")
					s.Event("a")
					s.Advance(time.Minute)
				}
			},
			plan: "call remove a #1: fails; call remove a #2: fails", fails: "the world is not what it is without faults",
		},
		"an event without a resync": {
			work: func(c client, faulty bool) func(context.Context) error {
				heard := false
				c.OnEvent(func(any) { heard = true })
				return func(ctx context.Context) error {
					if faulty && !heard {
						return nil
					}
					return c.asDesired(ctx)
				}
			},
			change: func(s *Scenario[*shelf]) { s.Without = only(Lost) },
			plan:   "event a #1: lost", fails: "the world is not what it is without faults",
		},
		"an event that is taken for a command": {
			work: func(c client, faulty bool) func(context.Context) error {
				commands := 0
				c.OnEvent(func(any) { commands++ })
				return func(ctx context.Context) error {
					if !faulty {
						return c.asDesired(ctx)
					}
					for ; commands > 0; commands-- {
						err := c.Do(ctx, "create", func() error {
							c.made++
							c.things["a"] = fmt.Sprint(c.made)
							return nil
						})
						if err != nil {
							return err
						}
					}
					return nil
				}
			},
			change: func(s *Scenario[*shelf]) { s.Without = only(Twice) },
			plan:   "event a #1: twice", fails: "the world is not what it is without faults",
		},
		"a child that is dropped because its parent is not known yet": {
			work: func(c client, faulty bool) func(context.Context) error {
				parent, child := false, false
				c.OnEvent(func(event any) {
					switch event {
					case "parent":
						parent = true
					case "child":
						child = parent || !faulty
					}
				})
				return func(ctx context.Context) error {
					if !parent || !child {
						return nil
					}
					return c.put(ctx, "a", "1")
				}
			},
			change: func(s *Scenario[*shelf]) {
				s.Without = only(Late)
				s.Steps = func(s *Environment, w *shelf) {
					s.Event("parent")
					s.Advance(time.Second)
					s.Event("child")
					s.Advance(time.Minute)
				}
			},
			plan: "event parent #1: late", fails: "the world is not what it is without faults",
		},
		"a goroutine that is left when its context ends": {
			work: func(c client, faulty bool) func(context.Context) error {
				done := make(chan error)
				if !faulty {
					done = make(chan error, 1)
				}
				return func(ctx context.Context) error {
					go func() { done <- c.asDesired(ctx) }()
					select {
					case err := <-done:
						return err
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
			},
			change: func(s *Scenario[*shelf]) { s.Without = only(DiesBefore) },
			plan:   "call get a #1: dies before", fails: "goroutines are left",
		},
		"a 429 that is taken for final": {
			work: func(c client, faulty bool) func(context.Context) error {
				web := &http.Client{Transport: TransportOr(c.Process, c.shelf, map[Fault]http.Handler{"429": refuse})}
				final := false
				return func(ctx context.Context) error {
					if c.desired["a"] == "" || final {
						return nil
					}
					is, err := ask(ctx, web, http.MethodGet, "a", "")
					if err == nil && is == "" {
						_, err = ask(ctx, web, http.MethodPut, "a", "1")
					}
					final = faulty && err != nil && strings.HasPrefix(err.Error(), "4")
					return err
				}
			},
			change: func(s *Scenario[*shelf]) { s.CustomFaults = []Fault{"429"} },
			plan:   "call GET /things/a #1: 429", fails: "the world is not what it is without faults",
		},
		"a read under way at a change that is taken for a later one": {
			work: func(c client, faulty bool) func(context.Context) error {
				c.Go(func(ctx context.Context) error {
					last := time.Duration(-1)
					for ; c.Step(); sleep(ctx, time.Minute) {
						begun := c.Now()
						want, err := Read(ctx, c.Process, "desired", func() (string, error) { return c.desired["a"], nil })
						if changed := time.Duration(c.made); err == nil && changed > last && want != "" {
							err = c.put(ctx, "a", want)
						}
						if err == nil {
							last = begun
						}
						if err == nil && faulty {
							last = c.Now()
						}
					}
					return nil
				})
				return func(context.Context) error { return nil }
			},
			change: func(s *Scenario[*shelf]) {
				s.Without = only(Slow)
				s.Steps = func(s *Environment, w *shelf) {
					w.desired["a"] = "1"
					s.Advance(20*time.Minute + 30*time.Second)
					w.desired["a"], w.made = "2", int(20*time.Minute+30*time.Second)
					s.Advance(20 * time.Minute)
				}
			},
			plan: "call desired #21: slow", fails: "the world is not what it is without faults",
		},
		"a refused connection that is taken for final": {
			work: func(c client, faulty bool) func(context.Context) error {
				web := &http.Client{Transport: Transport(c.Process, c.shelf)}
				final := false
				return func(ctx context.Context) error {
					if c.desired["a"] == "" || final {
						return nil
					}
					_, err := ask(ctx, web, http.MethodPut, "a", "1")
					final = faulty && errors.Is(err, syscall.ECONNREFUSED)
					return err
				}
			},
			plan: "call PUT /things/a #1: unreachable", fails: "the world is not what it is without faults",
		},
		"half of a body that is believed": {
			work: func(c client, faulty bool) func(context.Context) error {
				web := &http.Client{Transport: Transport(c.Process, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { fmt.Fprint(out, "12") }))}
				return func(ctx context.Context) error {
					if c.desired["a"] == "" || c.things["a"] != "" {
						return nil
					}
					value, err := ask(ctx, web, http.MethodGet, "source", "")
					if err == nil || faulty && errors.Is(err, io.ErrUnexpectedEOF) {
						err = c.put(ctx, "a", value)
					}
					return err
				}
			},
			plan: "call GET /things/source #1: body cut", fails: "the world is not what it is without faults",
		},
		"half a batch that is believed": {
			work: func(c client, faulty bool) func(context.Context) error {
				done := false
				return func(ctx context.Context) error {
					if c.desired["a"] == "" || done {
						return nil
					}
					var results []string
					put := func(names ...string) func() error {
						return func() error {
							for _, name := range names {
								c.things[name] = "1"
								results = append(results, name)
							}
							return nil
						}
					}
					err := c.DoOr(ctx, "put a and b", put("a", "b"), map[Fault]func() error{"half": put("a")})
					if err == nil && !faulty && !slices.Contains(results, "b") {
						err = errors.New("the result of b is missing")
					}
					done = err == nil
					return err
				}
			},
			change: func(s *Scenario[*shelf]) { s.CustomFaults = []Fault{"half"} },
			plan:   "call put a and b #1: half", fails: "the world is not what it is without faults",
		},
		"a list of the fake's own map": {
			work: func(c client, faulty bool) func(context.Context) error {
				return func(ctx context.Context) error {
					have, err := Read(ctx, c.Process, "list", func() ([]map[string]string, error) {
						if faulty {
							return []map[string]string{c.things}, nil
						}
						return []map[string]string{maps.Clone(c.things)}, nil
					})
					if err != nil || have[0]["a"] == c.desired["a"] {
						return err
					}
					if !faulty {
						have[0]["a"] = "the controller may change its copy"
					}
					return c.put(ctx, "a", c.desired["a"])
				}
			},
			fails: `the value of "list" changes with the world`,
		},
		"two lists of one moment, one older than the other": {
			work: func(c client, faulty bool) func(context.Context) error {
				list := func(ctx context.Context, prefix string) ([]string, error) {
					return Read(ctx, c.Process, "list "+prefix+"s", func() (names []string, err error) {
						for name := range c.things {
							if rest, ok := strings.CutPrefix(name, prefix+" "); ok {
								names = append(names, rest)
							}
						}
						return names, nil
					})
				}
				return func(ctx context.Context) error {
					servers, err := list(ctx, "server")
					if err != nil {
						return err
					}
					agents, err := list(ctx, "agent")
					if err != nil {
						return err
					}
					if len(agents) > 0 && len(servers) == 0 { // an agent without a server
						if is, err := c.get(ctx, "server a"); !faulty && (err != nil || is != "") {
							return err
						}
						return c.put(ctx, "agent a", "removed")
					}
					if c.desired["a"] == "" || len(servers) > 0 {
						return nil
					}
					return c.Do(ctx, "create a", func() error { c.things["server a"], c.things["agent a"] = "1", "1"; return nil })
				}
			},
			change: func(s *Scenario[*shelf]) { s.Without = []Fault{StaleWatch, Late} },
			plan:   "call list servers #3: stale", fails: "the world is not what it is without faults",
		},
	} {
		for _, faulty := range []bool{true, false} {
			s := plain()
			s.Start = func(proc *Process, w *shelf) { loop(proc, 10*time.Minute, c.work(client{proc, w}, faulty)) }
			s.Plans = 100
			if c.change != nil {
				c.change(&s)
			}
			r := search(t, s)
			switch {
			case !faulty && r.Found != nil:
				t.Errorf("%s: exploring its correct twin finds something:\n%s", name, r.Found)
			case faulty && (r.Found == nil || strings.Join(r.Found.Plan, "; ") != c.plan || !strings.HasPrefix(r.Found.Failure, c.fails)):
				t.Errorf("%s: exploring finds %v, want %s and %q", name, r.Found, c.plan, c.fails)
			case faulty && len(r.Found.Plan) == 2 && !strings.HasPrefix(r.Found.String(), "it fails with 2 faults, but not if one of them is left out, found in plan "):
				t.Errorf("%s: the story of two faults is\n%s", name, r.Found)
			case c.plan != "" && faulty: // and no other kind finds it
				kind := r.Found.Plan[0][strings.LastIndex(r.Found.Plan[0], ": ")+2:]
				s.Without = append(s.Without, Fault(kind))
				if kind == string(NoAnswer) {
					s.With = nil
				}
				if r := search(t, s); r.Found != nil && !strings.HasPrefix(r.Found.Failure, "Without excludes") && !(kind == string(Outage)) {
					t.Errorf("%s: exploring without %s finds it too:\n%s", name, kind, r.Found)
				}
			}
		}
	}
}

// Many goroutines make one call of the same name each, and try again a second later: that
// is no retry without a pause.
func TestManyCallsOfOneNameInAnOutage(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		for i := range 60 {
			loop(proc, 10*time.Minute, func(ctx context.Context) error {
				if _, err := (client{proc, w}).get(ctx, "all"); err != nil {
					return err
				}
				return (client{proc, w}).put(ctx, fmt.Sprint(i), "1")
			})
		}
	}
	s.Replay = []string{"call get all #1: outage"}
	if r := search(t, s); r.Found != nil {
		t.Errorf("exploring finds something:\n%s", r.Found)
	}
}

// Only a slow call makes another goroutine wait for the mutex.
func TestMutexHeldOverASlowCall(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		var mu sync.Mutex
		for i := range 2 {
			proc.Go(func(ctx context.Context) error {
				time.Sleep(time.Duration(i) * 30 * time.Second)
				for proc.Step() {
					mu.Lock()
					err := (client{proc, w}).asDesired(context.WithoutCancel(ctx))
					mu.Unlock()
					pause := 10 * time.Minute
					if err != nil {
						pause = time.Second
					}
					sleep(ctx, pause)
				}
				return nil
			})
		}
	}
	s.Without = only(Slow, Late)
	x := explorerOf(t, s)
	x.hang = time.Second // of the real clock
	if r := x.explore(); r.Found != nil || r.Held != "call get a" {
		t.Errorf("exploring finds %v, and a mutex at %q, want one at call get a", r.Found, r.Held)
	}
	// A known plan with a slow call, which is not played beside a held mutex.
	held := s.Start
	s.Start = func(proc *Process, w *shelf) {
		held(proc, w)
		proc.Go(func(ctx context.Context) error {
			if w.things["once"] == "" {
				_ = (client{proc, w}).put(ctx, "once", "1")
				if proc.Now() > 30*time.Second && ctx.Err() == nil {
					proc.Errorf("too slow")
				}
			}
			return nil
		})
	}
	s.Known = [][]string{{"call put once #1: slow"}}
	x = explorerOf(t, s)
	x.hang = time.Second // of the real clock
	if r := x.explore(); r.Found != nil || r.Held != "call get a" {
		t.Errorf("with a known plan exploring finds %v, and a mutex at %q, want one at call get a", r.Found, r.Held)
	}
}

// A goroutine that works while another one waits for its mutex, and a third one for the turn
// of its call, holds no mutex over that call, however long it takes.
func TestMutexHeldByABusyGoroutine(t *testing.T) {
	var done atomic.Bool
	var mu sync.Mutex
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		proc.Go(func(ctx context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			proc.Go(func(ctx context.Context) error { mu.Lock(); defer mu.Unlock(); return nil })
			proc.Go(func(ctx context.Context) error { _, _ = (client{proc, w}).get(ctx, "a"); return nil })
			for !done.Load() {
				runtime.Gosched()
			}
			return nil
		})
	}
	x := explorerOf(t, s)
	direct, played := x.direct, make(chan *play, 1)
	x.direct = func(p *play) { played <- p; direct(p) }
	ended := make(chan *outcome)
	go func() { ended <- x.perform(0, nil) }()
	p := <-played
	isReady := func() bool {
		p.mu.Lock()
		waits, bubble := len(p.callers) > 0, p.bubble
		p.mu.Unlock()
		return waits && slices.ContainsFunc(stacks(bubble), waitsForMutex)
	}
	for !isReady() {
		runtime.Gosched()
	}
	if o := p.stuck(hangLooks - 1); o != nil {
		t.Errorf("a mutex is held over %q, want none", o.held)
	}
	done.Store(true)
	if o := <-ended; o.failure != "" {
		t.Error(o.failure)
	}
}
