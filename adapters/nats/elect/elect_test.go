// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package elect_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/elect"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestElectHandsOver stops one leader after the other in order. The TTL is far
// longer than the test waits, so that it is the handing over that works.
func TestElectHandsOver(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	kv := leases(t, s.JetStream(t), time.Hour)
	r := newReferee(t)
	stops := make(map[string]func())
	for _, name := range []string{"a", "b", "c"} {
		own, err := s.JetStream(t, natstest.In(t, "leader", "leases")).KeyValue(t.Context(), "leases")
		if err != nil {
			t.Fatal(err)
		}
		stops[name] = stand(t, own, r.runner(name))
	}
	for range 3 {
		name := natstest.Next(t, r.leads)
		e, err := kv.Get(t.Context(), "leader")
		if host, _ := os.Hostname(); err != nil || !strings.HasPrefix(string(e.Value()), fmt.Sprintf("%s/%d/", host, os.Getpid())) {
			t.Errorf("the lease says %v, %v; want the host and process", e, err)
		}
		stops[name]()
		if ended := natstest.Next(t, r.ended); ended != name {
			t.Errorf("%s ended, want %s", ended, name)
		}
	}
	if _, err := kv.Get(t.Context(), "leader"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the last leader left its lease: %v", err)
	}
	if len(r.lost) > 0 {
		t.Error("a lease was lost")
	}
}

// TestElectLostConnection takes the network of the leader away, in both ways.
// Another one leads, once the first has given up; and then the first again.
func TestElectLostConnection(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	kv := leases(t, s.JetStream(t), time.Second)
	r := newReferee(t)
	proxies := make(map[string]*natstest.Proxy)
	for _, name := range []string{"a", "b"} {
		p := natstest.NewClientProxy(t, s)
		proxies[name] = p
		kv, err := natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "leader", "leases"))).KeyValue(t.Context(), "leases")
		if err != nil {
			t.Fatal(err)
		}
		stand(t, kv, r.runner(name))
	}
	leader := natstest.Next(t, r.leads)
	for _, lose := range []func(*natstest.Proxy){(*natstest.Proxy).Hang, (*natstest.Proxy).Cut, (*natstest.Proxy).Hang} {
		renewed(t, kv)
		lose(proxies[leader])
		for last := leader; leader == last; { // it may win again, if it lost the lease just before
			leader = natstest.Next(t, r.leads)
		}
		for _, p := range proxies {
			p.Heal()
		}
	}
	for range 3 { // the context of each ended in time, its goroutine may be late
		natstest.Next(t, r.lost)
	}
}

// TestElectRestarts kills and restarts the server under three candidates.
func TestElectRestarts(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	leases(t, s.JetStream(t), time.Second)
	r := newReferee(t)
	stops := make(map[string]func())
	for _, name := range []string{"a", "b", "c", "d"} {
		kv, err := s.JetStream(t, natstest.In(t, "leader", "leases")).KeyValue(t.Context(), "leases")
		if err != nil {
			t.Fatal(err)
		}
		stops[name] = stand(t, kv, r.runner(name))
	}
	for _, end := range []func(){s.Kill, s.Stop, s.Kill} {
		leader := natstest.Next(t, r.leads)
		for stops[leader] == nil { // it led again before it was stopped
			leader = natstest.Next(t, r.leads)
		}
		end()
		s.Start()
		stops[leader]() // whether or not it leads still
		delete(stops, leader)
		for drained := false; !drained; { // terms that began before this
			select {
			case leader = <-r.leads:
				if _, ok := stops[leader]; ok {
					r.leads <- leader
					drained = true
				}
			case <-time.After(natstest.Patience):
				t.Fatal("no one leads after a restart")
			}
		}
	}
}

// TestElectCluster kills the one of three servers that keeps the bucket. Whoever
// leads then stops in order, and another one follows.
func TestElectCluster(t *testing.T) {
	t.Parallel()
	c := natstest.NewCluster(t, 3)
	js := c.JetStream(t)
	natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "leases", TTL: time.Second, Replicas: 3})
	r := newReferee(t)
	stops := make(map[string]func())
	for _, name := range []string{"a", "b", "c"} {
		var kv jetstream.KeyValue
		natstest.Eventually(t, func(ctx context.Context) (err error) {
			kv, err = c.JetStream(t, natstest.In(t, "leader", "leases")).KeyValue(ctx, "leases")
			return err
		})
		stops[name] = stand(t, kv, r.runner(name))
	}
	natstest.Next(t, r.leads)
	var keeper string
	natstest.Eventually(t, func(ctx context.Context) error {
		stream, err := js.Stream(ctx, "KV_leases")
		if err != nil {
			return err
		}
		keeper = stream.CachedInfo().Cluster.Leader
		return nil
	})
	for _, s := range c.Servers {
		if s.Name() == keeper {
			s.Kill()
		}
	}
	var leader string
	natstest.Eventually(t, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for ctx, name := range r.terms {
			if ctx.Err() == nil {
				leader = name
				return nil
			}
		}
		return errors.New("no one leads")
	})
	for len(r.leads) > 0 {
		<-r.leads
	}
	stops[leader]()
	for natstest.Next(t, r.leads) == leader {
	}
}

