// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/remember"
	"github.com/reconkernel/reconcile/tracker"
)

// A folder has what is wanted, each thing with a version. What is made for it is in
// disks.
var (
	folder map[string]string
	disks  = make(map[string]string)
)

// serve is one life of the service, of so many runs.
func serve(path string, runs int) {
	memory := &remember.File[string, string]{Path: path}
	if err := memory.Open(); err != nil {
		log.Fatal(err)
	}
	defer memory.Close()

	queue := reconcile.NewQueue[string]()
	files := &tracker.Tracker[string, string]{
		Queue: queue,
		List: func(context.Context) iter.Seq2[tracker.Listed[string, string], error] {
			return func(yield func(tracker.Listed[string, string], error) bool) {
				for _, name := range slices.Sorted(maps.Keys(folder)) {
					if !yield(tracker.Listed[string, string]{Item: name, Version: folder[name]}, nil) {
						return
					}
				}
			}
		},
		Period:   time.Hour,
		Known:    memory.All(),
		OnChange: func(c tracker.Change[string, string]) { fmt.Println(c.Item, c.Kind) },
	}
	reconciler := &reconcile.Reconciler[string]{
		Queue: queue,
		Reconcile: func(_ context.Context, name string) error {
			if err := memory.Begin(name); err != nil {
				return err
			}
			version, wanted := folder[name]
			if !wanted {
				delete(disks, name)
				return memory.Forget(name)
			}
			disks[name] = "made for " + version
			return memory.Done(name, version)
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	reconciler.OnResult = func(reconcile.Result[string]) {
		if runs--; runs == 0 {
			cancel()
		}
	}
	var group reconcile.Group
	group.Add("files", files)
	group.Add("reconciler", reconciler)
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "remember")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	folder = map[string]string{"a": "v1", "b": "v1", "c": "v1"}
	serve(filepath.Join(dir, "memory"), 3)

	fmt.Println("while nobody runs, b changes, c goes and d comes")
	folder = map[string]string{"a": "v1", "b": "v2", "d": "v1"}
	serve(filepath.Join(dir, "memory"), 3)
	fmt.Println(disks)
	// Output:
	// a appeared
	// b appeared
	// c appeared
	// while nobody runs, b changes, c goes and d comes
	// b altered
	// d appeared
	// c vanished
	// map[a:made for v1 b:made for v2 d:made for v1]
}
