// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/reconciletest"
)

// TestExplore lets each request of the controller fail, be lost, take long or be the
// last one of a process that is killed, and then several of them.
func TestExplore(t *testing.T) {
	reconciletest.Explore(t, reconciletest.Scenario[cloud.ID, *explored]{
		World:  openExplored,
		Start:  func(k *exploreKit, e *explored) { e.start(k) },
		Play:   func(s *reconciletest.Stage[cloud.ID], e *explored) { e.play(s) },
		State:  (*explored).state,
		Check:  func(e *explored) error { return e.wrong },
		Final:  (*explored).final,
		Close:  (*explored).close,
		Within: 5 * time.Minute,
		Plans:  100, // all single faults, which are more
	})
}

type exploreKit = reconciletest.Kit[cloud.ID]

// An explored is a cloud, and what is wished for in it. It survives the controller.
type explored struct {
	server *fakecloud.Server
	api    http.Handler
	client *cloud.Client // of another hand
	there  *http.Transport
	stop   func()
	wants  assets
	board  *assetBoard // of the process that is there
	wrong  error       // what never may be
}

func openExplored() *explored {
	e := &explored{server: fakecloud.New(fakecloud.Config{Seed: 1, Build: 700 * time.Millisecond})}
	e.api = e.server.Handler()
	l := &memListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	e.there = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) }, MaxIdleConnsPerHost: 100}
	e.client = &cloud.Client{URL: "http://cloud", Tenant: "example", HTTP: &http.Client{Transport: e.there}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- e.server.Run(ctx, l) }()
	e.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}
	return e
}

func (e *explored) close() {
	e.there.CloseIdleConnections()
	synctest.Wait()
	e.stop()
}

// start is what control does, without its jitter.
func (e *explored) start(k *exploreKit) {
	board := newBoard(k.Queue)
	want(board, e.wants)
	e.board = board
	client := &cloud.Client{URL: e.client.URL, Tenant: e.client.Tenant, HTTP: &http.Client{Transport: explorer{k, e}}}
	c := &controller{cloud: client, board: board, recheck: 4 * time.Minute, patience: time.Second}
	k.Start(&reconcile.Reconciler[cloud.ID]{
		Reconcile: c.Reconcile,
		OnResult:  c.result,
		Workers:   2,
		Timeout:   15 * time.Second,
		Retry:     func(_ error, n int) (time.Duration, bool) { return 200 * time.Millisecond << min(n-1, 5), n <= 8 },
	})
	k.Go(&reconcile.Poller[cloud.ID]{Queue: k.Queue, GetItems: board.AllWanted, Period: time.Minute})
	changes := reconcile.Map(k.Queue, c.withDependants)
	existing := &reconcile.Poller[cloud.ID]{Queue: changes, GetItems: c.list, Period: time.Minute}
	k.Go(existing)
	again := func(error, int) (time.Duration, bool) { return time.Second, true }
	k.Go(reconcile.Restart(again, reconcile.Feed(changes, c.feed(existing.Trigger))))
}

func (e *explored) play(s *reconciletest.Stage[cloud.ID]) {
	red, blue := cloud.Spec{Region: "us-east", Key: "k"}, cloud.Spec{Region: "us-east", Size: "small"}
	e.want(map[cloud.ID]cloud.Spec{key("k"): {Region: "us-east"}, bucket("red"): red, bucket("blue"): blue})
	s.Advance(30 * time.Second)
	s.Note("another hand removes the one bucket, and changes the other, if they are there")
	_ = e.client.Delete(context.Background(), bucket("red"))
	if there, err := e.client.Get(context.Background(), bucket("blue")); err == nil {
		there.Size = "large"
		_ = e.client.Update(context.Background(), there.ID, there.Spec, there.Version)
	}
	s.Advance(30 * time.Second)
	s.Note("other wishes")
	blue.Size = "medium"
	e.want(map[cloud.ID]cloud.Spec{bucket("blue"): blue, bucket("green"): blue})
}

func (e *explored) want(specs map[cloud.ID]cloud.Spec) {
	e.wants = assets{specs: specs, order: slices.SortedFunc(maps.Keys(specs), func(a, b cloud.ID) int { return strings.Compare(a.String(), b.String()) })}
	want(e.board, e.wants)
}

func (e *explored) state() string {
	var b strings.Builder
	for _, a := range e.server.Assets("example") {
		fmt.Fprintln(&b, a.ID, a.Spec, a.State)
	}
	return b.String()
}

// final says what is not as it is wanted, and whether the board knows.
func (e *explored) final() error {
	there := e.server.Assets("example")
	for _, a := range there {
		if spec, ok := e.wants.specs[a.ID]; !ok || !same(spec, a.Spec) || a.State != cloud.Ready {
			return fmt.Errorf("%s is there, %s and %v; want %v, %t", a.ID, a.State, a.Spec, spec, ok)
		}
	}
	if len(there) != len(e.wants.order) {
		return fmt.Errorf("there are %d assets, want %d", len(there), len(e.wants.order))
	}
	if got := e.board.Totals(); got.InSync != len(there) {
		return fmt.Errorf("the board has %d assets in sync, want %d", got.InSync, len(there))
	}
	return nil
}

// An explorer is the way of one process to the cloud.
type explorer struct {
	kit *exploreKit
	e   *explored
}

// A response is what can be read again later.
type response struct {
	Status int
	Header string // Retry-After
	Body   []byte
}

// RoundTrip implements http.RoundTripper.
func (x explorer) RoundTrip(r *http.Request) (*http.Response, error) {
	if filepath.Base(r.URL.Path) == "events" {
		return x.e.there.RoundTrip(r)
	}
	var got response
	var err error
	if op := r.Method + " " + r.URL.Path; r.Method == http.MethodGet {
		got, err = reconciletest.Read(r.Context(), x.kit, op, func() (response, error) { return x.pass(r), nil })
	} else {
		err = x.kit.Do(r.Context(), op, func() error { got = x.pass(r); return nil })
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: got.Status, Header: http.Header{"Retry-After": {got.Header}}, Body: io.NopCloser(bytes.NewReader(got.Body)), Request: r,
	}, nil
}

// pass asks the cloud. Nobody hangs up on it half-way: that a caller is gone is a
// fault of the plan.
func (x explorer) pass(r *http.Request) response {
	if r.Method == http.MethodDelete {
		for _, a := range x.e.server.Assets("example") {
			spec, wanted := x.e.wants.specs[a.ID]
			if strings.HasSuffix(r.URL.Path, "/v1/"+a.ID.Kind+"s/"+a.ID.Name) && wanted && a.State == cloud.Ready && same(spec, a.Spec) {
				x.e.wrong = errors.New("removes " + a.ID.String() + ", which is as it is wanted")
			}
		}
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	x.e.api.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
	return response{answer.Code, answer.Header().Get("Retry-After"), answer.Body.Bytes()}
}
