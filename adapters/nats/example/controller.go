// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/elect"
)

// A site is what is wanted, the value of a key in the bucket sites.
type site struct {
	Theme string   `json:"theme"`
	Hosts []string `json:"hosts"`
	Text  string   `json:"text"`
}

type controller struct {
	js                           jetstream.JetStream
	sites, themes, table, leases jetstream.KeyValue
	routes                       *natsadapter.Secondaries
	refs                         reconcile.Refs[string, string] // which sites look at a theme
	dir                          string
	period                       time.Duration
	synced                       func(site string) // after each run that found or made all well
}

func newController(ctx context.Context, js jetstream.JetStream, dir string, period time.Duration) (*controller, error) {
	c := &controller{
		js: js, dir: dir, period: period,
		routes: &natsadapter.Secondaries{JS: js, Bucket: "routes", Kind: "site"},
		synced: func(string) {},
	}
	for _, b := range []struct {
		kv     *jetstream.KeyValue
		config jetstream.KeyValueConfig
	}{
		{&c.sites, jetstream.KeyValueConfig{Bucket: "sites"}},
		{&c.themes, jetstream.KeyValueConfig{Bucket: "themes"}},
		{&c.table, jetstream.KeyValueConfig{Bucket: "routes"}},
		{&c.leases, jetstream.KeyValueConfig{Bucket: "leases", TTL: 5 * time.Second}},
	} {
		kv, err := js.CreateOrUpdateKeyValue(ctx, b.config)
		if err != nil {
			return nil, fmt.Errorf("bucket %s: %w", b.config.Bucket, err)
		}
		*b.kv = kv
	}
	return c, nil
}

// Run works while this process is the one that leads.
func (c *controller) Run(ctx context.Context) error {
	return elect.Elect(c.leases, "sites", reconcile.RunFunc(c.lead)).Run(ctx)
}

// lead runs everything that feeds the queue of sites, and what empties it. A
// Group runs once, so each term has its own.
func (c *controller) lead(ctx context.Context) error {
	q := reconcile.NewQueue[string]()
	var group reconcile.Group
	// What is wanted, and what we made of it.
	group.Add("sites", reconcile.Feed(q, natsadapter.KeyValue(c.js, "sites", natsadapter.EntryKey)))
	group.Add("routes", reconcile.Feed(q, c.routes.Feed))
	// What we only look at: each site that does runs again.
	group.Add("themes", reconcile.Feed(reconcile.Map(q, c.refs.Of), natsadapter.KeyValue(c.js, "themes", natsadapter.EntryKey)))
	// What has no watch, or was missed. A route whose site is gone is found here.
	for name, items := range map[string]func(context.Context) ([]string, error){
		"all sites":  natsadapter.KeyValueItems(c.js, "sites", natsadapter.EntryKey),
		"all routes": c.routes.Owners,
		"all pages":  c.pages,
	} {
		group.Add(name, &reconcile.Poller[string]{Name: name, Queue: q, GetItems: items, Period: c.period})
	}
	group.Add("reconciler", &reconcile.Reconciler[string]{
		// Held: runs end when the lease is lost, though the feeders end first, and though
		// there is a grace.
		Name: "sites", Queue: elect.Held(q), Reconcile: c.reconcile, Workers: 4,
		// A call whose answer is lost with a server lasts as long as its context.
		Timeout: 5 * time.Second, Grace: time.Second, Retry: reconcile.Backoff(100*time.Millisecond, time.Minute),
		OnResult: func(r reconcile.Result[string]) {
			if r.Outcome == reconcile.Succeeded {
				c.synced(r.Item)
			}
		},
	})
	return group.Run(ctx)
}

// pages lists the sites that have a page in the folder.
func (c *controller) pages(context.Context) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(c.dir, "*.html"))
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".html")
	}
	return files, err
}

func (c *controller) page(name string) string { return filepath.Join(c.dir, name+".html") }

// reconcile makes routes and page of a site what they have to be.
func (c *controller) reconcile(ctx context.Context, name string) error {
	entry, err := c.sites.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return c.remove(ctx, name)
	}
	if err != nil {
		return err
	}
	var want site
	if err := json.Unmarshal(entry.Value(), &want); err != nil {
		return reconcile.Terminal(err) // until someone writes it anew
	}
	c.refs.Set(name, want.Theme) // first, so that no change is missed
	theme, err := c.themes.Get(ctx, want.Theme)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("theme %q is not there: %w", want.Theme, reconcile.RequeueWithin(time.Hour))
	}
	if err != nil {
		return err
	}
	if err := c.setRoutes(ctx, name, want.Hosts); err != nil {
		return err
	}
	return c.write(name, strings.Replace(string(theme.Value()), "%s", want.Text, 1))
}

// setRoutes has the routes of a site be those of its hosts and no others.
func (c *controller) setRoutes(ctx context.Context, name string, hosts []string) error {
	have, err := c.routes.Of(ctx, name)
	if err != nil {
		return err
	}
	for _, route := range have {
		if !slices.Contains(hosts, route.Key()) {
			if err := c.table.Delete(ctx, route.Key(), jetstream.LastRevision(route.Revision())); err != nil {
				return err
			}
		}
	}
	for _, host := range hosts {
		right := func(e jetstream.KeyValueEntry) bool { return e.Key() == host && string(e.Value()) == name }
		if slices.ContainsFunc(have, right) {
			continue // writing it again would be a change, and run this again
		}
		_, err := c.routes.Put(ctx, host, []byte(name), name)
		if errors.Is(err, natsadapter.ErrOwned) {
			return reconcile.Terminal(err) // another site has the host
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *controller) write(name, text string) error {
	have, err := os.ReadFile(c.page(name))
	if err == nil && string(have) == text {
		return nil
	}
	return os.WriteFile(c.page(name), []byte(text), 0o600)
}

// remove deletes what a site that is gone has left.
func (c *controller) remove(ctx context.Context, name string) error {
	if err := c.setRoutes(ctx, name, nil); err != nil {
		return err
	}
	c.refs.Set(name)
	if err := os.Remove(c.page(name)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
