// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// TestQueueChild is not a test: it is a process that runs an item of a queue for
// as long as it has it. It answers each line on its input with whether its context
// goes on.
func TestQueueChild(t *testing.T) {
	url := os.Getenv("RECONCILE_QUEUE_URL")
	if url == "" {
		return
	}
	q, err := queue.New[string](t.Context(), natstest.JetStream(t, natstest.Connect(t, url, natstest.In(t, "creator", "q"))),
		queue.Config{Name: "q", Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := &reconcile.Reconciler[string]{Queue: q, Reconcile: func(ctx context.Context, item string) error {
		fmt.Println("child: runs", item)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			err := ctx.Err()
			fmt.Println("child: goes on", err == nil)
			if err != nil {
				fmt.Println("child: ends,", context.Cause(ctx))
				os.Exit(0)
			}
		}
		os.Exit(0) // the parent is gone
		return nil
	}}
	r.Run(t.Context())
}

// TestQueueFrozen stops a process in its run by SIGSTOP until another one has the
// item. The first thing it does when it goes on is to look at its context: it has
// ended, though no timer of its own can have fired.
func TestQueueFrozen(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	q := newQueue[string](t, s, queue.Config{Name: "q", Lease: time.Second})
	for range 3 {
		q.Enqueue("x")
		c := natstest.StartChild(t, "TestQueueChild", "RECONCILE_QUEUE_URL="+s.URL())
		c.Want("runs x")
		c.Signal(syscall.SIGSTOP)
		mustTake(t, q, "x")
		c.Ask()
		c.Signal(syscall.SIGCONT)
		c.Want("goes on false")
		c.Want("ends, " + reconcile.ErrLeaseLost.Error())
		q.Done("x")
		flush(t, q)
	}
}
