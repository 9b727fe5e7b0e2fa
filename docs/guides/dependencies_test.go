// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/refs"
	"github.com/reconkernel/reconcile/supervise"
)

// The programs of events-and-observations.md about owners and dependencies.

// A disk is what an event about a disk tells, also that it is gone.
type disk struct{ Name, Owner string }

func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		var mu sync.Mutex // guards what follows: the world
		wanted := map[string]bool{"web": true}
		ownerOf := map[string]string{"disk-of-old": "old", "disk-of-another": ""} // the tags

		vms := reconcile.NewQueue[string]()

		// An event about a disk concerns its owner.
		disks := reconcile.Map(vms, func(d disk) iter.Seq[string] {
			if d.Owner == "" {
				return nil // not ours
			}
			return slices.Values([]string{d.Owner})
		})

		// What is wanted, and the owners of what is there.
		list := func(context.Context) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			owners := slices.Sorted(maps.Keys(wanted))
			for _, owner := range ownerOf {
				if owner != "" {
					owners = append(owners, owner)
				}
			}
			return owners, nil // twice the same owner is one item
		}

		reconcileVM := func(_ context.Context, vm string) error {
			mu.Lock()
			defer mu.Unlock()
			name := "disk-of-" + vm
			_, there := ownerOf[name]
			switch {
			case wanted[vm] && !there:
				happened.note("make %s", name)
				ownerOf[name] = vm // the tag is set as the disk is made, not later
			case !wanted[vm] && there:
				happened.note("remove %s", name)
				delete(ownerOf, name)
			}
			return nil
		}

		time.AfterFunc(time.Minute, func() { // another hand, and we are told
			mu.Lock()
			delete(ownerOf, "disk-of-web")
			mu.Unlock()
			disks.Enqueue(disk{Name: "disk-of-web", Owner: "web"})
		})
		time.AfterFunc(2*time.Minute, func() { // no longer wanted, and nobody tells
			mu.Lock()
			delete(wanted, "web")
			mu.Unlock()
		})

		var group supervise.Group
		group.Add("list", &reconcile.Poller[string]{Queue: vms, GetItems: list, Period: 10 * time.Minute})
		group.Add("vms", &reconcile.Reconciler[string]{Queue: vms, Reconcile: reconcileVM})
		run(t, &group, time.Hour)
		happened.check(t, `
0s      make disk-of-web
0s      remove disk-of-old
1m0s    make disk-of-web
10m0s   remove disk-of-web
`)
		if _, there := ownerOf["disk-of-another"]; !there {
			t.Error("a disk that is not ours was removed")
		}
	})
}

func TestOwnersDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		var there sync.Map // keys
		keyOf := map[string]string{"logs": "key-1", "media": "key-1", "tmp": "key-2"}
		there.Store("key-2", true)

		var refs refs.Refs[string, string] // keys, buckets
		buckets := reconcile.NewQueue[string]()
		keys := reconcile.Map(buckets, refs.Of) // an event about a key runs the buckets that need it

		reconcileBucket := func(_ context.Context, bucket string) error {
			key := keyOf[bucket]
			refs.Set(bucket, key) // before the check: a key that is created in between is not missed
			if _, ok := there.Load(key); !ok {
				happened.note("%s waits for %s", bucket, key)
				return fmt.Errorf("%s is not there: %w", key, reconcile.RequeueWithin(time.Hour))
			}
			happened.note("%s uses %s", bucket, key)
			return nil
		}

		for _, bucket := range []string{"logs", "tmp"} {
			buckets.Enqueue(bucket)
		}
		time.AfterFunc(3*time.Minute, func() {
			there.Store("key-1", true)
			keys.Enqueue("key-1")
		})
		run(t, &reconcile.Reconciler[string]{Queue: buckets, Reconcile: reconcileBucket}, 2*time.Hour)
		happened.check(t, `
0s      logs waits for key-1
0s      tmp uses key-2
3m0s    logs uses key-1
`)
	})
}
