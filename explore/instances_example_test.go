// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reconkernel/reconcile/explore"
)

var (
	errExists = errors.New("409: the name is taken")
	errQuota  = errors.New("403: the quota is used up")
)

// An instance is one machine of a provider.
type instance struct {
	ID, Name string
	Created  time.Time
}

// A provider is the fake of an API that creates, lists and deletes instances. Names are
// unique. Copy it, and change it into what your provider does.
type provider struct {
	pool      []string // the desired names
	instances map[string]instance
	created   int
}

// An api is a provider as one process reaches it.
type api struct {
	*explore.Process
	*provider
}

// The faults that this provider has beside those of explore.
const (
	quotaFull   explore.Fault = "quota full"
	pageMissing explore.Fault = "page missing" // the listing lacks its last instance
	listedLate  explore.Fault = "listed late"  // the listing lacks instances younger than five minutes
)

func (a api) create(ctx context.Context, name string) error {
	return a.DoOr(ctx, "create "+name, func() error {
		for _, i := range a.instances {
			if i.Name == name {
				return errExists
			}
		}
		a.created++
		id := fmt.Sprint("i-", a.created)
		a.instances[id] = instance{ID: id, Name: name, Created: time.Now()}
		return nil
	}, map[explore.Fault]func() error{quotaFull: func() error { return errQuota }})
}

func (a api) list(ctx context.Context) ([]instance, error) {
	all := func() []instance {
		return slices.SortedFunc(maps.Values(a.instances), func(x, y instance) int { return x.Created.Compare(y.Created) })
	}
	listed, err := a.ReadAnyOr(ctx, "list", func() (any, error) { return all(), nil }, map[explore.Fault]func() (any, error){
		pageMissing: func() (any, error) { return all()[:max(0, len(a.instances)-1)], nil },
		listedLate: func() (any, error) {
			return slices.DeleteFunc(all(), func(i instance) bool { return time.Since(i.Created) < 5*time.Minute }), nil
		},
	})
	instances, _ := listed.([]instance)
	return instances, err
}

func (a api) delete(ctx context.Context, id string) error {
	return a.Do(ctx, "delete", func() error { delete(a.instances, id); return nil }) // twice is fine
}

// keepPool keeps one instance for each name. It creates by unique names, so neither a lost
// response nor a listing that lacks an instance makes a twin.
func keepPool(ctx context.Context, a api) error {
	for a.Step() {
		if instances, err := a.list(ctx); err == nil {
			for _, name := range a.pool {
				if !slices.ContainsFunc(instances, func(i instance) bool { return i.Name == name }) {
					_ = a.create(ctx, name) // an error, such as errExists or errQuota: the next round
				}
			}
			for _, i := range instances {
				if !slices.Contains(a.pool, i.Name) {
					_ = a.delete(ctx, i.ID)
				}
			}
		}
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	}
	return nil
}

// A provider of instances to copy, with faults of its own: a full quota, a listing without
// a page, an instance that is listed late.
func ExampleProcess_DoOr() {
	explore.Run(t, explore.Scenario[*provider]{
		World: func() *provider { return &provider{instances: map[string]instance{}} },
		Start: func(proc *explore.Process, p *provider) {
			proc.Go(func(ctx context.Context) error { return keepPool(ctx, api{proc, p}) })
		},
		Steps: func(env *explore.Environment, p *provider) {
			p.pool = []string{"web-0", "web-1", "web-2"}
			env.Advance(10 * time.Minute)
			p.pool = p.pool[:1] // scale down
			env.Advance(10 * time.Minute)
			clear(p.instances) // somebody deletes what is left
			env.Advance(10 * time.Minute)
		},
		State: func(p *provider) string {
			var names []string
			for _, i := range p.instances {
				names = append(names, i.Name)
			}
			slices.Sort(names)
			return fmt.Sprint(names)
		},
		CustomFaults: []explore.Fault{quotaFull, pageMissing, listedLate},
		Plans:        200,
	})
}
