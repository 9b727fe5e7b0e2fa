// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command files keeps the files of the folder in which it is started in their desired
// state, until Ctrl-C.
package main

import (
	"context"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
)

var desired = map[string]string{"hello.txt": "Hello.\n", "news.txt": "None.\n"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	queue := reconcile.NewQueue[string]()
	var group reconcile.Group
	group.Add("poller", &reconcile.Poller[string]{
		Queue:    queue,
		GetItems: func(context.Context) ([]string, error) { return slices.Collect(maps.Keys(desired)), nil },
		Period:   time.Second,
	})
	group.Add("reconciler", &reconcile.Reconciler[string]{
		Queue: queue,
		Reconcile: func(_ context.Context, name string) error {
			actual, err := os.ReadFile(name)
			if err == nil && string(actual) == desired[name] {
				return nil // in sync
			}
			log.Println("write", name)
			return os.WriteFile(name, []byte(desired[name]), 0o644) // an error is retried with back-off
		},
	})
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
