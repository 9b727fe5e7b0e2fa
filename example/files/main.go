// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command files keeps the files of a folder in their desired state, until Ctrl-C.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/supervise"
)

var desired = map[string]string{"hello.txt": "Hello.\n", "news.txt": "None.\n"}

// actual reads the files of the folder out. All of them are ours: surplus files are deleted.
func actual(context.Context) (map[string]string, error) {
	entries, err := os.ReadDir("out")
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join("out", e.Name()))
		if err != nil {
			return nil, err // an incomplete listing deletes nothing
		}
		files[e.Name()] = string(text)
	}
	return files, err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := os.MkdirAll("out", 0o755); err != nil {
		log.Fatal(err)
	}
	queue := reconcile.NewQueue[string]()
	files := &keep.Set[string, string, string]{
		Queue:   queue,
		Period:  time.Second,
		Desired: func(context.Context) (map[string]string, error) { return desired, nil },
		Actual:  actual,
		InSync:  func(desired, actual string) bool { return desired == actual },
		Ensure: func(_ context.Context, name, text string) error {
			log.Println("write", name)
			return os.WriteFile(filepath.Join("out", name), []byte(text), 0o644) // an error is retried with back-off
		},
		Delete: func(_ context.Context, name, _ string) error {
			log.Println("delete", name)
			if err := os.Remove(filepath.Join("out", name)); !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil // it is deleted already
		},
	}
	var group supervise.Group
	group.Add("list", files)
	group.Add("files", &reconcile.Reconciler[string]{Queue: queue, Reconcile: files.Reconcile})
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
