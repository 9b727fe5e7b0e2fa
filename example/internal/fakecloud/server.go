// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakecloud serves the cloud that package cloud speaks to, with the
// habits of a real one: it is slow, creates in the background, limits the rate,
// fails now and then, refuses some requests for good, cuts its event streams,
// and lets other hands change what is there.
//
// It is scenery. Look at the program in the folder above for what to copy.
package fakecloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// Config says how a cloud behaves. Only Dir is required; the zero value of the
// rest is a cloud that is quick and never fails.
type Config struct {
	Dir     string        // the folder of its state; made if it is missing
	Latency time.Duration // of an answer, on average
	Build   time.Duration // of a creation in the background, on average
	Faults  float64       // part of the requests that fail: half with 429, half with 500
	Chaos   time.Duration // on average from one change by another hand to the next; 0 means none
	Seed    uint64        // of all that is random; 0 means another one each time
}

// Taken lists names that belong to another tenant from the beginning.
func Taken() []cloud.ID {
	return []cloud.ID{{Kind: cloud.Bucket, Name: "backup"}, {Kind: cloud.Bucket, Name: "test"}, {Kind: cloud.Key, Name: "master"}}
}

// Regions lists the regions that there are.
func Regions() []string { return []string{"ap-south", "eu-north", "eu-west", "us-east", "us-west"} }

// A record is all that the cloud knows about an asset.
type record struct {
	cloud.Asset
	Tenant string `json:"tenant"`
	Reason string `json:"reason,omitempty"` // why its creation failed
	Gone   bool   `json:"gone,omitempty"`   // in the journal: it was deleted
}

// A Server is a cloud. Make it with [Open], then call Run once, or Close.
type Server struct {
	config Config
	builds *reconcile.Queue[cloud.ID] // what is being created
	hub    hub

	mu         sync.RWMutex // guards the fields below
	journal    *journal
	records    map[cloud.ID]*record // a record is replaced, never changed
	operations map[string]cloud.ID
	last       int64 // version or operation that was given out

	randomMu sync.Mutex
	random   *rand.Rand
}

// Open reads the state of a cloud, and returns it ready to run. It fails if
// another program has the folder in use.
func Open(config Config) (*Server, error) {
	j, records, err := openJournal(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("state of the cloud: %w", err)
	}
	s := &Server{
		config:     config,
		builds:     reconcile.NewQueue[cloud.ID](),
		journal:    j,
		records:    records,
		operations: map[string]cloud.ID{},
		random:     rand.New(rand.NewPCG(cmp.Or(config.Seed, rand.Uint64()), 0)),
	}
	for id, r := range records {
		s.last = max(s.last, r.Version)
		s.operations[r.Operation] = id
		if r.State == cloud.Creating {
			s.builds.EnqueueAfter(id, s.about(config.Build))
		}
	}
	for _, id := range Taken() {
		if records[id] == nil {
			a := cloud.Asset{ID: id, Spec: cloud.Spec{Region: "us-east"}, State: cloud.Ready}
			if err := s.putLocked(&record{Asset: a, Tenant: "someone-else"}, "created"); err != nil {
				return nil, errors.Join(err, j.close())
			}
		}
	}
	return s, nil
}

// Run serves on l until ctx is done, and closes the state. Streams and requests
// that go on then are cut.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}

	var running sync.WaitGroup
	running.Go(func() { s.build(ctx) })
	if s.config.Chaos > 0 {
		running.Go(func() { s.chaos(ctx) })
	}
	running.Go(func() {
		<-ctx.Done()
		s.hub.close()
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(short) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	if ctx.Err() != nil {
		err = nil // it was shut down
	}
	cancel()
	running.Wait()
	return errors.Join(err, s.Close())
}

// Close closes the state of a server that does not run, and unlocks it.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.close()
}

// Assets returns what a tenant has, in the order of the last changes.
func (s *Server) Assets(tenant string) []cloud.Asset {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []cloud.Asset
	for _, r := range s.records {
		if r.Tenant == tenant {
			all = append(all, r.Asset)
		}
	}
	slices.SortFunc(all, func(a, b cloud.Asset) int { return cmp.Compare(a.Version, b.Version) })
	return all
}

