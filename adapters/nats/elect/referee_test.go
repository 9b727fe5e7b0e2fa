// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package elect_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/elect"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A referee sees who leads. When one begins, the context of each that led before
// must say that it is over: at that moment, however late the goroutines are.
type referee struct {
	t      *testing.T
	leads  chan string // a name for each term that begins
	ended  chan string // and for each that ends
	lost   chan string // and for each that ends because the lease is lost
	mu     sync.Mutex
	terms  map[context.Context]string
	fences []uint64
}

func newReferee(t *testing.T) *referee {
	return &referee{
		t: t, terms: make(map[context.Context]string),
		leads: make(chan string, 1000), ended: make(chan string, 1000), lost: make(chan string, 1000),
	}
}

// runner returns what leads under a name, until its context is done.
func (r *referee) runner(name string) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		r.mu.Lock()
		for other, who := range r.terms {
			if other.Err() == nil {
				r.t.Errorf("%s begins to lead while %s does", name, who)
			}
		}
		r.terms[ctx] = name
		if fence := elect.Fence(ctx); len(r.fences) > 0 && fence <= r.fences[len(r.fences)-1] {
			r.t.Errorf("the fencing number is %d after %v", fence, r.fences)
		}
		r.fences = append(r.fences, elect.Fence(ctx))
		r.mu.Unlock()
		r.leads <- name
		<-ctx.Done()
		r.mu.Lock()
		delete(r.terms, ctx)
		r.mu.Unlock()
		var err error
		if errors.Is(context.Cause(ctx), reconcile.ErrLeaseLost) {
			r.lost <- name
			err = errors.New("a time-out of its own")
		}
		r.ended <- name
		return err
	})
}

// stand starts a candidate, and returns how to stop it in order.
func stand(t *testing.T, kv jetstream.KeyValue, r reconcile.Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- elect.Elect(kv, "leader", r).Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("a candidate whose ctx is done returns %v, want nil", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func leases(t *testing.T, js jetstream.JetStream, ttl time.Duration) jetstream.KeyValue {
	t.Helper()
	return natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "leases", TTL: ttl})
}

// renewed waits until the lease was renewed, so that it lasts as long as a
// renewal makes it last.
func renewed(t *testing.T, kv jetstream.KeyValue) {
	t.Helper()
	var first uint64
	natstest.Eventually(t, func(ctx context.Context) error {
		e, err := kv.Get(ctx, "leader")
		if err != nil {
			return err
		}
		if first == 0 {
			first = e.Revision()
		}
		if e.Revision() == first {
			return errors.New("not renewed yet")
		}
		return nil
	})
}
