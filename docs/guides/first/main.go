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
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/tracker"
)

// A controller keeps the files of a folder as its wishes say.
type controller struct {
	read   func(context.Context) (map[string]string, error) // the file of wishes, such as {"hello.txt": "Hello."}
	wishes atomic.Pointer[map[string]string]                // what was read last
	folder *os.Root                                         // everything in it is ours
}

func parse(text []byte) (wishes map[string]string, err error) {
	if err := json.Unmarshal(text, &wishes); err != nil {
		return nil, fmt.Errorf("the wishes: %w", err)
	} else if wishes == nil {
		return nil, errors.New("the wishes are null")
	}
	return wishes, nil
}

// list returns the names to look at: what is wanted, and what is there.
func (c *controller) list(ctx context.Context) ([]string, error) {
	wishes, errWishes := c.read(ctx) // if it is bad, the last good version
	c.wishes.Store(&wishes)
	names := slices.Collect(maps.Keys(wishes))
	there, errThere := fs.ReadDir(c.folder.FS(), ".")
	for _, entry := range there {
		if entry.Type().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	return names, errors.Join(errWishes, errThere) // the names count all the same
}

// reconcile makes one file what it is wanted to be.
func (c *controller) reconcile(ctx context.Context, name string) error {
	want, wanted := (*c.wishes.Load())[name]
	there, err := c.folder.ReadFile(name)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return err // it is tried again
	case missing && !wanted, !missing && wanted && string(there) == want:
		return nil // in sync
	case !wanted:
		reconcile.Logger(ctx).Info("remove")
		return c.folder.Remove(name)
	}
	reconcile.Logger(ctx).Info("write")
	return c.folder.WriteFile(name, []byte(want), 0o644)
}

// run works until ctx is done.
func run(ctx context.Context, wishes, folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	c := &controller{read: tracker.FromFile(wishes, parse), folder: root}
	if _, err := c.list(ctx); err != nil {
		return err // there is no good version yet
	}
	queue := reconcile.NewQueue[string]()
	var group reconcile.Group
	group.Add("list", &reconcile.Poller[string]{Name: "list", Queue: queue, GetItems: c.list, Period: 2 * time.Second})
	group.Add("files", &reconcile.Reconciler[string]{Name: "files", Queue: queue, Reconcile: c.reconcile})
	return group.Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, "wishes.json", "out"); err != nil {
		log.Fatal(err)
	}
}
