// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command first is the program of the guide "The first controller in ten minutes".
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/tracker"
)

// parse reads the file of desired files, such as {"hello.txt": "Hello."}.
func parse(text []byte) (desired map[string]string, err error) {
	if err := json.Unmarshal(text, &desired); err != nil {
		return nil, fmt.Errorf("the desired files: %w", err)
	} else if desired == nil {
		return nil, errors.New("the desired files are null")
	}
	return desired, nil
}

// A folder has the files. All that is in it is ours.
type folder struct{ *os.Root }

// actual lists the files that exist, with their content.
func (f folder) actual(context.Context) (map[string]string, error) {
	files := map[string]string{}
	entries, err := fs.ReadDir(f.FS(), ".")
	for _, e := range entries {
		if e.Type().IsRegular() {
			text, err := f.ReadFile(e.Name())
			if err != nil {
				return nil, err
			}
			files[e.Name()] = string(text)
		}
	}
	return files, err
}

// ensure writes one file.
func (f folder) ensure(ctx context.Context, name, desired string) error {
	if text, err := f.ReadFile(name); err == nil && string(text) == desired {
		return nil
	}
	reconcile.Logger(ctx).Info("write")
	return f.WriteFile(name, []byte(desired), 0o644) // an error is retried
}

// delete deletes one file.
func (f folder) delete(ctx context.Context, name, _ string) error {
	reconcile.Logger(ctx).Info("delete")
	if err := f.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// run works until ctx is done.
func run(ctx context.Context, desired, out string) error {
	root, err := os.OpenRoot(out)
	if err != nil {
		return err
	}
	defer root.Close()
	f := folder{root}
	files := &keep.Set[string, string, string]{
		Name:    "files",
		Period:  2 * time.Second,
		Desired: tracker.FromFile(desired, parse),
		Actual:  f.actual,
		InSync:  func(desired, actual string) bool { return desired == actual },
		Ensure:  f.ensure,
		Delete:  f.delete,

		DeleteAfter: 10 * time.Second,
		Reconciler:  &reconcile.Reconciler[string]{Workers: 2, Timeout: 10 * time.Second},
	}
	return files.Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, "desired.json", "out"); err != nil {
		log.Fatal(err)
	}
}
