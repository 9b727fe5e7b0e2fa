// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
	"github.com/reconkernel/reconcile/example/controller"
	"github.com/reconkernel/reconcile/reconciletest"
	"github.com/reconkernel/reconcile/supervise"
)

type env = reconciletest.Env[cloud.ID]

// A world is a cloud, and what is desired in it. It survives the controller.
type world struct {
	fake    *cloud.Fake
	desired map[cloud.ID]cloud.Spec
	queue   *reconcile.Queue[cloud.ID] // of the process that runs
	wrong   error                      // an invariant that was violated
}

// TestExplore lets each call of the controller fail, be lost, take long or be the last
// one of a process that is killed, and then several of them.
func TestExplore(t *testing.T) {
	reconciletest.Explore(t, reconciletest.Scenario[cloud.ID, *world]{
		World:     func() *world { return &world{fake: &cloud.Fake{Seed: 1, PageSize: 2, Build: 700 * time.Millisecond}} },
		Start:     func(k *env, w *world) { w.start(k) },
		Steps:     func(s *reconciletest.Environment[cloud.ID], w *world) { w.play(s) },
		State:     (*world).state,
		Invariant: func(w *world) error { return w.wrong },
		Final:     (*world).final,
		Within:    5 * time.Minute,
		Plans:     100, // all single faults, which are more
	})
}

// start does what the program does, without its jitter.
func (w *world) start(k *env) {
	w.queue = k.Queue
	c := &controller.Controller{
		Cloud: explored{k, w}, Patience: time.Second,
	}
	set := c.Set(k.Queue)
	set.Period, set.Resync, set.MaxDeleted, set.DeleteAfter = time.Minute, 4*time.Minute, 0.9, -1
	set.Desired = func(context.Context) (map[cloud.ID]cloud.Spec, error) { return w.desired, nil }
	set.Lookup = func(_ context.Context, id cloud.ID, _ cloud.Spec) (cloud.Spec, bool, error) {
		spec, ok := w.desired[id]
		return spec, ok, nil
	}
	k.Start(&reconcile.Reconciler[cloud.ID]{
		Reconcile: set.Reconcile,
		OnResult:  c.OnResult,
		Workers:   2,
		Timeout:   15 * time.Second,
		Retry:     func(_ error, n int) (time.Duration, bool) { return 200 * time.Millisecond << min(n-1, 5), n <= 8 },
	})
	k.Go(set)
	again := func(error, int) (time.Duration, bool) { return time.Second, true }
	k.Go(supervise.Restart(again, reconcile.Feed(set.Queue, c.Events(set.Trigger))))
}

func (w *world) play(s *reconciletest.Environment[cloud.ID]) {
	k, red, blue, green := cloud.ID{Kind: cloud.Key, Name: "k"}, bucket("red"), bucket("blue"), bucket("green")
	small, ctx := cloud.Spec{Region: "us-east", Size: "small"}, context.Background()
	w.want(map[cloud.ID]cloud.Spec{k: {Region: "us-east"}, red: {Region: "us-east", Key: "k"}, blue: small})
	s.Advance(30 * time.Second)
	s.Note("another client deletes the one bucket, and changes the other, if they exist")
	_ = w.fake.Delete(ctx, red)
	if a, err := w.fake.Get(ctx, blue); err == nil {
		a.Size = "large"
		_ = w.fake.Update(ctx, blue, a.Spec, a.Version)
	}
	s.Advance(30 * time.Second)
	s.Note("something else is desired")
	medium := small
	medium.Size = "medium"
	w.want(map[cloud.ID]cloud.Spec{blue: medium, green: medium})
}

// want changes the desired state, and enqueues what has changed.
func (w *world) want(desired map[cloud.ID]cloud.Spec) {
	old := w.desired
	w.desired = desired
	if w.queue == nil {
		return // no process runs yet
	}
	for _, all := range []map[cloud.ID]cloud.Spec{old, desired} {
		for _, id := range slices.SortedFunc(maps.Keys(all), byName) {
			w.queue.Enqueue(id)
		}
	}
}

func (w *world) assets() []cloud.Asset {
	all, _ := w.fake.List(context.Background()) // it never fails
	return all
}

func (w *world) state() string {
	var b strings.Builder
	for _, a := range w.assets() {
		fmt.Fprintln(&b, a.ID, a.Spec, a.State)
	}
	return b.String()
}

// final returns an error if the assets are not as desired.
func (w *world) final() error {
	all := w.assets()
	for _, a := range all {
		if spec, ok := w.desired[a.ID]; !ok || spec != a.Spec || a.State != cloud.Ready {
			return fmt.Errorf("%s is %s and %+v; desired is %+v, %t", a.ID, a.State, a.Spec, spec, ok)
		}
	}
	if len(all) != len(w.desired) {
		return fmt.Errorf("there are %d assets, want %d", len(all), len(w.desired))
	}
	return nil
}

// An explored is the cloud of a world, called by a process that may be killed.
type explored struct {
	k *env
	w *world
}

func (e explored) Get(ctx context.Context, id cloud.ID) (cloud.Asset, error) {
	return reconciletest.Read(ctx, e.k, "get "+id.String(), func() (cloud.Asset, error) { return e.w.fake.Get(ctx, id) })
}

func (e explored) Page(ctx context.Context, after cloud.ID) (page []cloud.Asset, more bool, err error) {
	type answer struct {
		page []cloud.Asset
		more bool
	}
	a, err := reconciletest.Read(ctx, e.k, "list", func() (a answer, err error) {
		a.page, a.more, err = e.w.fake.Page(ctx, after)
		return a, err
	})
	return a.page, a.more, err
}

func (e explored) Create(ctx context.Context, id cloud.ID, spec cloud.Spec) (a cloud.Asset, err error) {
	err = e.k.Do(ctx, "create "+id.String(), func() (err error) { a, err = e.w.fake.Create(ctx, id, spec); return err })
	return a, err
}

func (e explored) Update(ctx context.Context, id cloud.ID, spec cloud.Spec, version int64) error {
	return e.k.Do(ctx, "update "+id.String(), func() error { return e.w.fake.Update(ctx, id, spec, version) })
}

// Delete notes a deletion of what is in sync.
func (e explored) Delete(ctx context.Context, id cloud.ID) error {
	return e.k.Do(ctx, "delete "+id.String(), func() error {
		for _, a := range e.w.assets() {
			if spec, ok := e.w.desired[id]; ok && a.ID == id && a.State == cloud.Ready && a.Spec == spec {
				e.w.wrong = errors.New("deletes " + id.String() + ", which is in sync")
			}
		}
		return e.w.fake.Delete(ctx, id)
	})
}

func (e explored) Events(ctx context.Context) iter.Seq2[cloud.Event, error] {
	return func(yield func(cloud.Event, error) bool) {
		if err := e.k.Do(ctx, "events", func() error { return nil }); err != nil {
			yield(cloud.Event{}, err)
			return
		}
		e.w.fake.Events(ctx)(yield)
	}
}

func bucket(name string) cloud.ID { return cloud.ID{Kind: cloud.Bucket, Name: name} }

func byName(a, b cloud.ID) int { return strings.Compare(a.String(), b.String()) }
