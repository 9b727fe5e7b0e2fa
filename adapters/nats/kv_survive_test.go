// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestKeyValueSurvivesRestarts kills the server, stops it in order, and changes
// keys before the Feeder can be back: it goes on after the last revision, with
// no entry twice.
func TestKeyValueSurvivesRestarts(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	watched := natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "feeder of a bucket", "b")))
	kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b", History: 5})
	put(t, kv, "a", "older") // is history when the Feeder begins
	put(t, kv, "a", "0")
	put(t, kv, "b", "0")
	f := run(t, entries(watched, "b"))
	f.want("a =0", "b =0")
	for round, end := range []func(){s.Kill, s.Stop, s.Kill} {
		p.Cut()
		end()
		s.Start()
		value := fmt.Sprint(round + 1)
		put(t, kv, "a", value)
		put(t, kv, "a", value+"x")
		natstest.Eventually(t, func(ctx context.Context) error { return kv.Delete(ctx, "b") })
		p.Heal()
		f.want("a ="+value, "a ="+value+"x", "b deleted")
	}
	f.stop()
	f.none()
}

// TestKeyValueLostConnection loses what was on its way, and then has a network
// that hangs for a while.
func TestKeyValueLostConnection(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	watched := natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "feeder of a bucket", "b"), nats.PingInterval(time.Hour)))
	kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, entries(watched, "b"))
	put(t, kv, "a", "0")
	f.want("a =0")
	// What was on its way when the connection went is sent again.
	p.Hang()
	put(t, kv, "a", "1")
	put(t, kv, "b", "1")
	p.Cut()
	put(t, kv, "a", "2")
	p.Heal()
	f.want("b =1", "a =2")
	// A connection that hangs and comes back by itself.
	p.Hang()
	put(t, kv, "a", "3")
	p.Heal()
	f.want("a =3")
	f.stop()
	f.none()
}

// TestKeyValueStaleWatch takes the consumer away behind the Feeder's back: the
// watch is stale, though connection, server and bucket are well.
func TestKeyValueStaleWatch(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, entries(as(t, js, "feeder of a bucket", "b"), "b"))
	put(t, kv, "a", "0")
	f.want("a =0")
	stream, err := js.Stream(t.Context(), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	deleted := 0
	for consumer := range stream.ConsumerNames(t.Context()).Name() {
		deleted++
		if err := stream.DeleteConsumer(t.Context(), consumer); err != nil {
			t.Fatal(err)
		}
	}
	if deleted != 1 {
		t.Fatalf("the Feeder has %d consumers, want 1", deleted)
	}
	put(t, kv, "b", "1")
	f.want("b =1")
	f.stop()
	f.none()
	if names := slices.Collect(chanSeq(stream.ConsumerNames(t.Context()).Name())); len(names) > 0 {
		t.Errorf("the Feeder left the consumers %q", names)
	}
}

// TestKeyValueLeavesNoConsumers loses the connection again and again: each time the Feeder
// deletes the consumer that it had, which the server would keep for half a minute.
func TestKeyValueLeavesNoConsumers(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	js := natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "feeder of a bucket", "b")))
	direct := s.JetStream(t)
	kv := natstest.CreateKeyValue(t, direct, jetstream.KeyValueConfig{Bucket: "b"})
	deletions, err := direct.Conn().SubscribeSync("$JS.API.CONSUMER.DELETE.KV_b.*")
	if err != nil {
		t.Fatal(err)
	}
	f := run(t, entries(js, "b"))
	const times = 5
	for n := range times + 1 {
		put(t, kv, "a", fmt.Sprint(n))
		f.want(fmt.Sprint("a =", n))
		for _, nc := range []*nats.Conn{js.Conn(), direct.Conn()} { // what was sent has come here
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if n < times {
			p.Cut()
			p.Heal()
		}
	}
	if n, _, err := deletions.Pending(); err != nil || n < times {
		t.Errorf("after the connection was lost %d times the Feeder has deleted %d consumers, %v", times, n, err)
	}
	natstest.Eventually(t, func(ctx context.Context) error {
		stream, err := direct.Stream(ctx, "KV_b")
		if err == nil && stream.CachedInfo().State.Consumers != 1 {
			err = fmt.Errorf("%d consumers, want 1", stream.CachedInfo().State.Consumers)
		}
		return err
	})
}

// TestKeyValueNewBucket begins before there is a bucket, and then has it deleted
// and created again, while the connection is there and while it is not. Each
// new bucket is read from its beginning, though it has the same revisions.
func TestKeyValueNewBucket(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	watched := natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "feeder of a bucket", "b")))
	js := s.JetStream(t)
	f := run(t, entries(watched, "b"))
	for round := range 4 {
		if round > 0 {
			if err := js.DeleteKeyValue(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
		}
		if round == 2 {
			p.Cut()
		}
		kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
		value := fmt.Sprint(round)
		put(t, kv, "a", value)
		put(t, kv, "b", value)
		last := value
		if round == 2 { // so that nothing has the revision that was seen last
			last = "again"
			put(t, kv, "b", last)
		}
		if round == 3 { // more than before, so that the last revision says nothing
			for i := range 100 {
				put(t, kv, fmt.Sprint("c", i), value)
			}
		}
		p.Heal()
		f.want("a ="+value, "b ="+last)
	}
}

