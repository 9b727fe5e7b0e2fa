// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
)

// A service that keeps the files of a folder as they are wanted.
func Example() {
	wanted := map[string]string{"hello.txt": "hello\n", "news.txt": "none\n"}
	dir, err := os.MkdirTemp("", "files")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	inSync := 0
	queue := reconcile.NewQueue[string]()
	var group reconcile.Group
	group.Add("poller", &reconcile.Poller[string]{
		Queue:    queue,
		GetItems: func(context.Context) ([]string, error) { return slices.Collect(maps.Keys(wanted)), nil },
		Period:   time.Minute,
	})
	group.Add("reconciler", &reconcile.Reconciler[string]{
		Queue: queue,
		Reconcile: func(_ context.Context, name string) error {
			path := filepath.Join(dir, name)
			if there, err := os.ReadFile(path); err == nil && string(there) == wanted[name] {
				return nil // as it is to be
			}
			return os.WriteFile(path, []byte(wanted[name]), 0o644) // an error is tried again
		},
		OnResult: func(r reconcile.Result[string]) {
			fmt.Println(r.Item, r.Outcome)
			if inSync++; inSync == len(wanted) {
				stop() // like Ctrl-C; a service would go on
			}
		},
	})
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// hello.txt succeeded
	// news.txt succeeded
}
