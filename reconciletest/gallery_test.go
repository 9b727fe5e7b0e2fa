// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
)

// The gallery has small controllers with one classic fault each, and their correct
// twins. Exploring the first must find the fault by the plan that it names. Exploring the
// second must find nothing.

// A shop is the world of the gallery: the desired and the actual things, by name. The
// part after # in a name or value is generated, and not compared.
type shop struct {
	desired map[string]string
	things  map[string]string
	made    int          // so many names were generated
	told    func(string) // if not nil, of changes, by the item
	wrong   error        // a violated invariant
	ready   atomic.Bool
}

func (w *shop) want(item, what string) { w.desired[item] = what }
func (w *shop) state() (text string) {
	for _, name := range slices.Sorted(maps.Keys(w.things)) {
		name, _, _ = strings.Cut(name, "#")
		value, _, _ := strings.Cut(w.things[name], "#")
		text += name + " = " + value + "\n"
	}
	return text
}

// A client is how a process reaches the shop.
type client struct {
	*Env[string]
	shop *shop
}

var errNone = errors.New("there is none")

// desired reads the desired value of an item.
func (c client) desired(ctx context.Context, item string) (string, error) {
	return Read(ctx, c.Env, "want "+item, func() (string, error) { return found(c.shop.desired, item) })
}

func (c client) get(ctx context.Context, name string) (string, error) {
	return Read(ctx, c.Env, "get "+name, func() (string, error) { return found(c.shop.things, name) })
}

func found(in map[string]string, name string) (string, error) {
	value, ok := in[name]
	if !ok {
		return "", errNone
	}
	return value, nil
}

func (c client) put(ctx context.Context, name, value string) error {
	return c.Do(ctx, "put "+name, func() error {
		c.shop.things[name] = value
		if _, item, _ := strings.Cut(name, " "); c.shop.told != nil {
			c.shop.told(item)
		}
		return nil
	})
}

// add makes a thing of a name that the shop generates.
func (c client) add(ctx context.Context, name string) (string, error) {
	made := ""
	err := c.Do(ctx, "add "+name, func() error {
		c.shop.made++
		made = fmt.Sprintf("%s#%d", name, c.shop.made)
		c.shop.things[made] = ""
		return nil
	})
	return made, err
}

func (c client) remove(ctx context.Context, name string) error {
	return c.Do(ctx, "remove "+name, func() error {
		_, item, _ := strings.Cut(name, " ")
		if _, ok := c.shop.desired[item]; ok {
			c.shop.wrong = fmt.Errorf("%s is removed, although desired", name)
		}
		delete(c.shop.things, name)
		return nil
	})
}

func (c client) undo(ctx context.Context, name string) error {
	return c.Do(ctx, "undo "+name, func() error { delete(c.shop.things, name); return nil })
}

// items lists the items that are desired or exist, without the far things.
func (w *shop) items() []string {
	items := slices.Collect(maps.Keys(w.desired))
	for name := range w.things {
		kind, item, _ := strings.Cut(name, " ")
		if kind == "far" {
			continue
		}
		item, _, _ = strings.Cut(item, "#")
		items = append(items, item)
	}
	slices.Sort(items)
	return slices.Compact(items)
}

type work = func(ctx context.Context, item string) error

type exhibit struct {
	name    string
	faulty  func(client) work
	correct func(client) work
	play    func(*Environment[string], *shop)
	alone   bool // nothing lists what there is, but at the start
	watches bool // what is put is an event
	without []explore.Fault
	plans   int    // 0 means 120
	plan    string // that it takes; faults are separated by "; "
	fails   string // so the failure begins
}

// The plays of the gallery.
func comes(s *Environment[string], w *shop) {
	w.want("a", "1")
	s.Event("a")
	s.Advance(time.Minute)
}

func grows(s *Environment[string], w *shop) {
	comes(s, w)
	w.want("a", "3")
	s.Event("a")
	s.Advance(time.Minute)
	s.Event("a") // for another reason
	s.Advance(time.Minute)
}

func goes(s *Environment[string], w *shop) {
	comes(s, w)
	delete(w.desired, "a")
	s.Event("a")
	s.Advance(time.Minute)
}

const differs = "the world is not what it is without faults"

