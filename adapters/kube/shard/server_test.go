// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package shard_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/adapters/kube/shard"
)

// TestOnServer has three processes and a real API server, which does not answer
// for a while, and is killed and started again. In the end each item has one
// owner, and one that may not touch Leases owns nothing.
func TestOnServer(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	a := newArena(t)
	start := func(name string, config *rest.Config) *process {
		client, err := coordinationv1.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return a.start(name, client, nil, func(sh *shard.Shards[int]) {
			sh.Namespace, sh.Duration = ns, 6*time.Second
			sh.Exit = func(err error) { t.Log(err) } // a machine that stood still
		})
	}
	settled := func(processes ...*process) {
		t.Helper()
		kubetest.Eventually(t, func() error {
			for item := range items {
				owners := 0
				for _, p := range processes {
					if p.shards.Owns(item) {
						owners++
					}
				}
				if owners != 1 {
					return fmt.Errorf("%d has %d owners, want one", item, owners)
				}
			}
			for _, p := range processes {
				if got := len(p.shards.Members()); got != len(processes) {
					return fmt.Errorf("%s knows of %d members, want %d", p.name, got, len(processes))
				}
			}
			return nil
		})
	}
	p, q := start("p", s.Admin()), start("q", s.Admin())
	eve := start("eve", s.User("eve"))
	settled(p, q)

	s.API.Pause()
	kubetest.Eventually(t, func() error {
		if p.shards.Owns(1) || q.shards.Owns(1) {
			return errors.New("an item is owned, though no Lease can be renewed")
		}
		return nil
	})
	s.API.Resume()
	settled(p, q)

	r := start("r", s.Admin())
	s.API.Kill()
	if err := s.API.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled(p, q, r)
	r.stop()
	settled(p, q)
	for item := range items {
		if eve.shards.Owns(item) {
			t.Fatalf("eve owns %d, and may not even have a Lease", item)
		}
	}
}
