// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
	"github.com/reconkernel/reconcile/example/controller"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/lanes"
)

// parts are the parts of our service, for tests that watch it.
type parts struct {
	gate    *gate.Gate
	regions *lanes.Lanes[cloud.ID, string]
	assets  *controller.Set
}

// ours is the controller of the example, put together as docs/production.md says: a lane
// for each region and a gate for all, a Set whose Lookup confirms the desired state before
// it deletes, and a Resync of six hours, because the cloud is listed each minute.
func ours(ctx context.Context, w *world, events <-chan string) {
	quiet := slog.New(slog.DiscardHandler)
	c := &controller.Controller{Cloud: &client{w: w, events: events}, Patience: 10 * time.Second}
	calls := &gate.Gate{
		Every: time.Duration(float64(time.Second) / (0.8 * w.rate)), Burst: int(w.rate / 5),
		Pause: c.Pause, Logger: quiet,
	}
	var assets *controller.Set
	regions := &lanes.Lanes[cloud.ID, string]{
		Lane: func(id cloud.ID) string { return region(id.Name) },
		Reconciler: func(name string) *reconcile.Reconciler[cloud.ID] {
			return &reconcile.Reconciler[cloud.ID]{
				Name: name, Workers: workers / 4, Timeout: 30 * time.Second, Grace: 10 * time.Second, RecheckJitter: 0.1,
				Reconcile: assets.Reconcile, OnResult: c.OnResult, Admit: calls.Admit, Retry: reconcile.Backoff(time.Second, time.Minute),
			}
		},
		Logger: quiet,
	}
	assets = c.Set(regions)
	assets.Name, assets.Logger = "assets", quiet
	assets.Period, assets.Jitter = time.Minute, 0.1
	assets.Resync = w.recheck
	assets.Desired = func(ctx context.Context) (map[cloud.ID]cloud.Spec, error) {
		all, err := w.listDesired(ctx)
		specs := make(map[cloud.ID]cloud.Spec, len(all))
		for name, version := range all {
			specs[idOf(name)] = specOf(version)
		}
		return specs, err
	}
	assets.Lookup = func(ctx context.Context, id cloud.ID, _ cloud.Spec) (cloud.Spec, bool, error) {
		version, wanted, err := w.lookup(ctx, id.Name)
		return specOf(version), wanted, err
	}
	if w.watch != nil {
		w.watch(&parts{calls, regions, assets})
	}
	group := &reconcile.Group{Logger: quiet}
	group.Add("assets", regions)
	group.Add("listings", assets)
	group.Add("events", reconcile.Feed(assets.Queue, c.Events(assets.Trigger)))
	if err := group.Run(ctx); err != nil {
		panic(err)
	}
}

func idOf(name string) cloud.ID { return cloud.ID{Kind: cloud.Bucket, Name: name} }

// specOf makes a spec of a world one of the example.
func specOf(version string) cloud.Spec { return cloud.Spec{Region: version} }

// A client is a world as the example sees its cloud.
type client struct {
	w       *world
	events  <-chan string
	listing map[string]string // of which Page shows pages, one listing at a time
	names   []string
}

// asError makes an answer of a world one of the example's cloud.
func asError(err error) error {
	var a *answer
	switch {
	case errors.As(err, &a):
		return &cloud.Error{Code: a.status, RetryAfter: a.retryAfter, Message: "no"}
	case errors.Is(err, errNotFound):
		return &cloud.Error{Code: 404, Message: "not there"}
	}
	return err
}

func assetOf(name string, a asset) cloud.Asset {
	there := cloud.Asset{ID: idOf(name), Spec: specOf(a.spec), State: cloud.Ready, Operation: "op"}
	if time.Now().Before(a.ready) {
		there.State = cloud.Creating
	}
	return there
}

func (c *client) Get(ctx context.Context, id cloud.ID) (cloud.Asset, error) {
	a, err := c.w.get(ctx, id.Name)
	return assetOf(id.Name, a), asError(err)
}

// Page shows the assets as they were when their first page was listed.
func (c *client) Page(ctx context.Context, after cloud.ID) (page []cloud.Asset, more bool, err error) {
	if after == (cloud.ID{}) {
		c.listing = c.w.snapshot()
		c.names = slices.Sorted(maps.Keys(c.listing))
	}
	if err := c.w.listPage(ctx); err != nil {
		return nil, false, asError(err)
	}
	first, _ := slices.BinarySearch(c.names, after.Name+"\x00")
	last := min(first+c.w.pageSize, len(c.names))
	for _, name := range c.names[first:last] {
		page = append(page, cloud.Asset{ID: idOf(name), Spec: specOf(c.listing[name]), State: cloud.Ready})
	}
	return page, last < len(c.names), nil
}

func (c *client) Create(ctx context.Context, id cloud.ID, spec cloud.Spec) (cloud.Asset, error) {
	err := c.w.create(ctx, id.Name, spec.Region)
	return cloud.Asset{ID: id, Spec: spec, State: cloud.Creating, Operation: "op"}, asError(err)
}

func (c *client) Update(ctx context.Context, id cloud.ID, spec cloud.Spec, _ int64) error {
	return asError(c.w.update(ctx, id.Name, spec.Region))
}

func (c *client) Delete(ctx context.Context, id cloud.ID) error {
	return asError(c.w.remove(ctx, id.Name))
}

func (c *client) Events(ctx context.Context) iter.Seq2[cloud.Event, error] {
	return func(yield func(cloud.Event, error) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case name := <-c.events:
				if !yield(cloud.Event{Asset: idOf(name)}, nil) {
					return
				}
			}
		}
	}
}
