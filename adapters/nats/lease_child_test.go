// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestElectChild is not a test: it is a process that leads, or wants to. It
// answers each line on its input with whether it leads, by its context.
func TestElectChild(t *testing.T) {
	url := os.Getenv("RECONCILE_ELECT_URL")
	if url == "" {
		return
	}
	kv, err := natstest.JetStream(t, natstest.Connect(t, url, natstest.In(t, "leader", "leases"))).KeyValue(t.Context(), "leases")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var term context.Context
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			mu.Lock()
			fmt.Println("child: leads", term != nil && term.Err() == nil)
			mu.Unlock()
		}
		os.Exit(0) // the parent is gone
	}()
	err = natsadapter.Elect(kv, "leader", reconcile.RunFunc(func(ctx context.Context) error {
		mu.Lock()
		term = ctx
		mu.Unlock()
		fmt.Println("child: begins")
		<-ctx.Done()
		fmt.Println("child: ends,", context.Cause(ctx))
		return nil
	})).Run(t.Context())
	fmt.Println("child: returns", err)
}

func startChild(t *testing.T, url string) *natstest.Child {
	t.Helper()
	return natstest.StartChild(t, "TestElectChild", "RECONCILE_ELECT_URL="+url)
}

// TestElectKill kills the process that leads.
func TestElectKill(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	kv := leases(t, s.JetStream(t), time.Second)
	c := startChild(t, s.URL())
	c.Want("begins")
	r := newReferee(t)
	elect(t, kv, r.runner("heir"))
	c.Signal(syscall.SIGKILL)
	natstest.Next(t, r.leads)
}

// TestElectFrozen stops the process that leads by SIGSTOP until another one
// leads. The first thing it does when it goes on is to look whether it leads
// still: it must not, though no timer of its own can have fired.
func TestElectFrozen(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	kv := leases(t, s.JetStream(t), time.Second)
	for range 2 {
		r := newReferee(t)
		c := startChild(t, s.URL())
		c.Want("begins")
		renewed(t, kv)
		c.Ask()
		answer := natstest.Next(t, c.Lines)
		for !strings.HasPrefix(answer, "leads ") { // on a slow machine it may have ended and begun again
			answer = natstest.Next(t, c.Lines)
		}
		if answer != "leads true" {
			t.Logf("the child says %q before it is stopped: a slow machine", answer)
		}
		stop := elect(t, kv, r.runner("heir"))
		c.Signal(syscall.SIGSTOP)
		natstest.Next(t, r.leads)
		c.Ask()
		c.Signal(syscall.SIGCONT)
		for line := ""; line != "leads false"; {
			if line = natstest.Next(t, c.Lines); line == "leads true" {
				t.Error("the child leads after another one began to")
			}
		}
		// It stands for election again, and wins when the heir stops.
		stop()
		for natstest.Next(t, c.Lines) != "begins" {
		}
		c.Signal(syscall.SIGKILL)
	}
}

// TestQueueChild is not a test: it is a process that runs an item of a queue for
// as long as it has it. It answers each line on its input with whether its context
// goes on.
func TestQueueChild(t *testing.T) {
	url := os.Getenv("RECONCILE_QUEUE_URL")
	if url == "" {
		return
	}
	q, err := natsadapter.NewQueue[string](t.Context(), natstest.JetStream(t, natstest.Connect(t, url, natstest.In(t, "worker", "q"))),
		natsadapter.Config{Name: "q", Lease: time.Second})
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
	q := newQueue[string](t, s, natsadapter.Config{Name: "q", Lease: time.Second})
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