// build finishes creations when their time has come.
func (s *Server) build(ctx context.Context) {
	for {
		id, err := s.builds.Dequeue(ctx)
		if err != nil {
			return
		}
		err = s.change(id, func(r *record) string {
			switch {
			case r.State != cloud.Creating:
				return ""
			case s.chance(s.config.Faults):
				r.State, r.Reason = cloud.Failed, "no capacity left in "+r.Region
				return "failed"
			}
			r.State = cloud.Ready
			return "ready"
		})
		if err != nil {
			s.builds.RequeueAfter(id, time.Second)
		} else {
			s.builds.Done(id)
		}
	}
}

// chaos is the other hand: it deletes and alters what is ready. If the disk is
// full it fails, as another hand might.
func (s *Server) chaos(ctx context.Context) {
	for sleep(ctx, s.about(s.config.Chaos)) {
		id, ok := s.pick()
		switch {
		case !ok:
		case s.chance(0.4):
			_ = s.remove(id)
		default:
			_ = s.change(id, s.alter)
		}
	}
}

func (s *Server) alter(r *record) string {
	labels := map[string]string{"touched-by": "another hand"}
	maps.Copy(labels, r.Labels)
	r.Labels = labels
	if r.ID.Kind == cloud.Bucket {
		r.Size = []string{"small", "medium", "large"}[s.below(3)]
	}
	return "changed"
}

// pick chooses an asset of any tenant but the other one, at random.
func (s *Server) pick() (cloud.ID, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.records) == 0 {
		return cloud.ID{}, false
	}
	skip := s.below(len(s.records))
	for id, r := range s.records { // in no order, and from the middle
		if skip--; skip < 0 && r.State == cloud.Ready && r.Tenant != "someone-else" {
			return id, true
		}
	}
	return cloud.ID{}, false
}

// change lets edit change a copy of a record and say what it did to it; "" means
// that it did nothing. After an error nothing has changed.
func (s *Server) change(id cloud.ID, edit func(*record) string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	if r == nil {
		return nil
	}
	changed := *r
	if what := edit(&changed); what != "" {
		return s.putLocked(&changed, what)
	}
	return nil
}

func (s *Server) remove(id cloud.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[id]; r != nil {
		return s.removeLocked(r)
	}
	return nil
}

// putLocked stores a new or changed record under a new version. The journal has
// it first: what was answered is never lost.
func (s *Server) putLocked(r *record, what string) error {
	r.Version = s.last + 1
	if err := s.journal.write(r, s.records); err != nil {
		return err
	}
	s.last++
	s.records[r.ID] = r
	if r.Operation != "" {
		s.operations[r.Operation] = r.ID
	}
	if what != "creating" { // who asked for it knows
		s.hub.publish(r.Tenant, cloud.Event{Asset: r.ID, What: what})
	}
	return nil
}

func (s *Server) removeLocked(r *record) error {
	if err := s.journal.write(&record{Asset: cloud.Asset{ID: r.ID}, Gone: true}, s.records); err != nil {
		return err
	}
	delete(s.records, r.ID)
	delete(s.operations, r.Operation)
	s.hub.publish(r.Tenant, cloud.Event{Asset: r.ID, What: "deleted"})
	return nil
}

// chance is true for that part of all calls.
func (s *Server) chance(part float64) bool {
	s.randomMu.Lock()
	defer s.randomMu.Unlock()
	return s.random.Float64() < part
}

func (s *Server) below(n int) int {
	s.randomMu.Lock()
	defer s.randomMu.Unlock()
	return s.random.IntN(n)
}

// about gives half of d to one and a half.
func (s *Server) about(d time.Duration) time.Duration {
	s.randomMu.Lock()
	defer s.randomMu.Unlock()
	return d/2 + time.Duration(s.random.Int64N(int64(d)+1))
}

// sleep reports whether ctx was not done by the end.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
