// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command files keeps the files of a folder in their desired state, until Ctrl-C.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/reconkernel/reconcile/keep"
)

var desired = map[string]string{"hello.txt": "Hello.\n", "news.txt": "None.\n"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := os.Chdir("out"); err != nil {
		log.Fatal(err)
	}
	files := &keep.Set[string, string, string]{
		Period:  time.Second,
		Desired: func(context.Context) (map[string]string, error) { return desired, nil },
		Actual:  list,
		InSync:  func(desired, actual string) bool { return desired == actual },
		Ensure: func(_ context.Context, name, text string) error {
			log.Println("write", name)
			return os.WriteFile(name, []byte(text), 0o644) // an error is retried
		},
		Delete: func(_ context.Context, name, _ string) error { return os.RemoveAll(name) },
	}
	if err := files.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// list reads the files of the folder out. All of them are ours, so those that are not
// desired are deleted.
func list(context.Context) (map[string]string, error) {
	files := map[string]string{}
	entries, err := os.ReadDir(".")
	for _, e := range entries {
		text, err := os.ReadFile(e.Name())
		if err != nil {
			return nil, err // an incomplete listing deletes nothing
		}
		files[e.Name()] = string(text)
	}
	return files, err
}
