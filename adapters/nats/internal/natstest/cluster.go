// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/internal/servers"
)

// A Cluster is several servers that keep their streams together.
type Cluster struct {
	Servers []*Server
}

// OpenCluster starts so many servers that form a cluster, each with a folder of
// its own in dir, and waits until a stream can be created with a replica on each
// server. Close it when done.
func OpenCluster(dir string, n int) (*Cluster, error) {
	c := new(Cluster)
	if err := c.open(dir, n); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) open(dir string, n int) error {
	listen := make([]string, n) // to routes
	for i := range listen {
		name := fmt.Sprintf("s%d", i+1)
		s, err := newServer("", name, filepath.Join(dir, name))
		c.Servers = append(c.Servers, s)
		if err == nil {
			listen[i], s.routes, err = s.port()
		}
		if err != nil {
			return err
		}
	}
	for i, s := range c.Servers {
		var routes []string
		for _, o := range c.Servers {
			if o != s {
				routes = append(routes, o.routes.URL())
			}
		}
		err := s.configure(map[string]any{
			"name": "natstest", "listen": listen[i], "advertise": s.routes.Addr(), "routes": routes,
			"no_advertise": true, // clients know the URLs that they were given
		})
		if err != nil {
			return err
		}
	}
	return c.start()
}

// URL returns the URLs of all servers, separated by commas.
func (c *Cluster) URL() string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URL())
	}
	return strings.Join(urls, ",")
}

// Start starts those servers that do not run, and waits as [OpenCluster] does.
func (c *Cluster) Start() { must(c.start()) }

// Close kills all servers and closes their ports for good.
func (c *Cluster) Close() {
	for _, s := range c.Servers {
		s.Close()
	}
}

func (c *Cluster) start() error {
	errs := make([]error, len(c.Servers))
	var all sync.WaitGroup
	for i, s := range c.Servers {
		all.Go(func() { errs[i] = s.Process.Start(context.Background()) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.ready()
}

// ready waits until a stream can be created with a replica on each server.
func (c *Cluster) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	nc, err := nats.Connect(c.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	const name = "natstest-ready"
	// The servers tell no one when they have agreed, so they are asked.
	return servers.Retry(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: len(c.Servers)})
		if err == nil {
			_, err = js.Publish(ctx, name, nil)
		}
		if err == nil {
			err = js.DeleteStream(ctx, name)
		}
		return err
	})
}
