// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/reconciletest"
)

var errBusy = errors.New("busy")

// A diskCloud stands in for the cloud. A disk can be attached when it is ready.
type diskCloud struct {
	env     *reconciletest.Env[string]
	readyAt time.Time
}

// attach is the reconcile function.
func (c *diskCloud) attach(_ context.Context, disk string) error {
	if time.Now().Before(c.readyAt) {
		return reconcile.RequeueWithin(10 * time.Second)
	}
	return c.env.Call("attach " + disk)
}

// A whole test: it fails the first call, and compares the journal with the expected lines
// at exact times. t is the *testing.T of the test.
func ExampleRun() {
	reconciletest.Run(t, func(t *testing.T, env *reconciletest.Env[string]) {
		cloud := &diskCloud{env: env, readyAt: time.Now().Add(15 * time.Second)}
		env.Fail("attach disk-1", 1, errBusy)
		env.Start(&reconcile.Reconciler[string]{Reconcile: cloud.attach})

		env.Queue.Enqueue("disk-1")
		env.Advance(5 * time.Second)
		env.Want("0s disk-1 requeued within 10s")
		env.WantQueue("disk-1 waiting until 10s")

		env.Advance(time.Hour)
		env.Want(
			"10s disk-1 requeued within 10s",
			"20s call attach disk-1: busy",
			"20s disk-1 retrying in 1s: busy",
			"21s call attach disk-1",
			"21s disk-1 succeeded",
		)
		env.WantQueue()
	})
}
