// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/reconkernel/reconcile"
)

// This file is what a member owns: how it gets more, and gives it up.

// keepLocked gives up what is not in t. Runs of it go on for Grace.
func (s *Shards[T]) keepLocked(t *table) {
	if s.owned != nil {
		kept := *s.owned
		for slot := range kept {
			kept[slot] = kept[slot] && t[slot]
		}
		s.owned = &kept
	}
	end := s.loseLocked(func(f *flight) bool { return f.lost || s.owned != nil && s.owned[f.slot] })
	if s.Grace > 0 {
		time.AfterFunc(s.Grace, end)
	} else {
		end()
	}
}

// loseLocked marks the flights that are not kept as lost, and returns what ends
// their contexts.
func (s *Shards[T]) loseLocked(keep func(*flight) bool) (end func()) {
	var ends []context.CancelCauseFunc
	for _, f := range s.flights {
		if keep(f) {
			continue
		}
		f.lost = true
		if f.end != nil {
			ends = append(ends, f.end)
		}
	}
	return func() {
		for _, end := range ends {
			end(reconcile.ErrLeaseLost)
		}
	}
}

// gain takes what the list gives us: all members follow it.
func (m *member[T]) gain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fenced || time.Since(m.renewed) >= m.cfg.Deadline {
		return
	}
	more := false
	for slot, ours := range m.table {
		if ours && (m.owned == nil || !m.owned[slot]) {
			m.gained[slot] = m.gains + 1
			more = true
		}
	}
	m.owned, m.table = m.table, nil
	if more {
		m.gains++
		close(m.newsLocked())
		m.news = nil
	}
}

// check is called when the Lease may have been without a renewal for too long.
func (m *member[T]) check() {
	m.mu.Lock()
	left := time.Until(m.renewed.Add(m.cfg.Deadline))
	m.mu.Unlock()
	if left > 0 {
		m.fence.Reset(left)
		return
	}
	m.lose()
}

// lose gives up everything at once, because the Lease is lost. What has not ended
// when it runs out, ends the process.
func (m *member[T]) lose() {
	m.mu.Lock()
	if m.fenced {
		m.mu.Unlock()
		return
	}
	m.fenced, m.owned, m.members = true, nil, nil
	left := maps.Clone(m.flights)
	end := m.loseLocked(func(*flight) bool { return false })
	over := m.renewed.Add(m.cfg.Duration - m.cfg.Duration/15)
	close(m.lost)
	m.mu.Unlock()
	end()
	if len(left) == 0 {
		return
	}
	time.AfterFunc(time.Until(over), func() {
		m.mu.Lock()
		n := 0
		for key, f := range left {
			if m.flights[key] == f {
				n++
			}
		}
		m.mu.Unlock()
		if n > 0 {
			m.cfg.Exit(fmt.Errorf("%w, and %d runs have not returned", errLost, n))
		}
	})
}

// leave gives up everything, waits for the runs, and gives up the Lease.
func (m *member[T]) leave() error {
	m.mu.Lock()
	m.keepLocked(new(table))
	m.mu.Unlock()
	next := time.NewTimer(m.cfg.Period)
	defer next.Stop()
	renew := func(holder string, limit time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return m.renew(ctx, holder)
	}
	for landed := m.landing(); landed != nil; landed = m.landing() {
		select {
		case <-landed:
		case <-m.lost:
			return errLost
		case <-next.C:
			if err := renew(m.self, m.cfg.Deadline); err != nil {
				m.cfg.Logger.Warn("shards: Lease not renewed", "lease", m.self, "err", err)
			}
			next.Reset(m.cfg.Period)
		}
	}
	if m.lease == nil {
		return nil
	}
	// It stays, for the others to see that nobody holds it; they remove it. The
	// first try may find that the answer to an earlier request was lost.
	err := renew("", m.cfg.Deadline/2)
	if err != nil {
		err = renew("", m.cfg.Deadline/2)
	}
	if err != nil && held(m.lease) {
		m.cfg.Logger.Warn("shards: Lease not released; the other members wait until it expires", "lease", m.self, "err", err)
	}
	return nil
}

// landing returns what is closed when the next run of what we gave up has returned,
// or nil if none goes on.
func (s *Shards[T]) landing() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flights {
		if !f.lost {
			continue
		}
		if s.landed == nil {
			s.landed = make(chan struct{})
		}
		return s.landed
	}
	return nil
}
