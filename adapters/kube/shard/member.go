// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/absent"
	"github.com/reconkernel/reconcile/adapters/kube/internal/lease"
	"github.com/reconkernel/reconcile/adapters/kube/internal/rare"
)

// This file is what a member does: it renews its Lease, looks at those of the
// others, follows the list of members, and changes it if it is not right.

const (
	setLabel      = "reconcile-shard-set"     // on all Leases: the name of the set
	membersKey    = "reconcile-shard-members" // on the set's: who is a member
	followsKey    = "reconcile-shard-follows" // on a member's: the number of the list that it follows
	wakeUpsPerTry = 4                         // in a Period, while items change hands
)

var errLost = fmt.Errorf("shard: %w", reconcile.ErrLeaseLost)

// A member is one incarnation of a process in a set. Its fields are for the
// goroutine of Run alone.
type member[T comparable] struct {
	*Shards[T]
	cfg    lease.Config
	leases typedv1.LeaseInterface
	self   string                // the name of our Lease
	lease  *coordinationv1.Lease // as the server has it; nil before it is made
	seen   map[string]sighting

	joined  bool   // we were in a list
	heeds   *list  // the newest list; nil before there is one
	follows int32  // number of the list that no run of ours is against
	table   *table // what heeds gives us; nil once we have it
	odd     int    // how often in a row the list was not right
	lost    chan struct{}
	fence   *time.Timer

	failures, untidy rare.Failures // of turns, of removals
	trouble          error         // of the last turn; nil if it went well
}

// A sighting is when a Lease was last seen to be renewed.
type sighting struct {
	version string
	at      time.Time
}

// A list is who the members are. Each change has a higher number.
type list struct {
	number  int32
	members []string
	lease   *coordinationv1.Lease // nil if it is not there yet
}

// Run takes part in the set until ctx is done. It then gives up what it owns,
// waits for the runs of it, and leaves. A field that is missing or wrong is an
// error. In a Group it ends before the contexts of the Reconcilers, so these go on
// to run what it owns until it has given that up.
//
// If its Lease is lost, it takes part again as a new member. Run may be called
// again, but not twice at a time.
func (s *Shards[T]) Run(ctx context.Context) error {
	c, err := s.config(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	running := s.running
	s.running = true
	s.mu.Unlock()
	if running {
		return errors.New("shard: Run is running already; a process that takes part twice needs two Shards")
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running, s.members = false, nil
	}()
	for ctx.Err() == nil {
		m := &member[T]{
			Shards: s,
			cfg:    c,
			leases: s.Client.Leases(c.Namespace),
			self:   s.Name + "-" + incarnation(c.Identity),
			seen:   make(map[string]sighting),
			lost:   make(chan struct{}),
		}
		if err := m.run(ctx); err != nil {
			c.Logger.Error("no longer a member; joins again", "set", s.Name, "member", m.self, "err", err)
		}
	}
	return nil
}

// run takes part until ctx is done, and returns nil, or until the Lease is lost.
func (m *member[T]) run(ctx context.Context) error {
	m.mu.Lock()
	m.fenced, m.renewed = false, time.Time{}
	m.mu.Unlock()
	m.fence = time.AfterFunc(m.cfg.Duration, m.check)
	m.fence.Stop()
	defer m.fence.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-m.lost:
			if m.trouble != nil {
				return fmt.Errorf("%w: %s was not renewed for %v: %w", errLost, m.self, m.cfg.Deadline, m.trouble)
			}
			return errLost
		case <-next.C:
		case <-m.landing():
		}
		again, err := m.turn(ctx)
		err = lease.Explain(err)
		m.trouble = err
		switch {
		case errors.Is(err, reconcile.ErrLeaseLost):
			m.lose()
			return err
		case err != nil && ctx.Err() == nil:
			if count, log := m.failures.Add(err); log {
				m.cfg.Logger.Warn("shards: no contact with the API server", "set", m.Name, "failures", count, "err", err)
			}
			next.Reset(m.cfg.Period)
		case again:
			next.Reset(0)
		case m.table != nil:
			next.Reset(m.cfg.Period / wakeUpsPerTry)
		default:
			next.Reset(m.cfg.Period)
		}
	}
	return m.leave()
}

// turn is one look at everything. It reports whether to look again at once.
func (m *member[T]) turn(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Deadline)
	defer cancel()
	if err := m.renew(ctx, m.self); err != nil {
		return false, err
	}
	// All that is decided is decided on one list of the server: it has the
	// members and what they follow as they were at one moment.
	asked := time.Now()
	found, err := m.leases.List(ctx, metav1.ListOptions{LabelSelector: setLabel + "=" + m.Name})
	if err != nil {
		return false, err
	}
	l := m.listOf(found)
	if m.joined && !slices.Contains(l.members, m.self) {
		return false, fmt.Errorf("%w: it is no longer in the list", errLost)
	}
	live := m.live(found, l, asked)
	if !slices.Contains(live, m.self) {
		return false, fmt.Errorf("%w: another client has deleted it", errLost)
	}

	if !slices.Equal(live, l.members) {
		m.odd++
		if slices.Index(live, m.self) < m.odd { // the first one writes it, if it can
			m.odd = 0
			return true, m.write(ctx, l, live)
		}
	} else {
		m.odd = 0
		if live[0] == m.self {
			m.tidy(ctx, found, l)
		}
	}
	if m.heeds == nil || l.number != m.heeds.number {
		m.heed(l)
	}
	if m.table == nil {
		return false, nil
	}
	if m.follows != m.heeds.number && m.landing() == nil {
		m.follows = m.heeds.number
		return true, nil // to write it down
	}
	if m.odd > 0 {
		return false, nil // who is alive and not in the list has not agreed to it
	}
	for _, name := range l.members {
		if !slices.ContainsFunc(found.Items, func(lease coordinationv1.Lease) bool {
			return lease.Name == name && lease.Annotations[followsKey] == fmt.Sprint(l.number)
		}) {
			return false, nil
		}
	}
	m.gain()
	return false, nil
}

