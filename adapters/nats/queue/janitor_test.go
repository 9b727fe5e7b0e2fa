// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// TestQueueVictim is not a test: it is a process that takes items, and dies in
// their runs.
func TestQueueVictim(t *testing.T) {
	url := os.Getenv("RECONCILE_VICTIM_URL")
	if url == "" {
		return
	}
	n, err := strconv.Atoi(os.Getenv("RECONCILE_VICTIM_ITEMS"))
	if err != nil {
		t.Fatal(err)
	}
	js := natstest.JetStream(t, natstest.Connect(t, url, natstest.In(t, "creator", "q")))
	q, err := queue.New[string](t.Context(), js, queue.Config{Name: "q", Lease: time.Second, Owner: "the victim"})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		item, err := q.Dequeue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("child: runs", item)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self.Kill()
	select {}
}

// kill starts a process that dies in its runs of some items, and returns when it
// runs them.
func kill(t *testing.T, s *natstest.Server, items ...string) {
	t.Helper()
	c := natstest.StartChild(t, "TestQueueVictim", "RECONCILE_VICTIM_URL="+s.URL(), fmt.Sprint("RECONCILE_VICTIM_ITEMS=", len(items)))
	for _, item := range items {
		c.Want("runs " + item)
	}
}

// An item that kills the process that runs it is seen, runs again later and
// later, and is given up when the policy says so.
func TestQueuePoison(t *testing.T) {
	s := natstest.New(t)
	const item = "poison"
	asked := make(chan int, 10)
	g := newGauge()
	q := newQueue[string](t, s, queue.Config{
		Name: "q", Lease: time.Second, Logger: g.logger(),
		Gone: func(err error, failures int) (time.Duration, bool) {
			if !errors.Is(err, queue.ErrGone) {
				t.Errorf("the policy is asked about %v, want %v", err, queue.ErrGone)
			}
			asked <- failures
			return time.Millisecond, failures < 2
		},
	})
	enqueue(t, q, item)
	kill(t, s, item)
	mustTake(t, q, item)
	if got := q.State(item); got.Failures != 1 || got.Err == nil || !strings.Contains(got.Err.Error(), "the victim") {
		t.Errorf("State: %+v, want 1 failure with the name of the process", got)
	}
	q.Requeue(item, reconcile.RequeueOptions{Aborted: true}) // for another to take
	flush(t, q)
	kill(t, s, item)
	g.want(t, "level=ERROR", "item not retried", item, "failures=2")
	flush(t, q)
	close(asked)
	if a, b := <-asked, <-asked; a != 1 || b != 2 {
		t.Errorf("the policy is asked about %d and %d failures, want 1 and 2", a, b)
	}
	if got := q.State(item); got != (reconcile.State{}) {
		t.Errorf("State: %+v, want that it is unknown", got)
	}
}

// What becomes of an item whose process died waits, and events do not bring it
// sooner; one that was removed after that is forgotten.
func TestQueueRemovesPoison(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q", Lease: time.Second, Gone: reconcile.Backoff(time.Hour, time.Hour)}
	feeder := newQueue[string](t, s, cfg)
	enqueue(t, feeder, "removed", "held")
	kill(t, s, "removed", "held")
	if _, err := feeder.Remove(t.Context(), "removed"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, feeder, "held", "next") // an event in the run, and an item for another to take
	g := newGauge()
	cfg.Logger = g.logger()
	q := newQueue[string](t, s, cfg)
	mustTake(t, q, "next") // so it is a member, and the janitor in time
	g.want(t, "level=WARN", "the process that ran it died", "held", "failures=1")
	flush(t, q)
	enqueue(t, q, "held")
	if got := q.State("held"); got.Phase != reconcile.PhaseWaiting || got.NotBefore.IsZero() || got.Failures != 1 {
		t.Errorf("State: %+v, want it held after 1 failure", got)
	}
	if got := q.State("removed"); got != (reconcile.State{}) {
		t.Errorf("State: %+v, want that it is unknown", got)
	}
	if found, err := q.Remove(t.Context(), "held"); err != nil || !found {
		t.Errorf("Remove of what is held: %t, %v", found, err)
	}
}
