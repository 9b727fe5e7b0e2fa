// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// HubAndLeaf starts two servers in this process, each with JetStream in a domain of
// its own, "hub" and "leaf", and joined by a leaf node; and ends them when the test
// ends.
func HubAndLeaf(tb testing.TB) (hub, leaf *server.Server) {
	tb.Helper()
	up := Domain(tb, "hub", -1)
	hub = Serve(tb, up)
	down := Domain(tb, "leaf", up.LeafNode.Port)
	leaf = Serve(tb, down)
	for leaf.NumLeafNodes() == 0 || hub.NumLeafNodes() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return hub, leaf
}

// Domain returns the options of a server with JetStream in a domain. With the port of
// a hub it is a leaf node of that; with -1 or the domain "hub" it listens for leaf
// nodes on that port, any for -1, as its options say once it runs.
func Domain(tb testing.TB, domain string, port int) *server.Options {
	tb.Helper()
	o := &server.Options{ServerName: domain, JetStream: true, JetStreamDomain: domain, StoreDir: tb.TempDir()}
	if domain == "hub" {
		o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", port
		return o
	}
	o.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: "127.0.0.1:" + strconv.Itoa(port)}}}}
	o.LeafNode.ReconnectInterval = 50 * time.Millisecond
	return o
}

// Serve starts a server in this process, and ends it when the test ends.
func Serve(tb testing.TB, o *server.Options) *server.Server {
	tb.Helper()
	o.Host, o.NoLog, o.NoSigs = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = -1
	}
	s, err := server.NewServer(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(Patience) {
		tb.Fatal("the server is not ready")
	}
	return s
}
