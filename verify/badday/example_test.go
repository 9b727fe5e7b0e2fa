// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"log/slog"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
	"github.com/reconkernel/reconcile/example/controller"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/lanes"
	"github.com/reconkernel/reconcile/supervise"
)

// resync is the Resync of our Set: the cloud is listed each minute.
const resync = 6 * hour

// parts are the parts of our service, for tests that watch it.
type parts struct {
	gate    *gate.Gate
	regions *lanes.Lanes[cloud.ID, string]
	assets  *controller.Set
}

// ours is the controller of the example, put together as docs/production.md says: a lane
// for each region and a gate for all, and a Set whose Lookup confirms the desired state
// before it deletes.
func ours(ctx context.Context, w *world) {
	quiet := slog.New(slog.DiscardHandler)
	c := &controller.Controller{Cloud: client{w.cloud, w}, Patience: 10 * time.Second}
	calls := &gate.Gate{
		Every: time.Duration(float64(time.Second) / (0.8 * w.rate)), Burst: int(w.rate / 5),
		Pause: c.Pause, Logger: quiet,
	}
	var assets *controller.Set
	regions := &lanes.Lanes[cloud.ID, string]{
		Lane: region,
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
	assets.Period, assets.Jitter, assets.Resync = time.Minute, 0.1, resync
	assets.Desired = func(ctx context.Context) (map[cloud.ID]cloud.Spec, error) { return w.listDesired(ctx), nil }
	assets.Lookup = w.lookup
	if w.watch != nil {
		w.watch(&parts{calls, regions, assets})
	}
	group := &supervise.Group{Logger: quiet}
	group.Add("assets", regions)
	group.Add("listings", assets)
	if err := group.Run(ctx); err != nil {
		panic(err)
	}
}
