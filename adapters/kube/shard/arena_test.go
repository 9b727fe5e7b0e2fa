// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	typedv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/kubetest"
	"github.com/reconkernel/reconcile/adapters/kube/internal/leasetest"
	"github.com/reconkernel/reconcile/adapters/kube/shard"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

var (
	quiet     = slog.New(slog.NewTextHandler(io.Discard, nil))
	errBroken = errors.New("broken")
)

const items = 200

// An arena is where the processes of a test run items. It fails the test if an
// item is in two runs at once.
type arena struct {
	t     *testing.T
	store leasetest.Store
	begin time.Time

	mu   sync.Mutex // guards what follows
	runs map[int]string
	last map[int]string // who had the last run
	n    int
}

func newArena(t *testing.T) *arena {
	return &arena{t: t, begin: time.Now(), runs: make(map[int]string), last: make(map[int]string)}
}

func (a *arena) enter(who string, item int) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other := a.runs[item]; other != "" {
		a.t.Errorf("at %v %s runs %d, and %s still does", time.Since(a.begin), who, item, other)
	}
	a.runs[item], a.last[item] = who, who
	a.n++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.runs, item)
	}
}

// forget forgets who had the last runs.
func (a *arena) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.last)
	a.n = 0
}

// A process takes part with a set of its own, a queue, and workers.
type process struct {
	name   string
	shards *shard.Shards[int]
	queue  *reconcile.Queue[int]
	stop   func() // and waits
}

// start starts a process that reconciles with f.
func (a *arena) start(name string, client typedv1.LeasesGetter, f func(ctx context.Context, item int) error, set ...func(*shard.Shards[int])) *process {
	p := &process{name: name, queue: reconcile.NewQueue[int]()}
	p.shards = &shard.Shards[int]{
		Client: client, Namespace: "default", Name: "set", Identity: name, Logger: quiet,
		Exit: func(err error) { a.t.Errorf("at %v %s: %v", time.Since(a.begin), name, err) },
	}
	for _, set := range set {
		set(p.shards)
	}
	every := func(context.Context) ([]int, error) {
		list := make([]int, items)
		for i := range list {
			list[i] = i
		}
		return list, nil
	}
	var g reconcile.Group
	g.Logger = quiet
	g.Add("shards", p.shards)
	g.Add("gained", reconcile.Feed(p.queue, p.shards.Gained(every)))
	g.Add("workers", &reconcile.Reconciler[int]{
		Queue: p.shards.Queue(p.queue), Logger: quiet, Workers: 4,
		Reconcile: func(ctx context.Context, item int) error {
			defer a.enter(name, item)()
			if f == nil {
				return nil
			}
			return f(ctx, item)
		},
	})
	ctx, cancel := context.WithCancel(a.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Run(ctx); err != nil {
			a.t.Errorf("%s: %v", name, err)
		}
	})
	p.stop = func() {
		cancel()
		wg.Wait()
	}
	return p
}

// ran returns how many items had a run, and how many runs there were.
func (a *arena) ran() (different, all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.last), a.n
}

// shared checks that each item has one owner, and had its last run there.
func (a *arena) shared(processes ...*process) {
	a.t.Helper()
	owned := make(map[string]int)
	for item := range items {
		var owners []string
		for _, p := range processes {
			if p.shards.Owns(item) {
				owners = append(owners, p.name)
				owned[p.name]++
			}
		}
		if len(owners) != 1 {
			a.t.Errorf("at %v the owners of %d are %q, want one", time.Since(a.begin), item, owners)
			return
		}
		a.mu.Lock()
		last := a.last[item]
		a.mu.Unlock()
		if last != "" && last != owners[0] {
			a.t.Errorf("at %v the last run of %d was by %s, want %s, its owner", time.Since(a.begin), item, last, owners[0])
		}
	}
	for _, p := range processes {
		if fair := items / len(processes); owned[p.name] < fair/2 || owned[p.name] > fair*2 {
			a.t.Errorf("%s owns %d of %d items, want about %d", p.name, owned[p.name], items, fair)
		}
	}
}

func (a *arena) client() *leasetest.Client { return &leasetest.Client{Store: &a.store} }
