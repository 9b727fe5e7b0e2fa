// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package elect_test

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
	"github.com/reconkernel/reconcile/adapters/nats/elect"
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
	err = elect.Elect(kv, "leader", reconcile.RunFunc(func(ctx context.Context) error {
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
	stand(t, kv, r.runner("heir"))
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
		stop := stand(t, kv, r.runner("heir"))
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
