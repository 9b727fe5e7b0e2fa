// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package leasetest keeps Leases in memory, for tests in a bubble of testing/synctest,
// where no server can be.
package leasetest

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// A LeaseStore keeps Leases in memory, with resource versions: for tests in a bubble
// of testing/synctest, where no server can be. The zero LeaseStore is empty.
type LeaseStore struct {
	mu      sync.Mutex // guards what follows
	version int64
	leases  map[string]*coordinationv1.Lease
	watches []*watch.RaceFreeFakeWatcher
}

// A LeaseClient is the client of a store, for one process. Before is called before each
// request reaches the Store; if it returns an error, the request does. It may sleep, and
// may be nil.
type LeaseClient struct {
	Store  *LeaseStore
	Before func(ctx context.Context) error
}

// Leases returns the client for a namespace.
func (c *LeaseClient) Leases(string) typedv1.LeaseInterface { return leases{client: c} }

type leases struct {
	typedv1.LeaseInterface // what is not here is not to be called
	client                 *LeaseClient
}

func (l leases) do(ctx context.Context, f func(*LeaseStore) error) error {
	if l.client.Before != nil {
		if err := l.client.Before(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.client.Store.mu.Lock()
	defer l.client.Store.mu.Unlock()
	return f(l.client.Store)
}

func (s *LeaseStore) putLocked(lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	lease = lease.DeepCopy()
	lease.ResourceVersion = strconv.FormatInt(s.version, 10)
	if s.leases == nil {
		s.leases = make(map[string]*coordinationv1.Lease)
	}
	s.leases[lease.Name] = lease
	s.tellLocked(watch.Modified, lease)
	return lease.DeepCopy()
}

// tellLocked has all watches have an event, whatever lease they are of.
func (s *LeaseStore) tellLocked(what watch.EventType, lease *coordinationv1.Lease) {
	for _, w := range s.watches {
		w.Action(what, lease.DeepCopy())
	}
}

func (s *LeaseStore) getLocked(name string) (*coordinationv1.Lease, error) {
	if lease := s.leases[name]; lease != nil {
		return lease.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
}

// Create makes a lease.
func (l leases) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (out *coordinationv1.Lease, err error) {
	err = l.do(ctx, func(s *LeaseStore) error {
		if s.leases[lease.Name] != nil {
			return apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), lease.Name)
		}
		out = s.putLocked(lease)
		return nil
	})
	return out, err
}

// Update writes a lease, if its resource version is the current one.
func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (out *coordinationv1.Lease, err error) {
	err = l.do(ctx, func(s *LeaseStore) error {
		now, err := s.getLocked(lease.Name)
		if err != nil {
			return err
		}
		if lease.ResourceVersion != now.ResourceVersion { // none is no way around: the server wants one
			return apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, fmt.Errorf("is at %s", now.ResourceVersion))
		}
		out = s.putLocked(lease)
		return nil
	})
	return out, err
}

// Get reads a lease.
func (l leases) Get(ctx context.Context, name string, _ metav1.GetOptions) (out *coordinationv1.Lease, err error) {
	err = l.do(ctx, func(s *LeaseStore) error {
		out, err = s.getLocked(name)
		return err
	})
	return out, err
}

// Delete removes a lease.
func (l leases) Delete(ctx context.Context, name string, _ metav1.DeleteOptions) error {
	return l.do(ctx, func(s *LeaseStore) error {
		if lease := s.leases[name]; lease != nil {
			delete(s.leases, name)
			s.tellLocked(watch.Deleted, lease)
		}
		return nil
	})
}

// Watch tells of all leases, from now on.
func (l leases) Watch(ctx context.Context, _ metav1.ListOptions) (w watch.Interface, err error) {
	err = l.do(ctx, func(s *LeaseStore) error {
		fake := watch.NewRaceFreeFake()
		w, s.watches = fake, append(s.watches, fake)
		return nil
	})
	return w, err
}
