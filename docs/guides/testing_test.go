// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Tests in a bubble, without package reconciletest.

var errNotThere = errors.New("not there")

// A lab is a world with virtual machines, each of which starts slowly.
type lab struct {
	ready map[string]time.Time
}

// start makes sure that a machine is there and is ready.
func (l *lab) start(_ context.Context, vm string) error {
	ready, ok := l.ready[vm]
	switch {
	case !ok:
		return errNotThere
	case time.Now().Before(ready):
		return fmt.Errorf("%s starts: %w", vm, reconcile.RequeueWithin(10*time.Second))
	}
	return nil
}

func TestStartAsks(t *testing.T) {
	l := &lab{ready: map[string]time.Time{"slow": time.Now().Add(time.Hour)}}

	var plan reconcile.RequeueError
	if err := l.start(t.Context(), "slow"); !errors.As(err, &plan) || plan.MinDelay > 0 {
		t.Errorf("start(slow) = %v, want RequeueWithin", err)
	}
	if err := l.start(t.Context(), "none"); !errors.Is(err, errNotThere) {
		t.Errorf("start(none) = %v, want %v", err, errNotThere)
	}
}

func TestEventInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		q.Enqueue("vm")
		r := reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, vm string) error {
				happened.note("%s begins", vm)
				time.Sleep(10 * time.Second) // a slow call
				return nil
			},
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		defer func() { stop(); <-ended }() // also when the test fails before its end

		time.Sleep(5 * time.Second)
		synctest.Wait() // until all that is to happen at this instant has
		if s := q.State("vm"); s.Phase != reconcile.InFlight || s.Again {
			t.Errorf("after 5s: %v, again %v, want in flight, false", s.Phase, s.Again)
		}
		q.Enqueue("vm")
		if !q.State("vm").Again {
			t.Error("the event has asked for no next run")
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		happened.check(t, `
0s      vm begins
10s     vm begins
`)
		if q.Has("vm") {
			t.Errorf("the queue still knows vm: %+v", q.State("vm"))
		}
	})
}

func TestFailuresInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		q.Enqueue("vm")
		run(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { return errors.New("no answer") },
			Retry: func(_ error, failures int) (time.Duration, bool) {
				return time.Duration(failures) * time.Minute, failures < 3
			},
			OnResult: func(r reconcile.Result[string]) { happened.note("%s %s", r.Item, r.Outcome) },
			Logger:   quiet,
		}, time.Hour)
		happened.check(t, `
0s      vm retrying
1m0s    vm retrying
3m0s    vm gave_up
`)
	})
}

func TestADayOfPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		runs := 0
		var group reconcile.Group
		group.Add("list", &reconcile.Poller[string]{
			Queue:    q,
			Period:   10 * time.Minute,
			GetItems: func(context.Context) ([]string, error) { return []string{"vm"}, nil },
		})
		group.Add("vms", &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { runs++; return nil },
		})
		run(t, &group, 24*time.Hour-time.Second)
		if runs != 144 {
			t.Errorf("%d runs in a day, want 144", runs)
		}
	})
}
