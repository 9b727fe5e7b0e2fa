// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/lanes"
)

// The programs of gate/README.md and lanes/README.md.

func TestBudgetsOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		look := func(_ context.Context, vm string) error {
			happened.note("%s", vm)
			return nil
		}
		q := reconcile.NewQueue[string]()
		for _, vm := range []string{"a", "b", "c", "d"} {
			q.Enqueue(vm)
		}
		time.AfterFunc(500*time.Millisecond, func() { q.Enqueue("d") })
		time.AfterFunc(time.Minute, func() {
			for _, vm := range []string{"e", "f", "g", "h"} {
				q.Enqueue(vm)
			}
		})

		r := &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: look,
			Admit:     (&gate.Gate{Every: time.Second, Burst: 2}).Admit,
			Logger:    quiet,
		}

		run(t, r, time.Hour)
		happened.check(t, `
0s      a
0s      b
1s      c
2s      d
1m0s    e
1m0s    f
1m1s    g
1m2s    h
`)
	})
}

func TestBudgetsOfAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errTooMany := errors.New("429 Too Many Requests")
		places := make(chan bool, 4) // what the service can do at once
		ask := func(_ context.Context, vm int) error {
			select {
			case places <- true:
				time.Sleep(time.Second)
				<-places
				return reconcile.RequeueAfter(0)
			default:
				time.Sleep(130 * time.Millisecond)
				return fmt.Errorf("look at vm %d: %w", vm, errTooMany)
			}
		}
		q := reconcile.NewQueue[int]()
		for vm := range 100 {
			q.Enqueue(vm)
		}

		service := &gate.Gate{
			Max: 8,
			Slow: func(err error, took time.Duration) bool {
				return errors.Is(err, errTooMany) || took > 10*time.Second
			},
		}
		r := &reconcile.Reconciler[int]{Queue: q, Reconcile: ask, Workers: 16, Admit: service.Admit, Logger: quiet}

		var mu sync.Mutex // guards limits
		limits := make(map[int]bool)
		r.OnResult = func(reconcile.Result[int]) { // after the gate was told
			mu.Lock()
			defer mu.Unlock()
			limits[service.Stats().Limit] = true
		}
		run(t, r, time.Hour)
		happened := newDiary()
		happened.note("limits seen in an hour: %v", slices.Sorted(maps.Keys(limits)))
		happened.check(t, `
0s      limits seen in an hour: [2 3 4 5]
`)
	})
}

type tenantVM struct {
	tenant string
	number int
}

func TestBudgetsOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		items := map[string]int{"small": 5, "big": 1000, "huge": 100000}
		runs := make(map[string]int)
		var mu sync.Mutex
		look := func(tenant string) {
			mu.Lock()
			defer mu.Unlock()
			runs[tenant]++
		}

		shared := &gate.Gate{Every: time.Second}
		lane := func(tenant string) *reconcile.Reconciler[tenantVM] {
			return &reconcile.Reconciler[tenantVM]{
				Name:      tenant,
				Reconcile: func(context.Context, tenantVM) error { look(tenant); return nil },
				Admit:     shared.Admit, // one for all
			}
		}
		tenants := &lanes.Lanes[tenantVM, string]{
			Lane:       func(m tenantVM) string { return m.tenant },
			Reconciler: lane,
			Logger:     quiet,
		}
		for tenant, n := range items {
			time.AfterFunc(time.Second, func() {
				for vm := range n {
					tenants.Enqueue(tenantVM{tenant, vm})
				}
			})
		}

		run(t, tenants, 65500*time.Millisecond)
		// All come at once, and the first of them may have a second turn before the others are in line.
		apart := runs["big"] - runs["huge"]
		happened.note("runs: small %d, big and huge %d, even within 2: %t", runs["small"], runs["big"]+runs["huge"], -2 <= apart && apart <= 2)
		happened.check(t, `
1m5.5s  runs: small 5, big and huge 60, even within 2: true
`)
	})
}

func TestBudgetsByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[int]()
		for i := range 20 {
			q.Enqueue(i)
		}
		service := new(gate.Gate)
		service.SetLimit(1)
		r := &reconcile.Reconciler[int]{
			Queue:     q,
			Reconcile: func(context.Context, int) error { time.Sleep(time.Minute); return nil },
			Workers:   50, // the most there will ever be
			Admit:     service.Admit,
			Logger:    quiet,
		}
		time.AfterFunc(90*time.Second, func() { service.SetLimit(9) })
		time.AfterFunc(130*time.Second, func() { service.SetLimit(3) })
		for _, at := range []int{60, 100, 140, 160} {
			time.AfterFunc(time.Duration(at)*time.Second+time.Millisecond, func() {
				s := service.Stats()
				happened.note("%d of %d", s.InFlight, s.Limit)
			})
		}
		run(t, r, time.Hour)
		happened.check(t, `
1m0.001s 1 of 1
1m40.001s 9 of 9
2m20.001s 9 of 3
2m40.001s 3 of 3
`)
	})
}
