// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/remember"
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
	things := &keep.Set[string, string, string]{
		Queue:   queue,
		Period:  time.Hour,
		Desired: func(context.Context) (map[string]string, error) { return folder, nil },
		Actual:  func(context.Context) (map[string]string, error) { return maps.Collect(memory.All()), nil },
		InSync:  func(wanted, made string) bool { return wanted == made },
		Ensure: func(_ context.Context, name, version string) error {
			if err := memory.Begin(name); err != nil {
				return err
			}
			fmt.Println("make", name, version)
			disks[name] = "made for " + version
			return memory.Done(name, version)
		},
		Delete: func(_ context.Context, name, _ string) error {
			if err := memory.Begin(name); err != nil {
				return err
			}
			fmt.Println("remove", name)
			delete(disks, name)
			return memory.Forget(name)
		},
		Lookup: func(_ context.Context, name, _ string) (string, bool, error) {
			version, ok := folder[name]
			return version, ok, nil
		},
	}
	reconciler := &reconcile.Reconciler[string]{Queue: queue, Reconcile: things.Reconcile}
	ctx, cancel := context.WithCancel(context.Background())
	reconciler.OnResult = func(reconcile.Result[string]) {
		if runs--; runs == 0 {
			cancel()
		}
	}
	var group reconcile.Group
	group.Add("things", things)
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
	// make a v1
	// make b v1
	// make c v1
	// while nobody runs, b changes, c goes and d comes
	// make b v2
	// remove c
	// make d v1
	// map[a:made for v1 b:made for v2 d:made for v1]
}
