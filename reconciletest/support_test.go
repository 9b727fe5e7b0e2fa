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
	"time"

	"github.com/reconkernel/reconcile"
)

// A shop is the world of these tests: the desired and the actual things, by name. The
// part after # in a name or value is generated, and not compared.
type shop struct {
	desired map[string]string
	things  map[string]string
	made    int   // so many names were generated
	wrong   error // a violated invariant
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

// A setting is how a controller of the shop is played.
type setting struct {
	play  func(*Environment[string], *shop)
	alone bool // nothing lists what there is, but at the start
	plans int  // 0 means 120
}

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

func resync(c client) reconcile.Runner {
	return &reconcile.Poller[string]{
		Queue: c.Queue, Period: 10 * time.Minute,
		GetItems: func(context.Context) ([]string, error) { return c.shop.items(), nil },
	}
}

func (e setting) scenario(controller func(client) work) Scenario[string, *shop] {
	return Scenario[string, *shop]{
		World: func() *shop { return &shop{desired: map[string]string{}, things: map[string]string{}} },
		Start: func(env *Env[string], w *shop) {
			c := client{env, w}
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
		Plans:     cmp.Or(e.plans, 120),
	}
}
