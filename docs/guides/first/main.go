// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command first keeps the files of a folder as a file of wishes says. It is the
// program of the guide "The first controller in ten minutes".
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
	"time"

	"github.com/reconkernel/reconcile"
)

// A controller keeps the files of a folder as its wishes say.
type controller struct {
	wishes string   // a file such as {"hello.txt": "Hello."}
	folder *os.Root // all that is in it is ours
}

// wanted reads the wishes: names, and what the files shall hold.
func (c controller) wanted() (map[string]string, error) {
	data, err := os.ReadFile(c.wishes)
	if err != nil {
		return nil, err
	}
	var wanted map[string]string
	if err := json.Unmarshal(data, &wanted); err != nil {
		return nil, fmt.Errorf("%s: %w", c.wishes, err)
	}
	return wanted, nil
}

// list returns the names to look at: what is wanted, and what is there.
func (c controller) list(context.Context) ([]string, error) {
	wanted, errWanted := c.wanted()
	names := slices.Collect(maps.Keys(wanted))
	there, errThere := fs.ReadDir(c.folder.FS(), ".")
	for _, entry := range there {
		if entry.Type().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	return names, errors.Join(errWanted, errThere)
}

// reconcile makes one file what it is to be.
func (c controller) reconcile(ctx context.Context, name string) error {
	wanted, err := c.wanted()
	if err != nil {
		return err // we do not know: that is not the same as "not wanted"
	}
	want, isWanted := wanted[name]
	there, err := c.folder.ReadFile(name)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return err
	case missing && !isWanted:
		return nil
	case !isWanted:
		reconcile.Logger(ctx).Info("remove")
		return c.folder.Remove(name)
	case !missing && string(there) == want:
		return nil
	}
	reconcile.Logger(ctx).Info("write")
	return c.folder.WriteFile(name, []byte(want), 0o644)
}

// run works until ctx is done.
func run(ctx context.Context, wishes, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	c := controller{wishes: wishes, folder: root}

	queue := reconcile.NewQueue[string]()
	var group reconcile.Group
	group.Add("list", &reconcile.Poller[string]{
		Name:     "list",
		Queue:    queue,
		GetItems: c.list,
		Period:   2 * time.Second,
	})
	group.Add("files", &reconcile.Reconciler[string]{
		Name:      "files",
		Queue:     queue,
		Reconcile: c.reconcile,
	})
	return group.Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "wishes.json", "out"); err != nil {
		log.Fatal(err)
	}
}
