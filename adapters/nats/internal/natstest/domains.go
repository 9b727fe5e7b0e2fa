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
	up := &server.Options{ServerName: "hub", JetStream: true, JetStreamDomain: "hub", StoreDir: tb.TempDir()}
	up.LeafNode.Host, up.LeafNode.Port = "127.0.0.1", -1
	hub = Serve(tb, up)
	down := &server.Options{ServerName: "leaf", JetStream: true, JetStreamDomain: "leaf", StoreDir: tb.TempDir()}
	down.LeafNode.Remotes = []*server.RemoteLeafOpts{{URLs: []*url.URL{{Scheme: "nats", Host: "127.0.0.1:" + strconv.Itoa(up.LeafNode.Port)}}}}
	leaf = Serve(tb, down)
	for leaf.NumLeafNodes() == 0 || hub.NumLeafNodes() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	return hub, leaf
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
