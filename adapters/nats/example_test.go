// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/refs"
	"github.com/reconkernel/reconcile/supervise"
)

// A site has a theme, and owns routes. Each of them is an entry of a bucket.
func Example() {
	var js jetstream.JetStream // of a connection to a server
	var themeOf, host func(site string) string
	var themes refs.Refs[string, string]
	q := reconcile.NewQueue[string]()
	routes := &natsadapter.Secondaries{JS: js, Bucket: "routes", Kind: "site"}
	reconcileSite := func(ctx context.Context, site string) error {
		themes.Set(site, themeOf(site)) // a changed theme enqueues the site
		_, err := routes.Put(ctx, host(site), []byte(site), site)
		if errors.Is(err, natsadapter.ErrOwned) {
			return reconcile.Terminal(err) // another site has the host
		}
		return err
	}

	_ = func(ctx context.Context) error {
		var group supervise.Group
		group.Add("sites", reconcile.Feed(q, natsadapter.KeyValue(js, "sites", natsadapter.EntryKey)))
		group.Add("routes", reconcile.Feed(q, routes.Feed)) // a changed route enqueues its site
		group.Add("themes", reconcile.Feed(reconcile.Map(q, themes.Of), natsadapter.KeyValue(js, "themes", natsadapter.EntryKey)))
		group.Add("routes without a site", &reconcile.Poller[string]{Queue: q, Period: time.Minute, GetItems: routes.Owners})
		group.Add("runs", &reconcile.Reconciler[string]{Queue: q, Reconcile: reconcileSite})
		return group.Run(ctx)
	}
}
