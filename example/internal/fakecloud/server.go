// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakecloud serves the cloud that package cloud speaks to, with the
// habits of a real one: it is slow, creates in the background, limits the rate,
// fails now and then, refuses some requests for good, cuts its event streams,
// and lets other hands change what is there. It keeps all in memory.
//
// It is scenery. Look at the program in the folder above for what to copy.
package fakecloud

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// Config says how a cloud behaves. The zero value is a cloud that is quick and
// never fails.
type Config struct {
	Latency time.Duration // of an answer, on average
	Build   time.Duration // of a creation in the background, on average
	Faults  float64       // part of the requests that fail with 500, half of them after the work
	Rate    float64       // requests a second, and so many at once; 429 to what is more. 0 means any number
	Chaos   time.Duration // on average from one change by another hand to the next; 0 means none
	Seed    uint64        // of all that is random; 0 means another one each time
}

// somebody is the tenant that has some names from the beginning: see [New].
const somebody = "someone-else"

// Regions lists the regions that there are.
func Regions() []string { return []string{"ap-south", "eu-north", "eu-west", "us-east", "us-west"} }

// A record is all that the cloud knows about an asset.
type record struct {
	cloud.Asset
	tenant string
}

// A Server is a cloud. Make it with [New].
type Server struct {
	Config Config // not to be changed while Run goes on, nor is its Seed ever

	random *rand.Rand

	mu        sync.Mutex // guards the fields below
	records   map[cloud.ID]*record
	last      int64                       // version or operation that was given out
	listeners map[chan cloud.Event]string // of events, and their tenants
	missing   float64                     // requests that are missing to a whole second of Rate
	counted   time.Time                   // when that was so
}

// New returns a cloud in which some names belong to another tenant.
func New(config Config) *Server {
	s := &Server{
		Config:    config,
		random:    rand.New(&source{pcg: rand.NewPCG(cmp.Or(config.Seed, rand.Uint64()), 0)}),
		records:   map[cloud.ID]*record{},
		listeners: map[chan cloud.Event]string{},
	}
	for _, id := range []cloud.ID{{Kind: cloud.Bucket, Name: "backup"}, {Kind: cloud.Bucket, Name: "test"}, {Kind: cloud.Key, Name: "master"}} {
		a := cloud.Asset{ID: id, Spec: cloud.Spec{Region: "us-east"}, State: cloud.Ready}
		s.records[id] = &record{Asset: a, tenant: somebody}
	}
	return s
}

// Run serves on l until ctx is done. Streams and requests that go on then are
// cut. It can be called again: what is there stays.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	var running sync.WaitGroup
	if s.Config.Chaos > 0 {
		running.Go(func() { s.chaos(ctx) })
	}
	running.Go(func() {
		<-ctx.Done()
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
	return err
}

// Start runs the cloud at a TCP address until stop is called.
func (s *Server) Start(address string) (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, l) }()
	return "http://" + l.Addr().String(), func() error {
		cancel()
		return <-ended
	}, nil
}

// Assets returns what a tenant has, by kind and name.
func (s *Server) Assets(tenant string) []cloud.Asset {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []cloud.Asset
	for _, r := range s.records {
		if r.tenant == tenant {
			all = append(all, r.Asset)
		}
	}
	slices.SortFunc(all, func(a, b cloud.Asset) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return all
}

// built ends the creation of an asset, unless another one is there meanwhile.
func (s *Server) built(id cloud.ID, operation string, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	switch {
	case r == nil || r.Operation != operation:
	case failed:
		r.State, r.Reason = cloud.Failed, "no capacity left in "+r.Region
		s.changedLocked(r, "failed")
	default:
		r.State = cloud.Ready
		s.changedLocked(r, "ready")
	}
}

// chaos is the other hand: it deletes and alters what is ready.
func (s *Server) chaos(ctx context.Context) {
	for sleep(ctx, s.about(s.Config.Chaos)) {
		s.mu.Lock()
		for _, r := range s.records { // in no order
			if r.State != cloud.Ready || r.tenant == somebody {
				continue
			}
			if s.chance(0.4) {
				s.removeLocked(r)
			} else {
				s.alterLocked(r)
			}
			break
		}
		s.mu.Unlock()
	}
}

func (s *Server) alterLocked(r *record) {
	labels := map[string]string{"touched-by": "another hand"}
	maps.Copy(labels, r.Labels)
	r.Labels = labels
	if r.ID.Kind == cloud.Bucket {
		r.Size = []string{"small", "medium", "large"}[s.random.IntN(3)]
	}
	s.changedLocked(r, "changed")
}

// changedLocked gives a record a new version, and tells of it.
func (s *Server) changedLocked(r *record, what string) {
	s.last++
	r.Version = s.last
	s.publishLocked(r.tenant, cloud.Event{Asset: r.ID, What: what})
}

func (s *Server) removeLocked(r *record) {
	delete(s.records, r.ID)
	s.publishLocked(r.tenant, cloud.Event{Asset: r.ID, What: "deleted"})
}

// A source is a source of randomness for many goroutines.
type source struct {
	mu  sync.Mutex // guards pcg
	pcg *rand.PCG
}

// Uint64 implements [rand.Source].
func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pcg.Uint64()
}

// chance is true for that part of all calls.
func (s *Server) chance(part float64) bool { return s.random.Float64() < part }

// about gives half of d to one and a half.
func (s *Server) about(d time.Duration) time.Duration {
	return d/2 + time.Duration(s.random.Int64N(int64(d)+1))
}

// sleep reports whether ctx was not done by the end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
