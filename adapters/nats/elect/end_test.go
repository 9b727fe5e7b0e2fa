// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package elect_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/elect"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestElectKeepsTheLeaseWhileItEnds has a leader that takes its time to stop,
// for longer than the TTL. The next one leads only then.
func TestElectKeepsTheLeaseWhileItEnds(t *testing.T) {
	t.Parallel()
	js := natstest.New(t).JetStream(t)
	kv := leases(t, js, 3*time.Second) // a slow machine is to lose none
	var expired sync.WaitGroup         // of a key beside, which is not renewed
	expired.Add(1)
	began := make(chan struct{})
	ended := false
	stop := stand(t, kv, reconcile.RunFunc(func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		expired.Wait()
		ended = true
		return nil
	}))
	<-began
	next := make(chan struct{})
	stand(t, kv, reconcile.RunFunc(func(ctx context.Context) error {
		if !ended {
			t.Error("the next one leads before the last one has ended")
		}
		close(next)
		<-ctx.Done()
		return nil
	}))
	go stop()
	go func() {
		defer expired.Done()
		for range 2 { // the second one for the next one to notice
			natstest.Eventually(t, func(ctx context.Context) error {
				_, err := kv.PutString(ctx, "beside", "")
				return err
			})
			natstest.Eventually(t, func(ctx context.Context) error {
				if _, err := kv.Get(ctx, "beside"); !errors.Is(err, jetstream.ErrKeyNotFound) {
					return errors.New("not yet")
				}
				return nil
			})
		}
	}()
	select {
	case <-next:
	case <-time.After(natstest.Patience):
		t.Fatal("no one leads")
	}
}

// TestElectEnds has what runs under the lease end by itself, or fail as it is ended: the
// lease is given back, and what it returned is returned.
func TestElectEnds(t *testing.T) {
	t.Parallel()
	js := natstest.New(t).JetStream(t)
	kv := leases(t, js, time.Hour)
	failure := errors.New("failure")
	for _, c := range []struct {
		name string
		run  func(ctx context.Context, stop func()) error
		ok   func(error) bool
	}{
		{"nil", func(context.Context, func()) error { return nil }, func(err error) bool { return err == nil }},
		{"error", func(context.Context, func()) error { return failure }, func(err error) bool { return errors.Is(err, failure) }},
		{"stopped", func(ctx context.Context, stop func()) error {
			stop()
			<-ctx.Done()
			return fmt.Errorf("read: %w", ctx.Err())
		}, func(err error) bool { return err == nil }},
		{"stopped, with a failure beside it", func(ctx context.Context, stop func()) error {
			stop()
			<-ctx.Done()
			return errors.Join(ctx.Err(), failure)
		}, func(err error) bool { return errors.Is(err, failure) }},
		{"panic", func(context.Context, func()) error { panic(failure) }, func(err error) bool {
			p := new(reconcile.PanicError)
			return errors.As(err, &p) && errors.Is(err, failure) && len(p.Stack) > 0
		}},
		{"goexit", func(context.Context, func()) error { runtime.Goexit(); return nil }, func(err error) bool { return err != nil }},
	} {
		ctx, stop := context.WithCancel(t.Context())
		err := elect.Elect(kv, "leader", reconcile.RunFunc(func(ctx context.Context) error { return c.run(ctx, stop) })).Run(ctx)
		stop()
		if !c.ok(err) {
			t.Errorf("%s: Run returns %v", c.name, err)
		}
		if _, err := kv.Get(t.Context(), "leader"); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("%s: the lease is not given back: %v", c.name, err)
		}
	}
}
