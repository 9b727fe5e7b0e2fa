// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/bucket"
)

var (
	errInSync  = fmt.Errorf("%w: %w", bucket.InSync, reconcile.RecheckWithin(time.Hour))
	errKept    = fmt.Errorf("%w: %w", bucket.Kept, reconcile.RecheckWithin(time.Hour))
	errNotOurs = fmt.Errorf("%w: %w", bucket.NotOurs, reconcile.RecheckWithin(time.Hour))
	errBusy    = fmt.Errorf("%w: %w", bucket.Busy, reconcile.RequeueAfter(time.Minute))
	errNever   = errors.New("never")
	errRefused = reconcile.Terminal(errNever)
)

// A bench is a loop whose runs end as a test says.
type bench struct {
	*progress
	ends map[string]chan error // by bucket
	done bool
}

func event(name string) func(*bench) { return func(b *bench) { b.queue.Enqueue(name) } }

func listed(names ...string) func(*bench) { return func(b *bench) { b.list(names, nil) } }

func unlisted(b *bench) { b.list(nil, errNever) }

// ran lets a run end so; it waits for one if there is none.
func ran(name string, err error) func(*bench) { return func(b *bench) { b.ends[name] <- err } }

// onBench calls play in a bubble. A failure is tried again once.
func onBench(t *testing.T, play func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{progress: newProgress(reconcile.NewQueue[string](), &bucket.Wishes{}), ends: map[string]chan error{}}
		for _, name := range []string{"a", "b", "c", "d", "j", "k"} {
			b.ends[name] = make(chan error)
		}
		r := reconcile.Reconciler[string]{
			Queue: b.queue, Workers: len(b.ends), Retry: reconcile.Backoff(time.Second, 0).Limit(1), OnResult: b.result,
			Reconcile: func(ctx context.Context, name string) error {
				select {
				case err := <-b.ends[name]:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { b.done = b.wait(ctx) == nil })
		play(t, b)
		cancel()
		all.Wait()
	})
}

// It is done once all that is wished for is in sync or cannot be, all else has
// been looked at, and it is known what there is.
func TestProgress(t *testing.T) {
	type told struct {
		what func(*bench)
		done bool
	}
	for name, steps := range map[string][]told{
		"list last": {
			{event("a"), false},
			{ran("a", errInSync), false},
			{listed("a"), true},
		},
		"list first": {
			{event("a"), false},
			{event("b"), false},
			{listed(), false},
			{ran("a", errInSync), false},
			{ran("b", errRefused), true},
		},
		"too much is there": {
			{listed("a", "b", "c"), false},
			{ran("a", errKept), false},
			{ran("b", errNotOurs), false},
			{ran("c", nil), true},
		},
		"nothing": {
			{listed(), true},
		},
		"not settled": {
			{event("a"), false},
			{listed(), false},
			{ran("a", errNever), false},
			{ran("a", errBusy), false},
			{ran("a", errNever), false},
			{ran("a", errNever), true},
		},
		"asked for again meanwhile": {
			{event("a"), false},
			{listed("a"), false},
			{event("a"), false},
			{ran("a", errInSync), false},
			{ran("a", errInSync), true},
		},
		"no list": {
			{event("a"), false},
			{ran("a", errInSync), false},
			{unlisted, false},
			{unlisted, false},
			{unlisted, true},
			{unlisted, true},
			{listed("b"), true},
		},
		"a list in time": {
			{event("a"), false},
			{unlisted, false},
			{unlisted, false},
			{unlisted, false},
			{listed("b"), false},
			{ran("a", errInSync), false},
			{ran("b", errNotOurs), true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(t *testing.T, b *bench) {
				for i, step := range steps {
					step.what(b)
					if synctest.Wait(); b.done != step.done {
						t.Errorf("after step %d done is %v, want %v", i+1, b.done, step.done)
					}
				}
			})
		})
	}
}

func TestProgressTotal(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		b.wishes.Set(map[string]bucket.Wish{"a": {}, "b": {}, "c": {}, "d": {}})
		for _, step := range []func(*bench){
			listed("a", "k", "j"), event("b"), event("c"), event("d"),
			ran("a", errInSync), ran("b", errRefused), ran("c", errNever), ran("c", errors.New("no answer")),
			ran("k", errKept), ran("j", errKept),
		} {
			step(b)
		}
		synctest.Wait()
		got := b.total()
		if got.wanted != 4 || got.inSync != 1 || got.runs != 6 || got.unlisted != nil ||
			!slices.Equal(got.bad, []string{"b: never", "c: no answer"}) || !slices.Equal(got.kept, []string{"j", "k"}) {
			t.Errorf("the total is %+v", got)
		}

		// In sync is what the last run has found, unless an event came after it.
		want := func(inSync int) {
			t.Helper()
			if synctest.Wait(); b.total().inSync != inSync {
				t.Errorf("%d are in sync, want %d", b.total().inSync, inSync)
			}
		}
		time.Sleep(2 * time.Hour) // the next look has begun
		want(1)
		ran("a", errInSync)(b)
		want(1)
		event("a")(b)
		want(0)
		ran("a", errInSync)(b)
		want(1)
	})
}
