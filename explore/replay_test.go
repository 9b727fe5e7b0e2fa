// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"fmt"
	"log"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

// Jitter, RecheckJitter and Backoff of the kernel give the same times each time that a plan
// is played, on any number of processors. Two pollers of one period drift apart all the same.
func TestRandomTimesAreReplayed(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		q := reconcile.NewQueue[string]()
		for _, list := range []string{"list a", "list b"} {
			proc.Go((&reconcile.Poller[string]{
				Name: list, Queue: q, Period: 5 * time.Minute, Jitter: 0.5, Logger: proc.Logger(),
				GetItems: func(ctx context.Context) ([]string, error) {
					return Read(ctx, proc, list, func() ([]string, error) { return slices.Sorted(maps.Keys(w.desired)), nil })
				},
			}).Run)
		}
		proc.Go((&reconcile.Reconciler[string]{
			Queue: q, Workers: 2, RecheckJitter: 0.5, Retry: reconcile.Backoff(10*time.Second, time.Minute), Logger: proc.Logger(),
			Reconcile: func(ctx context.Context, name string) error {
				if is, err := (client{proc, w}).get(ctx, name); err != nil || is != w.desired[name] {
					if err := (client{proc, w}).put(ctx, name, w.desired[name]); err != nil {
						return err
					}
				}
				return reconcile.RecheckWithin(time.Minute)
			},
		}).Run)
	}
	s.Steps = func(env *Environment, w *shelf) {
		for i := range 3 {
			w.desired[fmt.Sprint("a", i)] = "1"
		}
		env.Advance(20 * time.Minute)
	}
	s.Plans, s.Within, s.Without = 1, 20*time.Minute, only(Fails, DiesAfter, Outage)
	play := func(workers int) map[string][]string { // the journals by the faults that came
		x := explorerOf(t, s)
		x.workers = workers
		var mu sync.Mutex
		journals := map[string][]string{}
		x.keep = func(p *play) {
			mu.Lock()
			defer mu.Unlock()
			journals[strings.Join(plan(p.outcome.happened).strings(), "; ")] = lines(p.outcome.journal)
		}
		if r := x.explore(); r.Found != nil {
			t.Error(r.Found)
		}
		return journals
	}
	first := play(1)
	for _, workers := range []int{2, 4} {
		again := play(workers)
		differ := slices.DeleteFunc(slices.Sorted(maps.Keys(first)), func(faults string) bool { return slices.Equal(first[faults], again[faults]) })
		if len(differ) > 0 {
			t.Errorf("%d of %d plans have another journal when they are played again; %q: %s", len(differ), len(first), differ[0], differs(first[differ[0]], again[differ[0]]))
		}
	}
	second := func(list string) string {
		lines := slices.DeleteFunc(slices.Clone(first[""]), func(line string) bool { return !strings.HasSuffix(line, " call "+list) })
		return strings.TrimSuffix(lines[1], list)
	}
	if second("list a") == second("list b") {
		t.Errorf("both pollers poll again at %s, want them apart", second("list a"))
	}
}

// A stack that the controller logs is the same each time: it has no addresses, and no
// numbers of goroutines. Other lines stay as they are.
func TestStacksAreReplayed(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, 10*time.Minute, func(ctx context.Context) error {
			err := client{proc, w}.asDesired(ctx)
			log.Printf("%v\n%s", err, debug.Stack())
			log.Print("the goroutine became idle")
			proc.Logger().Error("no disk", "stack", string(debug.Stack()))
			return err
		})
	}
	first, _ := played(t, s)
	again, _ := played(t, s)
	all := strings.Join(first, "\n")
	if !slices.Equal(first, again) || !strings.Contains(all, "explore/replay_test.go:") || !strings.Contains(all, "the goroutine became idle") {
		t.Errorf("the journal is another one, want the same, with stacks and the other line: %s\n%s", differs(first, again), all)
	}
}
