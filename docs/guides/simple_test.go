// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/supervise"
)

// The program of from-simple-controller-runtime.md.
func TestFromSimpleControllerRuntime(t *testing.T) {
	type value struct{ desired, current int }
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		store := reconcile.NewListMap[value]()
		store.AddItem("foo", value{desired: 2, current: 1})
		store.AddItem("bar", value{desired: 2, current: 1})

		getItems := func(context.Context) ([]string, error) {
			ids := make(map[string]bool)
			for id, v := range store.RangeAll() {
				if v.desired != v.current {
					ids[id] = true
				}
			}
			return slices.Sorted(maps.Keys(ids)), nil
		}
		reconcileValue := func(_ context.Context, id string) error {
			if id == "bar" {
				return errors.New("no answer")
			}
			v, _ := store.ItemAt(id, 0)
			if v.desired == v.current {
				return nil
			}
			store.RemoveKey(id)
			store.AddItem(id, value{desired: v.desired, current: v.desired})
			return fmt.Errorf("to demo this: %w", reconcile.RequeueAfter(5*time.Second)) // was: NewRequeueAfterError
		}

		ctx, stop := context.WithTimeout(t.Context(), 80*time.Second)
		defer stop()

		queue := reconcile.NewQueue[string]() // an id: no String, Hash and LogValue needed
		var group supervise.Group
		group.Add("poller", &reconcile.Poller[string]{
			Queue:    queue,
			GetItems: getItems,
			Period:   30 * time.Second, // was: PollPeriod
		})
		reconciler := &reconcile.Reconciler[string]{
			Queue:     queue,
			Reconcile: reconcileValue,    // was: ReconcileFunction
			Timeout:   5 * time.Minute,   // was: ReconcileTimeout
			Retry:     reconcile.NoRetry, // as before: the next poll runs a failed item
		}
		group.Add("reconciler", reconciler)
		reconciler.OnResult = func(r reconcile.Result[string]) { happened.note("%s %s", r.Item, r.Outcome) }
		reconciler.Logger = quiet
		if err := group.Run(ctx); err != nil { // was: two Starts, and <-ctx.Done()
			t.Error(err)
		}
		happened.check(t, `
0s      bar gave_up
0s      foo requeued
5s      foo succeeded
30s     bar gave_up
1m0s    bar gave_up
`)
	})
}
