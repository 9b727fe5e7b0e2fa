// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/explore"
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
		Within: 5 * time.Minute,
		Plans:  100, // all single faults, which are more
	})
}

type exploreKit = reconciletest.Kit[cloud.ID]

// An explored is a cloud, and what is wished for in it. It survives the controller.
type explored struct {
	server *fakecloud.Server
	client *cloud.Client // of another hand
	wants  assets
	board  *assetBoard // of the process that is there
	wrong  error       // what never may be
}

func openExplored() *explored {
	e := &explored{server: fakecloud.New(fakecloud.Config{Seed: 1, Build: 700 * time.Millisecond})}
	e.client = &cloud.Client{URL: "http://cloud", Tenant: "example", HTTP: &http.Client{Transport: explore.Transport(nil, e.server.Handler())}}
	return e
}

// start is what control does, without its jitter.
func (e *explored) start(k *exploreKit) {
	board := newBoard(k.Queue)
	want(board, e.wants)
	e.board = board
	client := &cloud.Client{URL: e.client.URL, Tenant: e.client.Tenant, HTTP: &http.Client{Transport: explore.Transport(k, e.watched(e.server.Handler()))}}
	c := &controller{cloud: client, board: board, recheck: 4 * time.Minute, patience: time.Second}
	c.wish = lookUp(board, nil)
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

// watched lets the API answer, and notes what never may be asked of it.
func (e *explored) watched(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, a := range e.server.Assets("example") {
			spec, wanted := e.wants.specs[a.ID]
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/v1/"+a.ID.Kind+"s/"+a.ID.Name) && wanted && a.State == cloud.Ready && same(spec, a.Spec) {
				e.wrong = errors.New("removes " + a.ID.String() + ", which is as it is wanted")
			}
		}
		api.ServeHTTP(w, r)
	})
}