// TestKeyValueLostRevisions puts the bucket back to an older state, as after a
// loss of power: revisions that were seen are gone and used again, the last one
// among them or not.
func TestKeyValueLostRevisions(t *testing.T) {
	for _, lost := range [][]string{{"b"}, {"b", "c"}} {
		s := natstest.New(t)
		p := natstest.NewClientProxy(t, s)
		watched := natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "feeder of a bucket", "b")))
		js := s.JetStream(t)
		kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b", History: 5})
		f := run(t, entries(watched, "b"))
		put(t, kv, "a", "1")
		f.want("a =1")
		s.Stop()
		s.Snapshot(t)
		s.Start()
		for _, key := range lost {
			put(t, kv, key, "1")
			f.want(key + " =1")
		}
		p.Cut()
		s.Kill()
		s.Restore(t)
		s.Start()
		put(t, kv, "b", "2") // has the revision of b =1
		p.Heal()
		f.wantAll("a =1", "b =2")
		f.stop()
		f.none()
	}
}

// TestKeyValueLostRevisionsUnseen does the same, and what has the last revision
// that was seen is gone as well when the Feeder is back: replaced, or purged. It
// cannot be sure then that nothing was lost, and finds that a is as it was.
func TestKeyValueLostRevisionsUnseen(t *testing.T) {
	for name, meanwhile := range map[string]struct {
		change func(*testing.T, jetstream.KeyValue, jetstream.Stream)
		want   []string
	}{
		"replaced": {func(t *testing.T, kv jetstream.KeyValue, _ jetstream.Stream) { put(t, kv, "b", "2") }, []string{"a =1", "b =2"}},
		"purged": {func(t *testing.T, _ jetstream.KeyValue, stream jetstream.Stream) {
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.b.b")); err != nil {
				t.Fatal(err)
			}
		}, []string{"a =1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.New(t)
			p := natstest.NewClientProxy(t, s)
			watched := natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "feeder of a bucket", "b")))
			js := s.JetStream(t)
			kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
			f := run(t, entries(watched, "b"))
			put(t, kv, "a", "1")
			f.want("a =1")
			s.Stop()
			s.Snapshot(t)
			s.Start()
			put(t, kv, "a", "2")
			f.want("a =2")
			p.Cut()
			s.Kill()
			s.Restore(t)
			s.Start()
			put(t, kv, "b", "1") // has the revision of a =2
			var stream jetstream.Stream
			natstest.Eventually(t, func(ctx context.Context) (err error) {
				stream, err = js.Stream(ctx, "KV_b")
				return err
			})
			meanwhile.change(t, kv, stream)
			p.Heal()
			f.want(meanwhile.want...)
			f.stop()
			f.none()
		})
	}
}

// TestKeyValueResumesAfterAReconnect loses the connection alone, and with it the one revision
// that was seen last: as the server was up all the time, nothing else is
// enqueued again.
func TestKeyValueResumesAfterAReconnect(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, entries(natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "feeder of a bucket", "b"))), "b"))
	put(t, kv, "calm", "1")
	put(t, kv, "busy", "1")
	f.want("calm =1", "busy =1")
	for _, value := range []string{"2", "3"} {
		p.Cut()
		put(t, kv, "busy", value)
		p.Heal()
		f.want("busy =" + value)
	}
	f.stop()
	f.none()
}

// TestKeyValueClosedConnection ends a Feeder that cannot go on.
func TestKeyValueClosedConnection(t *testing.T) {
	s := natstest.New(t)
	nc := s.Connect(t, natstest.In(t, "feeder of a bucket", "b"))
	kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, entries(natstest.JetStream(t, nc), "b"))
	put(t, kv, "a", "1")
	f.want("a =1")
	nc.Close()
	err := <-f.ended
	f.ended <- err
	if err == nil || !strings.Contains(err.Error(), "bucket b: "+nats.ErrConnectionClosed.Error()) {
		t.Errorf("the Feeder returns %v, want one that says the connection is closed", err)
	}
}

// TestKeyValueCluster kills the one of three servers that keeps the bucket for
// the others. Another one goes on where it was, and so does the Feeder.
func TestKeyValueCluster(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	js := c.JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b", Replicas: 3})
	f := run(t, entries(c.JetStream(t), "b"))
	put(t, kv, "a", "1")
	f.want("a =1")
	stream, err := js.Stream(t.Context(), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	keeper := stream.CachedInfo().Cluster.Leader
	for _, s := range c.Servers {
		if s.Name() == keeper {
			s.Kill()
		}
	}
	put(t, kv, "a", "2")
	put(t, kv, "b", "2")
	f.want("a =2", "b =2")
	c.Start()
	put(t, kv, "a", "3")
	f.want("a =3")
	f.stop()
	f.none()
}