// renew writes our Lease, with holder as who holds it.
func (m *member[T]) renew(ctx context.Context, holder string) error {
	begin := time.Now()
	seconds := int32(m.cfg.Duration / time.Second)
	lease, err := m.put(ctx, m.lease, m.self, followsKey, fmt.Sprint(m.follows), coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
	})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		// The answer to an earlier try was lost: the next one will do.
		if lease, err = m.leases.Get(ctx, m.self, metav1.GetOptions{}); err == nil {
			m.lease = lease
			return errors.New("shard: the Lease was written, and no answer came")
		}
	}
	if m.lease != nil && absent.Object(err) {
		return fmt.Errorf("%w: another client has deleted it", errLost)
	}
	if err != nil {
		return err
	}
	m.lease = lease
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fenced {
		return errLost
	}
	m.renewed = begin
	m.fence.Reset(time.Until(begin.Add(m.cfg.Deadline)))
	return nil
}

// listOf finds the list of members.
func (m *member[T]) listOf(found *coordinationv1.LeaseList) *list {
	for i := range found.Items {
		if lease := &found.Items[i]; lease.Name == m.Name {
			l := &list{lease: lease, members: strings.Fields(lease.Annotations[membersKey])}
			if lease.Spec.LeaseTransitions != nil {
				l.number = *lease.Spec.LeaseTransitions
			}
			return l
		}
	}
	return new(list)
}

// live returns who was alive, in order, when the Leases were asked for: how long
// the answer took says nothing about who renewed what meanwhile. A Lease that was
// given up says that its member is not; one that is gone says nothing.
func (m *member[T]) live(found *coordinationv1.LeaseList, l *list, asked time.Time) []string {
	now := time.Now()
	seen := make(map[string]sighting)
	var live []string
	look := func(name, version string, duration time.Duration) {
		s, known := m.seen[name]
		if !known || version != "" && s.version != version {
			s = sighting{version, now}
		}
		seen[name] = s
		if asked.Sub(s.at) < duration {
			live = append(live, name)
		}
	}
	given := make(map[string]bool)
	for i := range found.Items {
		lease := &found.Items[i]
		switch {
		case lease.Name == m.Name:
		case !held(lease):
			given[lease.Name] = true
		default:
			duration := m.cfg.Duration
			if s := lease.Spec.LeaseDurationSeconds; s != nil {
				duration = time.Duration(*s) * time.Second
			}
			look(lease.Name, lease.ResourceVersion, duration)
		}
	}
	for _, name := range l.members {
		if _, looked := seen[name]; !looked && !given[name] {
			look(name, "", m.cfg.Duration)
		}
	}
	m.seen = seen
	slices.Sort(live)
	return live
}

func held(lease *coordinationv1.Lease) bool {
	holder := lease.Spec.HolderIdentity
	return holder != nil && *holder != ""
}

// write makes members the list, unless somebody else has changed it.
func (m *member[T]) write(ctx context.Context, l *list, members []string) error {
	number := l.number + 1
	_, err := m.put(ctx, l.lease, m.Name, membersKey, strings.Join(members, " "), coordinationv1.LeaseSpec{
		HolderIdentity: &m.self, LeaseTransitions: &number,
	})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// put writes a Lease of the set, with one annotation, in place of the one that was
// there; old is nil if there was none.
func (m *member[T]) put(ctx context.Context, old *coordinationv1.Lease, name, key, text string, spec coordinationv1.LeaseSpec) (*coordinationv1.Lease, error) {
	now := metav1.NowMicro()
	spec.RenewTime = &now
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: m.cfg.Namespace}}
	if old != nil {
		lease = old.DeepCopy()
	}
	lease.Labels, lease.Annotations, lease.Spec = map[string]string{setLabel: m.Name}, map[string]string{key: text}, spec
	if old == nil {
		return m.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	return m.leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// tidy removes the Leases of members that are no more.
func (m *member[T]) tidy(ctx context.Context, found *coordinationv1.LeaseList, l *list) {
	for i := range found.Items {
		lease := &found.Items[i]
		if lease.Name == m.Name || slices.Contains(l.members, lease.Name) {
			continue
		}
		err := m.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &lease.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			if count, log := m.untidy.Add(err); log {
				m.cfg.Logger.Warn("Lease of a former member not removed", "lease", lease.Name, "failures", count, "err", err)
			}
		}
	}
}

// heed gives up what a new list gives to others.
func (m *member[T]) heed(l *list) {
	if !slices.Contains(l.members, m.self) {
		return
	}
	m.joined, m.heeds = true, l
	m.table = tableOf(m.self, l.members)
	m.cfg.Logger.Info("shards: another list of members", "set", m.Name, "number", l.number, "members", len(l.members))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members = l.members
	m.keepLocked(m.table)
}
