// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Cluster is several servers that keep their streams together.
type Cluster struct {
	Servers []*Server
}

// OpenCluster starts so many servers that form a cluster, each with a folder of
// its own in dir, and waits as [Cluster.Ready] does. Close it when done.
func OpenCluster(dir string, servers int) (*Cluster, error) {
	c := new(Cluster)
	for i := range servers {
		name := fmt.Sprintf("s%d", i+1)
		s, err := newServer(settings{Name: name, Dir: filepath.Join(dir, name), Cluster: "natstest"})
		if err == nil {
			s.routes, err = NewProxy("")
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		s.set.Advertise = s.routes.Addr()
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		for _, o := range c.Servers {
			if o != s {
				s.set.Routes = append(s.set.Routes, o.routes.URL())
			}
		}
	}
	if err := c.start(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// URL returns the URLs of all servers, separated by commas.
func (c *Cluster) URL() string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, s.URL())
	}
	return strings.Join(urls, ",")
}

// Start starts those servers that do not run, and waits as [Cluster.Ready]
// does.
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
		all.Go(func() { errs[i] = s.start() })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return c.ready()
}

// Ready waits until a stream can be created with a replica on each server.
func (c *Cluster) Ready() { must(c.ready()) }

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
	try := func() error {
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
	}
	// The servers tell no one when they have agreed, so they are asked.
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("the cluster has no leader in time: %w", err)
		}
	}
}
