// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/held"
)

// A lease that is over before anything runs under it is not led under: another
// one may have it by then.
func TestLeaseOverBeforeTheStart(t *testing.T) {
	c := candidate{name: "leader"}
	late := &term{ttl: time.Second, Term: held.NewTerm(time.Now().Add(-time.Second))}
	again, err := c.lead(t.Context(), late, reconcile.RunFunc(func(context.Context) error {
		t.Error("it runs")
		return nil
	}))
	if !again || err != nil {
		t.Errorf("lead() = %t, %v, want to stand for election again", again, err)
	}
}

// A busyWatcher waits for the server when it is stopped.
type busyWatcher struct {
	jetstream.KeyWatcher
	answer <-chan struct{}
}

func (w busyWatcher) Stop() error { <-w.answer; return nil }

// Who has won a lease does not wait until its watch has stopped; Run does.
func TestWatchStopDoesNotWait(t *testing.T) {
	answer := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := watch{watcher: busyWatcher{answer: answer}, cancel: cancel}
	w.stop()
	close(answer)
	w.stopping.Wait()
	if ctx.Err() == nil {
		t.Error("the context of the watch goes on after it was stopped")
	}
}
