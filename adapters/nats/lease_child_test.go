// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
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

type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
}

func startChild(t *testing.T, url string) *child {
	t.Helper()
	return startProcess(t, "TestElectChild", "RECONCILE_ELECT_URL="+url)
}

// startProcess runs a test of this package in a process of its own.
func startProcess(t *testing.T, test string, env ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0], "-test.run=^"+test+"$"), lines: make(chan string, 1000)}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if line, ok := strings.CutPrefix(lines.Text(), "child: "); ok {
				c.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-read
		c.cmd.Wait()
	})
	return c
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) ask() {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, "?\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) want(line string) {
	c.t.Helper()
	if got := next(c.t, c.lines); got != line {
		c.t.Fatalf("the child says %q, want %q", got, line)
	}
}

// TestElectKill kills the process that leads.
func TestElectKill(t *testing.T) {
	t.Parallel()
	s := natstest.New(t)
	kv := leases(t, s.JetStream(t), time.Second)
	c := startChild(t, s.URL())
	c.want("begins")
	r := newReferee(t)
	elect(t, kv, r.runner("heir"))
	c.signal(syscall.SIGKILL)
	next(t, r.leads)
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
		c.want("begins")
		renewed(t, kv)
		c.ask()
		answer := next(t, c.lines)
		for !strings.HasPrefix(answer, "leads ") { // on a slow machine it may have ended and begun again
			answer = next(t, c.lines)
		}
		if answer != "leads true" {
			t.Logf("the child says %q before it is stopped: a slow machine", answer)
		}
		stop := elect(t, kv, r.runner("heir"))
		c.signal(syscall.SIGSTOP)
		next(t, r.leads)
		c.ask()
		c.signal(syscall.SIGCONT)
		for line := ""; line != "leads false"; {
			if line = next(t, c.lines); line == "leads true" {
				t.Error("the child leads after another one began to")
			}
		}
		// It stands for election again, and wins when the heir stops.
		stop()
		for next(t, c.lines) != "begins" {
		}
		c.signal(syscall.SIGKILL)
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
		c := startProcess(t, "TestQueueChild", "RECONCILE_QUEUE_URL="+s.URL())
		c.want("runs x")
		c.signal(syscall.SIGSTOP)
		mustTake(t, q, "x")
		c.ask()
		c.signal(syscall.SIGCONT)
		c.want("goes on false")
		c.want("ends, " + reconcile.ErrLeaseLost.Error())
		q.Done("x")
		flush(t, q)
	}
}
