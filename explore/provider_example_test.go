// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile/explore"
)

var (
	errNotFound = errors.New("404: there is no such instance")
	errQuota    = errors.New("403: the quota is used up")
)

// An instance is one machine of a provider. It is starting for two minutes, and deleting
// for one minute.
type instance struct {
	ID, Name string
	Created  time.Time
	Listed   time.Time // when listings have it first
	Deleted  time.Time // when its deletion began; zero if nobody deletes it
	Failed   bool
}

func (i instance) state() string {
	switch {
	case !i.Deleted.IsZero() && time.Since(i.Deleted) >= time.Minute:
		return "gone"
	case !i.Deleted.IsZero():
		return "deleting"
	case time.Since(i.Created) < 2*time.Minute:
		return "starting"
	case i.Failed:
		return "failed"
	}
	return "running"
}

// A provider is the fake of an API that creates, lists, gets and deletes instances. Names
// are not unique. Copy it, and change it into what your provider does.
type provider struct {
	desired   []string   // names
	instances []instance // oldest first
	created   int
	fullUntil time.Time // the quota
	wrong     error     // a deletion that should not have been
}

// pageSize is the number of instances on a page of a listing.
const pageSize = 2

// The faults that this provider has beside those of explore.
const (
	quotaFull    explore.Fault = "quota full"    // creations are refused for ten minutes
	bootFails    explore.Fault = "boot fails"    // the instance is created, and fails two minutes later
	listedLate   explore.Fault = "listed late"   // listings lack the instance for five minutes
	pageMissing  explore.Fault = "page missing"  // a listing ends after its first page
	pageRepeated explore.Fault = "page repeated" // a listing has its first page twice
)

// existing returns the instances that exist now.
func (p *provider) existing() []instance {
	return slices.DeleteFunc(slices.Clone(p.instances), func(i instance) bool { return i.state() == "gone" })
}

// String describes the instances that exist, without their ids.
func (p *provider) String() string {
	var all []string
	for _, i := range p.existing() {
		all = append(all, i.Name+" "+i.state())
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// An api is a provider as one process reaches it.
type api struct {
	*explore.Process
	*provider
}

func (a api) create(ctx context.Context, name string) (id string, err error) {
	create := func(change func(*instance)) func() error {
		return func() error {
			now := time.Now()
			if now.Before(a.fullUntil) {
				return errQuota
			}
			a.created++
			i := instance{ID: fmt.Sprintf("i-%03d", a.created), Name: name, Created: now, Listed: now}
			change(&i)
			a.instances, id = append(a.instances, i), i.ID
			return nil
		}
	}
	err = a.DoOr(ctx, "create "+name, create(func(*instance) {}), map[explore.Fault]func() error{
		quotaFull:  func() error { a.fullUntil = time.Now().Add(10 * time.Minute); return errQuota },
		bootFails:  create(func(i *instance) { i.Failed = true }),
		listedLate: create(func(i *instance) { i.Listed = i.Created.Add(5 * time.Minute) }),
	})
	if err != nil {
		return "", err // the response may be lost, and with it the id
	}
	return id, nil
}

func (a api) list(ctx context.Context) ([]instance, error) {
	pages := func(of func(all []instance) []instance) func() (any, error) {
		return func() (any, error) {
			return of(slices.DeleteFunc(a.existing(), func(i instance) bool { return time.Now().Before(i.Listed) })), nil
		}
	}
	listed, err := a.ReadAnyOr(ctx, "list", pages(func(all []instance) []instance { return all }), map[explore.Fault]func() (any, error){
		pageMissing:  pages(func(all []instance) []instance { return all[:min(pageSize, len(all))] }),
		pageRepeated: pages(func(all []instance) []instance { return slices.Concat(all[:min(pageSize, len(all))], all) }),
	})
	all, _ := listed.([]instance)
	return all, err
}

func (a api) get(ctx context.Context, id string) (instance, error) {
	return explore.Read(ctx, a.Process, "get "+id, func() (instance, error) {
		for _, i := range a.existing() {
			if i.ID == id {
				return i, nil
			}
		}
		return instance{}, errNotFound
	})
}

func (a api) delete(ctx context.Context, id string) error {
	return a.Do(ctx, "delete "+id, func() error {
		n := slices.IndexFunc(a.instances, func(i instance) bool { return i.ID == id && i.state() != "gone" })
		if n < 0 {
			return errNotFound
		}
		i := &a.instances[n]
		if !i.Deleted.IsZero() {
			return nil
		}
		i.Deleted = time.Now()
		if good := func(j instance) bool { return j.Name == i.Name && !j.Failed && j.Deleted.IsZero() }; slices.Contains(a.desired, i.Name) && !i.Failed && !slices.ContainsFunc(a.instances, good) {
			a.wrong = fmt.Errorf("%s was deleted, and was the only instance of %s", id, i.Name)
		}
		return nil
	})
}

// keepPool keeps one good instance for each name. It remembers the id of each instance
// that it has created or seen, and looks up each of them before it decides. So no listing
// that lacks an instance leads to a second one. Whatever creates a second one all the same,
// such as a lost response, is corrected: it deletes all but the oldest.
func keepPool(ctx context.Context, a api) error {
	known := map[string]bool{}
	for a.Step() {
		_ = keepOnce(ctx, a, known) // after an error: in the next round
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	}
	return nil
}

func keepOnce(ctx context.Context, a api, known map[string]bool) error {
	listed, err := a.list(ctx)
	if err != nil {
		return err
	}
	for _, i := range listed {
		known[i.ID] = true
	}
	kept := map[string]bool{} // names
	for _, id := range slices.Sorted(maps.Keys(known)) {
		switch i, err := a.get(ctx, id); {
		case errors.Is(err, errNotFound):
			delete(known, id)
		case err != nil:
			return err
		case i.state() == "deleting":
		case i.state() != "failed" && slices.Contains(a.desired, i.Name) && !kept[i.Name]:
			kept[i.Name] = true
		default:
			if err := a.delete(ctx, id); err != nil && !errors.Is(err, errNotFound) {
				return err
			}
		}
	}
	for _, name := range a.desired {
		if !kept[name] {
			id, err := a.create(ctx, name)
			if err != nil {
				return err
			}
			known[id] = true
		}
	}
	return nil
}

// pool is a scenario of a loop that keeps a pool of instances.
func pool(keep func(context.Context, api) error) explore.Scenario[*provider] {
	return explore.Scenario[*provider]{
		World: func() *provider { return &provider{} },
		Start: func(proc *explore.Process, p *provider) {
			proc.Go(func(ctx context.Context) error { return keep(ctx, api{proc, p}) })
		},
		Steps: func(env *explore.Environment, p *provider) {
			p.desired = []string{"web-0", "web-1", "web-2"} // more than a page
			env.Advance(10 * time.Minute)
			p.desired = p.desired[:2] // scale down
			env.Advance(10 * time.Minute)
			// Another client deletes web-0. Nothing happens to web-1 after its first change.
			p.instances = slices.DeleteFunc(p.instances, func(i instance) bool { return i.Name == "web-0" })
			env.Advance(10 * time.Minute)
		},
		State:        (*provider).String,
		Invariant:    func(p *provider) error { return p.wrong },
		CustomFaults: []explore.Fault{quotaFull, bootFails, listedLate, pageMissing, pageRepeated},
		Plans:        500,
	}
}

// A provider of instances to copy, with ids, states and delays, and with faults of its
// own: a full quota, an instance that fails or is listed late, a page that is missing or
// repeated.
func ExampleProcess_DoOr() {
	explore.Run(t, pool(keepPool))
}