var gallery = []exhibit{{
	name: "half-made pair after a crash",
	play: comes,
	faulty: func(c client) work {
		return func(ctx context.Context, a string) error {
			if _, err := c.get(ctx, "disk "+a); !errors.Is(err, errNone) {
				return err // it is there, and so is its record
			}
			err := c.put(ctx, "disk "+a, "")
			if err == nil {
				err = c.put(ctx, "record "+a, "")
			}
			if err != nil { // undo it; only a crash comes between
				err = errors.Join(err, c.undo(context.WithoutCancel(ctx), "disk "+a))
			}
			return err
		}
	},
	correct: func(c client) work {
		return func(ctx context.Context, a string) error {
			for _, name := range []string{"disk " + a, "record " + a} {
				if _, err := c.get(ctx, name); err == nil {
					continue
				} else if !errors.Is(err, errNone) {
					return err
				}
				if err := c.put(ctx, name, ""); err != nil {
					return err
				}
			}
			return nil
		}
	},
	plan:  "call put disk a #1: dies after",
	fails: differs,
}, {
	name: "create without looking",
	play: comes,
	faulty: func(c client) work {
		return func(ctx context.Context, a string) error {
			if _, err := c.get(ctx, "status "+a); !errors.Is(err, errNone) {
				return err
			}
			disk, err := c.add(ctx, "disk "+a)
			if err != nil {
				return err
			}
			return c.put(ctx, "status "+a, "#"+disk)
		}
	},
	correct: func(c client) work { // a name of ours: the second time is the first one
		return func(ctx context.Context, a string) error {
			if _, err := c.get(ctx, "status "+a); !errors.Is(err, errNone) {
				return err
			}
			if err := c.put(ctx, "disk "+a, ""); err != nil {
				return err
			}
			return c.put(ctx, "status "+a, "")
		}
	},
	plan:  "call add disk a #1: answer lost",
	fails: differs,
}, {
	name: "generated name, kept in memory until it is used",
	play: comes,
	faulty: func(c client) work {
		names := map[string]string{}
		return func(ctx context.Context, a string) error {
			if _, err := c.get(ctx, "status "+a); !errors.Is(err, errNone) {
				return err
			}
			if names[a] == "" {
				names[a] = fmt.Sprintf("disk %s#%v", a, time.Since(c.begun))
			}
			if err := c.put(ctx, names[a], ""); err != nil {
				return err
			}
			return c.put(ctx, "status "+a, "#"+names[a])
		}
	},
	correct: func(c client) work { // the name is written down first
		return func(ctx context.Context, a string) error {
			name, err := c.get(ctx, "status "+a)
			if errors.Is(err, errNone) {
				name = fmt.Sprintf("#disk %s#%v", a, time.Since(c.begun))
				err = c.put(ctx, "status "+a, name)
			}
			if err != nil {
				return err
			}
			return c.put(ctx, name[1:], "")
		}
	},
	without: []explore.Fault{explore.Stale, explore.StaleWatch}, // of the status, which it would write again
	plan:    "call put disk a#0s #1: dies after",
	fails:   differs,
}, {
	name: "memory of what was done",
	play: grows,
	faulty: func(c client) work {
		done := map[string]string{}
		return func(ctx context.Context, a string) error {
			want, err := c.desired(ctx, a)
			if err != nil || done[a] == want {
				return err
			}
			done[a] = want
			return c.put(ctx, "disk "+a, want)
		}
	},
	correct: asDesired,
	plan:    "call put disk a #2: fails",
	fails:   differs,
}, {
	name: "remove by a stale list",
	play: func(s *Environment[string], w *shop) {
		comes(s, w)
		w.want("b", "1")
		s.Event("b")
		s.Advance(time.Minute)
		s.Event("a")
	},
	faulty: func(c client) work { return sweeping(c, func(string) error { return nil }) },
	correct: func(c client) work { // the shop refuses it: a precondition
		return sweeping(c, func(item string) error {
			if _, ok := c.shop.desired[item]; ok {
				return errors.New("conflict: it was changed since")
			}
			return nil
		})
	},
	plan:  "call list wants #2: stale",
	fails: "Invariant: disk b is removed, although desired",
}, {
	name:    "finalizer taken off too early",
	play:    goes,
	faulty:  func(c client) work { return finalizing(c, "finalizer ", "far ") },
	correct: func(c client) work { return finalizing(c, "far ", "finalizer ") },
	plan:    "call remove finalizer a #1: answer lost",
	fails:   differs,
}, {
	name: "owner mark set in a second call",
	play: comes,
	faulty: func(c client) work {
		return func(ctx context.Context, a string) error {
			owner, err := c.get(ctx, "disk "+a)
			switch {
			case errors.Is(err, errNone):
				if err := c.put(ctx, "disk "+a, ""); err != nil {
					return err
				}
				return c.put(ctx, "disk "+a, "ours")
			case err == nil && owner != "ours":
				return reconcile.Terminal(errors.New("it is not ours"))
			}
			return err
		}
	},
	correct: func(c client) work {
		return func(ctx context.Context, a string) error {
			owner, err := c.get(ctx, "disk "+a)
			switch {
			case errors.Is(err, errNone):
				return c.put(ctx, "disk "+a, "ours")
			case err == nil && owner != "ours":
				return reconcile.Terminal(errors.New("it is not ours"))
			}
			return err
		}
	},
	plan:  "call put disk a #1: answer lost",
	fails: differs,
}, {
	name:    "error of a removal ignored",
	play:    goes,
	faulty:  func(c client) work { return removing(c, func(remove func() error) error { _ = remove(); return nil }) },
	correct: func(c client) work { return removing(c, func(remove func() error) error { return remove() }) },
	plan:    "call remove far a #1: fails",
	fails:   differs,
}, {
	name: "removal given up after two tries",
	play: goes,
	faulty: func(c client) work {
		return removing(c, func(remove func() error) error {
			if remove() != nil {
				_ = remove()
			}
			return nil
		})
	},
	correct: func(c client) work { return removing(c, func(remove func() error) error { return remove() }) },
	without: []explore.Fault{explore.NoAnswer, explore.Outage, explore.Blackout}, // which take both tries at once
	plans:   600,
	plan:    "call remove far a #1: fails; call remove far a #2: fails",
	fails:   differs,
}, {
	name:    "status written before the work",
	play:    comes,
	faulty:  func(c client) work { return inOrder(c, "status ", "disk ") },
	correct: func(c client) work { return inOrder(c, "disk ", "status ") },
	plan:    "call put status a #1: answer lost",
	fails:   differs,
}, {
	name:    "hot loop on its own change",
	play:    comes,
	watches: true,
	faulty: func(c client) work {
		return func(ctx context.Context, a string) error {
			return c.put(ctx, "status "+a, "#"+time.Now().String())
		}
	},
	correct: asDesired,
	fails:   "it does not come to rest",
}, {
	name:   "event lost without a resync",
	play:   comes,
	alone:  true,
	faulty: asDesired,
	correct: func(c client) work {
		c.Go(resync(c))
		return asDesired(c)
	},
	plan:  "event a #1: lost",
	fails: differs,
}, {
	name: "scale that is not idempotent",
	play: grows,
	faulty: func(c client) work {
		return scaling(c, func(ctx context.Context, a string, is, want int) error {
			return c.Do(ctx, "grow disk "+a, func() error {
				var now int
				fmt.Sscan(c.shop.things["disk "+a], &now)
				c.shop.things["disk "+a] = fmt.Sprint(now + want - is)
				return nil
			})
		})
	},
	correct: func(c client) work {
		return scaling(c, func(ctx context.Context, a string, is, want int) error {
			return c.put(ctx, "disk "+a, fmt.Sprint(want))
		})
	},
	plan:  "call get disk a #2: stale",
	fails: differs,
}, {
	name:  "event taken for a command",
	play:  grows,
	alone: true,
	faulty: func(c client) work {
		return func(ctx context.Context, a string) error {
			_, err := c.add(ctx, "disk "+a)
			return err
		}
	},
	correct: asDesired,
	without: []explore.Fault{explore.Lost, explore.Stale}, // there is no resync
	plan:    "event a #1: twice",
	fails:   differs,
}, {
	name:  "one event expected before the other",
	alone: true,
	play: func(s *Environment[string], w *shop) {
		w.want("net", "1")
		s.Event("net")
		s.Advance(time.Second)
		w.want("vm", "1")
		s.Event("vm")
		s.Advance(time.Second)
	},
	faulty: func(c client) work {
		seen := map[string]bool{}
		return func(ctx context.Context, item string) error {
			if seen[item] = true; !seen["net"] {
				return nil
			}
			return asDesired(c)(ctx, item)
		}
	},
	correct: func(c client) work {
		return func(ctx context.Context, item string) error {
			if _, err := c.desired(ctx, "net"); err != nil {
				return err
			}
			return asDesired(c)(ctx, item)
		}
	},
	without: []explore.Fault{explore.Lost, explore.Stale},
	plan:    "event net #1: late",
	fails:   differs,
}, {
	name: "goroutine left when its context ends",
	play: comes,
	faulty: func(c client) work {
		return func(ctx context.Context, a string) error { return inBackground(ctx, make(chan error), asDesired(c), a) }
	},
	correct: func(c client) work {
		return func(ctx context.Context, a string) error {
			return inBackground(ctx, make(chan error, 1), asDesired(c), a)
		}
	},
	plan:  "call want a #1: dies before",
	fails: "goroutines are left",
}, {
	name: "a loop that does not see its context end",
	play: comes,
	faulty: func(c client) work {
		return func(ctx context.Context, a string) error {
			for c.put(ctx, "disk "+a, "") != nil {
				time.Sleep(time.Second)
			}
			return nil
		}
	},
	correct: func(c client) work {
		return func(ctx context.Context, a string) error {
			for c.put(ctx, "disk "+a, "") != nil {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}
	},
	plan:  "call put disk a #1: no answer",
	fails: "it does not converge",
}, {
	name: "a look that failed taken for nothing there",
	play: comes,
	faulty: func(c client) work {
		return func(ctx context.Context, a string) error {
			if _, err := c.desired(ctx, a); err != nil {
				return c.remove(ctx, "disk "+a)
			}
			return c.put(ctx, "disk "+a, "")
		}
	},
	correct: func(c client) work {
		return func(ctx context.Context, a string) error {
			switch _, err := c.desired(ctx, a); {
			case errors.Is(err, errNone):
				return c.remove(ctx, "disk "+a)
			case err != nil:
				return err
			}
			return c.put(ctx, "disk "+a, "")
		}
	},
	plan:  "call want a #1: fails",
	fails: "Invariant: disk a is removed, although desired",
}, {
	name: "a breaker that never closes",
	play: comes,
	faulty: func(c client) work {
		var broken error
		return func(ctx context.Context, a string) error {
			if broken == nil {
				broken = asDesired(c)(ctx, a)
			}
			return broken
		}
	},
	correct: asDesired,
	plan:    "call want a #1: fails",
	fails:   "it does not converge",
}, {
	name: "a haste that never ends",
	play: comes,
	faulty: func(c client) work {
		pause := 30 * time.Minute
		return func(ctx context.Context, a string) error {
			if asDesired(c)(ctx, a) != nil {
				pause = 10 * time.Second
			}
			return reconcile.RecheckWithin(pause)
		}
	},
	correct: func(c client) work {
		return func(ctx context.Context, a string) error {
			if err := asDesired(c)(ctx, a); err != nil {
				return err
			}
			return reconcile.RecheckWithin(30 * time.Minute)
		}
	},
	plan:  "call want a #1: fails",
	fails: "it does not stay at rest",
}}

// asDesired makes a disk as desired, and reads both values each time.
func asDesired(c client) work {
	return func(ctx context.Context, a string) error {
		want, err := c.desired(ctx, a)
		if err != nil {
			return err
		}
		switch is, err := c.get(ctx, "disk "+a); {
		case err != nil && !errors.Is(err, errNone):
			return err
		case err == nil && is == want:
			return nil
		}
		return c.put(ctx, "disk "+a, want)
	}
}

// sweeping makes a disk, and removes those that nobody wants.
func sweeping(c client, check func(item string) error) work {
	return func(ctx context.Context, a string) error {
		if err := asDesired(c)(ctx, a); err != nil {
			return err
		}
		wants, err := Read(ctx, c.Env, "list wants", func() (string, error) {
			return strings.Join(slices.Sorted(maps.Keys(c.shop.desired)), " "), nil
		})
		if err != nil {
			return err
		}
		for name := range maps.Clone(c.shop.things) {
			_, item, _ := strings.Cut(name, " ")
			if strings.Contains(wants, item) {
				continue
			}
			if err := check(item); err != nil {
				return err
			}
			if err := c.remove(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
}

// finalizing makes a disk that has a finalizer, and removes both, in that order. The
// finalizer is what tells that there is something to remove.
func finalizing(c client, first, second string) work {
	return func(ctx context.Context, a string) error {
		switch _, err := c.desired(ctx, a); {
		case err == nil:
			if err := c.put(ctx, "finalizer "+a, ""); err != nil {
				return err
			}
			return c.put(ctx, "far "+a, "")
		case !errors.Is(err, errNone):
			return err
		}
		if _, err := c.get(ctx, "finalizer "+a); errors.Is(err, errNone) {
			return nil
		} else if err != nil {
			return err
		}
		if err := c.remove(ctx, first+a); err != nil {
			return err
		}
		return c.remove(ctx, second+a)
	}
}

// removing makes something far away, with a finalizer, and removes both by attempt.
func removing(c client, attempt func(remove func() error) error) work {
	return func(ctx context.Context, a string) error {
		switch _, err := c.desired(ctx, a); {
		case err == nil:
			if err := c.put(ctx, "finalizer "+a, ""); err != nil {
				return err
			}
			return c.put(ctx, "far "+a, "")
		case !errors.Is(err, errNone):
			return err
		}
		if _, err := c.get(ctx, "finalizer "+a); errors.Is(err, errNone) {
			return nil
		} else if err != nil {
			return err
		}
		if err := attempt(func() error { return c.remove(ctx, "far "+a) }); err != nil {
			return err
		}
		return c.remove(ctx, "finalizer "+a)
	}
}

// inOrder makes a disk and a status that says so.
func inOrder(c client, first, second string) work {
	return func(ctx context.Context, a string) error {
		if _, err := c.get(ctx, "status "+a); !errors.Is(err, errNone) {
			return err
		}
		if err := c.put(ctx, first+a, ""); err != nil {
			return err
		}
		return c.put(ctx, second+a, "")
	}
}

func scaling(c client, scale func(ctx context.Context, a string, is, want int) error) work {
	return func(ctx context.Context, a string) error {
		var is, want int
		text, err := c.desired(ctx, a)
		if err != nil {
			return err
		}
		fmt.Sscan(text, &want)
		text, err = c.get(ctx, "disk "+a)
		if err != nil && !errors.Is(err, errNone) {
			return err
		}
		fmt.Sscan(text, &is)
		if is >= want {
			return nil
		}
		return scale(ctx, a, is, want)
	}
}

func inBackground(ctx context.Context, done chan error, do work, a string) error {
	go func() { done <- do(ctx, a) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func resync(c client) reconcile.Runner {
	return &reconcile.Poller[string]{
		Queue: c.Queue, Period: 10 * time.Minute,
		GetItems: func(context.Context) ([]string, error) { return c.shop.items(), nil },
	}
}

func (e exhibit) scenario(controller func(client) work) Scenario[string, *shop] {
	return Scenario[string, *shop]{
		World: func() *shop { return &shop{desired: map[string]string{}, things: map[string]string{}} },
		Start: func(env *Env[string], w *shop) {
			c := client{env, w}
			if e.watches {
				w.told = env.Event
			}
			env.Start(&reconcile.Reconciler[string]{Reconcile: controller(c), Timeout: 10 * time.Second})
			for _, item := range w.items() {
				env.Queue.Enqueue(item)
			}
			if !e.alone {
				env.Go(resync(c))
			}
		},
		Steps:     e.play,
		State:     (*shop).state,
		Invariant: func(w *shop) error { return w.wrong },
		Without:   e.without,
		Plans:     cmp.Or(e.plans, 120),
	}
}

func TestGallery(t *testing.T) {
	plans, took := 0, time.Duration(0)
	for _, e := range gallery {
		t.Run(strings.ReplaceAll(e.name, " ", "-"), func(t *testing.T) {
			r := search(t, e.scenario(e.faulty))
			switch f := r.Found; {
			case f == nil:
				t.Errorf("exploring the fault finds nothing, want %q: %s", e.plan, r)
			case strings.Join(f.Plan, "; ") != e.plan || !strings.HasPrefix(f.Failure, e.fails) || f.Differs != "":
				t.Errorf("exploring the fault finds %q, want %q, and %q:\n%s", f.Plan, e.plan, e.fails, f)
			}
			if e.correct == nil {
				return
			}
			r = search(t, e.scenario(e.correct))
			if r.Found != nil {
				t.Errorf("exploring the correct twin finds something:\n%s", r.Found)
			}
			t.Log(r)
			plans, took = plans+r.Plans, took+r.Took
		})
	}
	t.Logf("%d plans of correct twins, %.0f a second", plans, float64(plans)/took.Seconds())
}
