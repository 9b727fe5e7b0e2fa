// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package warmpool has a controller that does what the IPv4 provider of
// amazon-vpc-resource-controller-k8s does with its jobs: the network interface of each
// node has as many addresses as its pods use, and some to spare. Its tests explore both.
package warmpool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Cloud has the secondary addresses of each node.
type Cloud interface {
	List(ctx context.Context, node string) ([]string, error)
	Assign(ctx context.Context, node string, n int) ([]string, error)
	Unassign(ctx context.Context, node string, ips []string) error
}

var (
	ErrEmpty = errors.New("no address to spare yet")
	ErrFull  = errors.New("the node has no more addresses")
)

// A Pool keeps the addresses of nodes. The fields above the blank line are required.
type Pool struct {
	Cloud    Cloud
	Queue    *reconcile.Queue[string] // of nodes
	Target   func() (spare, least int)
	Capacity int           // of a node
	Cool     time.Duration // before an address that a pod gave back is another's

	mu    sync.Mutex
	nodes map[string]*addresses // guarded by mu
}

// The addresses of a node, as the last run left them.
type addresses struct {
	all     []string
	used    map[string]string    // by pod
	cooling map[string]time.Time // until when
}

func (a *addresses) free(now time.Time) []string {
	taken := slices.Collect(maps.Values(a.used))
	return slices.DeleteFunc(slices.Clone(a.all), func(ip string) bool {
		return now.Before(a.cooling[ip]) || slices.Contains(taken, ip)
	})
}

// Add begins to keep a node whose pods have these addresses.
func (p *Pool) Add(node string, used map[string]string) {
	p.mu.Lock()
	if p.nodes == nil {
		p.nodes = map[string]*addresses{}
	}
	p.nodes[node] = &addresses{used: maps.Clone(used), cooling: map[string]time.Time{}}
	p.mu.Unlock()
	p.Queue.Enqueue(node)
}

// Remove forgets a node.
func (p *Pool) Remove(node string) {
	p.mu.Lock()
	delete(p.nodes, node)
	p.mu.Unlock()
	p.Queue.Remove(node)
}

// Take gives a pod an address. On an error the caller comes again.
func (p *Pool) Take(node, pod string) (ip string, err error) {
	defer p.Queue.Enqueue(node)
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.nodes[node]
	switch {
	case a == nil:
		return "", ErrEmpty
	case a.used[pod] != "":
		return a.used[pod], nil
	case len(a.used) >= p.Capacity:
		return "", ErrFull
	}
	free := a.free(time.Now())
	if len(free) == 0 {
		return "", ErrEmpty
	}
	if a.used == nil {
		a.used = map[string]string{}
	}
	a.used[pod] = free[0]
	return free[0], nil
}

// Give takes the address of a pod back.
func (p *Pool) Give(node, pod string) {
	p.mu.Lock()
	if a := p.nodes[node]; a != nil && a.used[pod] != "" {
		a.cooling[a.used[pod]] = time.Now().Add(p.Cool)
		delete(a.used, pod)
	}
	p.mu.Unlock()
	p.Queue.EnqueueAfter(node, p.Cool)
}

// Reconcile is for a [reconcile.Reconciler] of Queue.
func (p *Pool) Reconcile(ctx context.Context, node string) error {
	all, err := p.Cloud.List(ctx, node)
	if err != nil {
		return err
	}
	surplus, missing := p.note(node, all)
	switch {
	case missing > 0:
		made, err := p.Cloud.Assign(ctx, node, missing)
		p.note(node, append(all, made...))
		if err != nil {
			return err
		}
	case len(surplus) > 0:
		if err := p.Cloud.Unassign(ctx, node, surplus); err != nil {
			return err
		}
	}
	return reconcile.RecheckWithin(time.Hour)
}

// note notes what addresses there are, and returns those that nobody may take any more,
// or how many there have to be beside them.
func (p *Pool) note(node string, all []string) (surplus []string, missing int) {
	spare, least := p.Target()
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.nodes[node]
	if a == nil {
		return nil, 0
	}
	a.all = all
	now := time.Now()
	maps.DeleteFunc(a.cooling, func(_ string, until time.Time) bool { return !now.Before(until) })
	want := min(p.Capacity, max(least, len(a.used)+len(a.cooling)+spare))
	if free := a.free(now); len(all) > want {
		surplus = free[:min(len(free), len(all)-want)]
		a.all = slices.DeleteFunc(slices.Clone(all), func(ip string) bool { return slices.Contains(surplus, ip) })
	}
	return surplus, want - len(all)
}
