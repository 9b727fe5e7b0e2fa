// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// passed returns when all that from has published has passed the leaf node to another
// server.
func passed(t *testing.T, from *nats.Conn, to *server.Server) {
	t.Helper()
	nc := natstest.Connect(t, to.ClientURL())
	sub, err := nc.SubscribeSync("passed")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for { // until the interest has passed the other way
		if err := from.Publish("passed", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.NextMsg(natstest.Patience / 100); err == nil {
			return
		}
	}
}

// Queues of one name in two JetStream domains, which a leaf node joins, are two
// queues. A client of another domain uses that of its domain, not that of the server
// that it is connected to.
func TestQueueIsOfOneDomain(t *testing.T) {
	hub, leaf := natstest.HubAndLeaf(t)
	open := func(js jetstream.JetStream) *queue.Queue[string] {
		q, err := queue.New[string](t.Context(), js, queue.Config{Name: "q"})
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, q)
		return q
	}
	hubNC, leafNC := natstest.Connect(t, hub.ClientURL()), natstest.Connect(t, leaf.ClientURL())
	across, err := jetstream.NewWithDomain(leafNC, "hub")
	if err != nil {
		t.Fatal(err)
	}
	atHub, atLeaf := open(natstest.JetStream(t, hubNC)), open(natstest.JetStream(t, leafNC))
	fromLeaf := open(across)
	enqueue(t, atHub, "of the hub")
	enqueue(t, atLeaf, "of the leaf")
	enqueue(t, fromLeaf, "from afar")
	passed(t, hubNC, leaf)
	passed(t, leafNC, hub)
	for _, c := range []struct {
		name string
		q    *queue.Queue[string]
		want []string
	}{
		{"hub", atHub, []string{"from afar", "of the hub"}},
		{"hub's, from the leaf", fromLeaf, []string{"from afar", "of the hub"}},
		{"leaf", atLeaf, []string{"of the leaf"}},
	} {
		all, err := c.q.All(t.Context())
		var got []string
		for _, e := range all {
			got = append(got, e.Item)
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("the queue of the %s has the items %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	mustTake(t, fromLeaf, "of the hub")
	mustTake(t, atHub, "from afar")
	fromLeaf.Done("of the hub")
	atHub.Done("from afar")
	mustTake(t, atLeaf, "of the leaf")
	atLeaf.Done("of the leaf")
}
