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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/leasetest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
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
	t       *testing.T
	store   leasetest.LeaseStore
	begin   time.Time
	workers int // of each process

	mu   sync.Mutex // guards what follows
	runs map[int]string
	last map[int]string // who had the last run
	n    int
	gone map[int]bool // items whose objects are not there any more
}

func newArena(t *testing.T) *arena {
	return &arena{t: t, begin: time.Now(), workers: 4, runs: make(map[int]string), last: make(map[int]string)}
}

// bubble runs f in a bubble, with an arena.
func bubble(t *testing.T, f func(t *testing.T, a *arena)) {
	synctest.Test(t, func(t *testing.T) { f(t, newArena(t)) })
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
	stop   func() // and waits; the end of the test does as well
}

// take returns a part in the set.
func (a *arena) take(name string, client typedv1.LeasesGetter, set ...func(*shard.Shards[int])) *shard.Shards[int] {
	s := &shard.Shards[int]{
		Client: client, Namespace: "default", Name: "set", Identity: name,
		Exit: func(err error) { a.t.Errorf("at %v %s: %v", time.Since(a.begin), name, err) },
	}
	for _, set := range set {
		set(s)
	}
	return s
}

// start starts a process that reconciles with f.
func (a *arena) start(name string, client typedv1.LeasesGetter, f func(ctx context.Context, item int) error, set ...func(*shard.Shards[int])) *process {
	p := &process{name: name, queue: reconcile.NewQueue[int](), shards: a.take(name, client, set...)}
	every := func(context.Context) (list []int, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for item := range items {
			if !a.gone[item] {
				list = append(list, item)
			}
		}
		return list, nil
	}
	var g reconcile.Group
	g.Logger = quiet
	g.Add("shards", p.shards)
	g.Add("gained", reconcile.Feed(p.queue, p.shards.Gained(every)))
	g.Add("workers", &reconcile.Reconciler[int]{
		Queue: p.shards.Queue(p.queue), Logger: quiet, Workers: a.workers,
		Reconcile: func(ctx context.Context, item int) error {
			defer a.enter(name, item)()
			if f == nil {
				return nil
			}
			return f(ctx, item)
		},
	})
	p.stop = kubetest.Run(a.t, &g)
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
		// Names are drawn at random: of four, one has less than half of its share once in
		// a hundred thousand times, and less than a quarter never.
		if fair := items / len(processes); owned[p.name] < fair/4 || owned[p.name] > fair*3 {
			a.t.Errorf("%s owns %d of %d items, want about %d", p.name, owned[p.name], items, fair)
		}
	}
}

// idle checks that a process owns nothing.
func (a *arena) idle(p *process, why string) {
	a.t.Helper()
	for item := range items {
		if p.shards.Owns(item) {
			a.t.Fatalf("at %v %s owns %d, %s", time.Since(a.begin), p.name, item, why)
		}
	}
}

// apart checks again and again, for a while, that no item has two owners: of a
// tenth of all items, which are spread over the slots like all of them.
func (a *arena) apart(while, step time.Duration, processes ...*process) {
	a.t.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); {
		time.Sleep(step)
		for item := range items / 10 {
			owner := ""
			for _, p := range processes {
				if !p.shards.Owns(item) {
					continue
				}
				if owner != "" {
					a.t.Fatalf("at %v %s and %s own %d", time.Since(a.begin), owner, p.name, item)
				}
				owner = p.name
			}
		}
	}
}

// number returns that of the list of members.
func (a *arena) number() int32 {
	a.t.Helper()
	lease, err := a.client().Leases("default").Get(a.t.Context(), "set", metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return *lease.Spec.LeaseTransitions
}

func (a *arena) client() *leasetest.LeaseClient { return &leasetest.LeaseClient{Store: &a.store} }

// broken returns a client whose requests fail while broken is set.
func (a *arena) broken(broken *atomic.Bool) *leasetest.LeaseClient {
	client := a.client()
	client.Before = func(context.Context, string) error {
		if broken.Load() {
			return errBroken
		}
		return nil
	}
	return client
}