// TestElectDeleted takes the lease away from outside: the leader hears of it at once, long
// before it renews. The one that leads then may be the same.
func TestElectDeleted(t *testing.T) {
	t.Parallel()
	js := natstest.New(t).JetStream(t)
	const ttl = 8 * time.Second // renewed each 2 s
	for name, take := range map[string]func(ctx context.Context, kv jetstream.KeyValue) error{
		"deleted": func(ctx context.Context, kv jetstream.KeyValue) error { return kv.Delete(ctx, "leader") },
		"purged":  func(ctx context.Context, kv jetstream.KeyValue) error { return kv.Purge(ctx, "leader") },
		"taken": func(ctx context.Context, kv jetstream.KeyValue) error {
			_, err := kv.PutString(ctx, "leader", "another")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: name, TTL: ttl})
			r := newReferee(t)
			stand(t, kv, r.runner("a"))
			natstest.Next(t, r.leads)
			renewed(t, kv)
			begin := time.Now()
			if err := take(t.Context(), kv); err != nil {
				t.Fatal(err)
			}
			natstest.Next(t, r.lost)
			if took := time.Since(begin); took > ttl/8 {
				t.Errorf("the leader led on for %v", took)
			}
			natstest.Next(t, r.leads)
		})
	}
}

// A mute bucket does what it is told, and then says that it did not.
type mute struct {
	jetstream.KeyValue
	mu   sync.Mutex
	left int // answers to keep back
}

var errMute = errors.New("no answer")

func (m *mute) answer(revision uint64, err error) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.left > 0 {
		m.left--
		return 0, errMute
	}
	return revision, err
}

func (m *mute) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	return m.answer(m.KeyValue.Create(ctx, key, value, opts...))
}

func (m *mute) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return m.answer(m.KeyValue.Update(ctx, key, value, revision))
}

// TestElectLostAnswers loses answers: a lease that is ours is found again, and
// given back at the end.
func TestElectLostAnswers(t *testing.T) {
	t.Parallel()
	js := natstest.New(t).JetStream(t)
	// The TTL is long enough that a lease cannot be won by its end.
	kv := &mute{KeyValue: leases(t, js, time.Hour), left: 2}
	r := newReferee(t)
	stop := stand(t, kv, r.runner("a"))
	natstest.Next(t, r.leads)
	stop()
	natstest.Next(t, r.ended)
	if _, err := kv.Get(t.Context(), "leader"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the lease is not given back: %v", err)
	}

	// A renewal that is not answered, followed by some that are.
	r = newReferee(t)
	kv = &mute{KeyValue: natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "short", TTL: time.Hour, History: 5})}
	short := &hasty{mute: kv}
	stop = stand(t, short, r.runner("b"))
	natstest.Next(t, r.leads)
	kv.mu.Lock()
	kv.left = 1
	kv.mu.Unlock()
	natstest.Eventually(t, func(ctx context.Context) error {
		kv.mu.Lock()
		defer kv.mu.Unlock()
		if kv.left > 0 {
			return errors.New("no renewal yet")
		}
		return nil
	})
	revision := uint64(0)
	natstest.Eventually(t, func(ctx context.Context) error { // renewed twice more
		e, err := kv.Get(ctx, "leader")
		if err != nil {
			return err
		}
		if revision == 0 {
			revision = e.Revision()
		}
		if e.Revision() < revision+2 {
			return errors.New("not renewed yet")
		}
		return nil
	})
	stop()
	if len(r.lost) > 0 {
		t.Error("the lease was lost, though its renewals were heard")
	}
	if _, err := kv.Get(t.Context(), "leader"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the lease is not given back: %v", err)
	}
}

// A hasty bucket keeps its entries for an hour and says that they last for 4 s,
// so that they are renewed often, and a slow machine loses none.
type hasty struct{ *mute }

type hastyStatus struct{ jetstream.KeyValueStatus }

func (hastyStatus) TTL() time.Duration { return 4 * time.Second }

func (h *hasty) Status(ctx context.Context) (jetstream.KeyValueStatus, error) {
	s, err := h.mute.Status(ctx)
	return hastyStatus{s}, err
}

func TestElectMisuse(t *testing.T) {
	t.Parallel()
	js := natstest.New(t).JetStream(t)
	good := leases(t, js, time.Second)
	forever := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "forever"})
	short := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "short", TTL: 500 * time.Millisecond})
	nothing := reconcile.RunFunc(func(context.Context) error { return nil })
	for _, c := range []struct {
		kv   jetstream.KeyValue
		name string
		r    reconcile.Runner
		want string
	}{
		{nil, "a", nothing, "needs a KeyValue bucket, got nil"},
		{good, "", nothing, `the lease is named "", want letters, digits`},
		{good, "a b", nothing, `the lease is named "a b", want letters, digits`},
		{good, "a..b", nothing, `the lease is named "a..b", want letters, digits`},
		{good, strings.Repeat("a", 4000), nothing, "the name of the lease is too long"},
		{good, "a", nil, "lease a needs a Runner, got nil"},
		{forever, "a", nothing, "bucket forever has a TTL of 0s, want 1s or more"},
		{short, "a", nothing, "bucket short has a TTL of 500ms, want 1s or more"},
	} {
		err := elect.Elect(c.kv, c.name, c.r).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Elect(%q): %v, want %q", c.name, err, c.want)
		}
	}
}
