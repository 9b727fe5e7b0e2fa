// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestHandedOverBeforeItRuns has an item change hands after it was taken and
// before its run begins.
func TestHandedOverBeforeItRuns(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
		s := a.take("p", a.client())
		stop := kubetest.Run(t, s)
		time.Sleep(time.Second)
		inner := reconcile.NewQueue[int]()
		q := s.Queue(inner)
		inner.Enqueue(1)
		if _, err := q.Dequeue(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := sync.OnceFunc(func() { q.Done(1) })
		defer done() // also when the test fails before its end
		left := make(chan struct{})
		go func() {
			stop()
			close(left)
		}()
		synctest.Wait()
		run := q.(reconcile.Leaser[int]).Lease(t.Context(), 1)
		if !errors.Is(context.Cause(run), reconcile.ErrLeaseLost) {
			t.Errorf("the context of the run: %v, want that the lease is lost", context.Cause(run))
		}
		select {
		case <-left:
			t.Error("it has left, though the item was not given back")
		default:
		}
		done()
		<-left
	})
}

// TestQueuePassesResultsOn has runs end in all ways: the queue inside knows.
func TestQueuePassesResultsOn(t *testing.T) {
	bubble(t, func(t *testing.T, a *arena) {
		s := a.take("p", a.client())
		defer kubetest.Run(t, s)()
		time.Sleep(time.Second)
		inner := reconcile.NewQueue[int]()
		q := s.Queue(inner)
		oops := errors.New("oops")
		for _, step := range []struct {
			wait reconcile.RequeueOptions
			want reconcile.State
		}{
			{reconcile.RequeueOptions{Err: oops}, reconcile.State{Phase: reconcile.Ready, Failures: 1, Err: oops}},
			{reconcile.RequeueOptions{Err: reconcile.ErrAborted}, reconcile.State{Phase: reconcile.Ready, Failures: 1, Err: oops}},
			{reconcile.RequeueOptions{Delay: time.Hour, Recheck: true}, reconcile.State{Phase: reconcile.Waiting, Recheck: true}},
			{reconcile.RequeueOptions{Delay: time.Hour, MinDelay: time.Hour}, reconcile.State{Phase: reconcile.Waiting, NotBefore: time.Now().Add(time.Hour).Round(0)}},
		} {
			inner.Enqueue(1)
			if _, err := q.Dequeue(t.Context()); err != nil {
				t.Fatal(err)
			}
			q.Requeue(1, step.wait)
			got := q.State(1)
			got.Since, got.Due, got.NotBefore, got.Pending = time.Time{}, time.Time{}, got.NotBefore.Round(0), time.Time{}
			if got != step.want {
				t.Errorf("after %+v: %+v, want %+v", step.wait, got, step.want)
			}
		}
	})
}
