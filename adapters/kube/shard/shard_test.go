// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/leasetest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/adapters/kube/shard"
)

// TestBadFields sees an error for each field that is missing or wrong.
func TestBadFields(t *testing.T) {
	for want, spoil := range map[string]func(*shard.Shards[string]){
		"Shards.Client is required":                                    func(s *shard.Shards[string]) { s.Client = nil },
		"Shards.Namespace: it is empty, and this process is in no pod": func(s *shard.Shards[string]) { s.Namespace = "" },
		"Shards.Name is required":                                      func(s *shard.Shards[string]) { s.Name = "" },
		`Identity "A b"`:                                               func(s *shard.Shards[string]) { s.Identity = "A b" },
		"Shards.Name \"x":                                              func(s *shard.Shards[string]) { s.Name = strings.Repeat("x", 100) },
		"Shards.Duration is 1.5s":                                      func(s *shard.Shards[string]) { s.Duration = 1500 * time.Millisecond },
		"Shards.Deadline is 15s":                                       func(s *shard.Shards[string]) { s.Deadline = 15 * time.Second },
		"Shards.Period is 10s":                                         func(s *shard.Shards[string]) { s.Period = 10 * time.Second },
		"Shards.Grace is -1s":                                          func(s *shard.Shards[string]) { s.Grace = -time.Second },
	} {
		s := &shard.Shards[string]{Client: new(leasetest.LeaseClient), Namespace: "default", Name: "set"}
		spoil(s)
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("got %v, want a terminal error with %q in it", err, want)
		}
	}
	s := new(shard.Shards[string])
	if s.Owns("x") || len(s.Members()) > 0 {
		t.Error("one that does not take part owns x")
	}
	if err := s.Gained(nil)(t.Context(), reconcile.NewQueue[string]()); err == nil {
		t.Error("Gained(nil) feeds")
	}
}

// TestRunTwice takes part twice at a time, which is an error, and again, which is
// none.
func TestRunTwice(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
		s := a.take("p", a.client())
		for range 2 {
			stop := kubetest.Run(t, s)
			time.Sleep(time.Second)
			if !s.Owns(1) {
				t.Error("the only member does not own an item after a second")
			}
			if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "running already") {
				t.Errorf("the second Run: %v, want an error", err)
			}
			stop()
			if s.Owns(1) {
				t.Error("one that has left owns an item")
			}
			if got := s.Members(); len(got) > 0 {
				t.Errorf("one that has left knows the members %q, want none", got)
			}
		}
	})
}

// TestGainedPassesErrorsOn passes on what the list has, and its error.
func TestGainedPassesErrorsOn(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
		s := a.take("p", a.client())
		kubetest.Run(t, s)
		q := reconcile.NewQueue[int]()
		err := s.Gained(func(context.Context) ([]int, error) { return []int{1, 2}, errBroken })(t.Context(), q)
		if !errors.Is(err, errBroken) || q.Len() != 2 {
			t.Errorf("%v and %d items, want %v and 2", err, q.Len(), errBroken)
		}
	})
}
