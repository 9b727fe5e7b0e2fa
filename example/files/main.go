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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := os.Chdir("out"); err != nil {
		log.Fatal(err)
	}
	files := &keep.Set[string, string, string]{
		Period:  time.Second,
		Desired: desired, // the content of each file as it should be
		Actual:  actual,  // and as it is
		InSync:  func(desired, actual string) bool { return desired == actual },
		Ensure:  write,  // creates or corrects one file; an error is retried
		Delete:  remove, // deletes one file that is not desired
	}
	if err := files.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func desired(context.Context) (map[string]string, error) {
	return map[string]string{"hello.txt": "Hello.\n", "news.txt": "None.\n"}, nil
}

// actual reads the files of the folder out. All of them are ours, so those that are not
// desired are deleted.
func actual(context.Context) (map[string]string, error) {
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

func write(_ context.Context, name, text string) error {
	log.Println("write", name)
	return os.WriteFile(name, []byte(text), 0o644)
}

func remove(_ context.Context, name, _ string) error { return os.RemoveAll(name) }
