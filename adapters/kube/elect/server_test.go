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

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

// A seat tells who leads, and fails the test if two do.
type seat struct {
	t     *testing.T
	mu    sync.Mutex // guards what follows
	holds string
	news  chan string
}

func (s *seat) Run(ctx context.Context, who string) error {
	s.mu.Lock()
	if s.holds != "" {
		s.t.Errorf("%s leads, and %s still does", who, s.holds)
	}
	s.holds = who
	s.mu.Unlock()
	s.news <- who + " leads"
	<-ctx.Done()
	s.mu.Lock()
	s.holds = ""
	s.mu.Unlock()
	s.news <- who + " ends"
	return nil
}

// until waits for news. What comes before it is of no interest: on a slow machine
// a candidate may lose its lease and get it back at any time.
func (s *seat) until(want string) {
	s.t.Helper()
	deadline := time.After(5 * time.Minute)
	for got := ""; got != want; {
		select {
		case got = <-s.news:
		case <-deadline:
			s.t.Fatalf("no news that %s", want)
		}
	}
}

// TestElectOnServer has three candidates and a real API server: which is killed
// and comes back, does not answer for a while, and answers again.
func TestElectOnServer(t *testing.T) {
	server := kubetest.Shared(t)
	ns := server.Namespace(t)
	s := &seat{t: t, news: make(chan string, 100)}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	candidate := func(ctx context.Context, name string, config *rest.Config) {
		client, err := coordinationv1.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		runner := elect.Elect(elect.Config{
			Client: client, Namespace: ns, Name: "lease", Identity: name,
			Duration: 6 * time.Second, // also how slow a server may be at the end
			Logger:   quiet,
			Exit:     func(err error) { t.Log(err) }, // a machine that stood still
		}, reconcile.RunFunc(func(ctx context.Context) error { return s.Run(ctx, name) }))
		wg.Go(func() { _ = supervise.Restart(reconcile.Backoff(100*time.Millisecond, 0), runner).Run(ctx) })
	}
	ctxA, stopA := context.WithCancel(ctx)
	defer stopA()
	candidate(ctxA, "a", server.Admin())
	s.until("a leads")
	candidate(ctx, "eve", server.User("eve")) // may not touch the lease
	candidate(ctx, "b", server.Admin())

	// A leader that ends passes the lease on.
	stopA()
	s.until("a ends")
	s.until("b leads")
	// A server that does not answer: b ends by itself, while nobody can lead.
	server.API.Pause()
	s.until("b ends")
	server.API.Resume()
	s.until("b leads")
	// A server that is killed and comes back.
	candidate(ctx, "c", server.Admin())
	server.API.Kill()
	if err := server.API.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Whether that took too long for b or not, one of the two leads after it.
	client, err := coordinationv1.NewForConfig(server.Admin())
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, func() error {
		lease, err := client.Leases(ns).Get(t.Context(), "lease", getOptions)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if holder := *lease.Spec.HolderIdentity; s.holds == "" || holder != s.holds {
			return errors.New("nobody leads: the lease has " + holder)
		}
		return nil
	})
	stop()
	wg.Wait()
	lease, err := client.Leases(ns).Get(t.Context(), "lease", getOptions)
	if err != nil {
		t.Fatal(err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the lease has %q after all have ended, want nobody", *holder)
	}
}
