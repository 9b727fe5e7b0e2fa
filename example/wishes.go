// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/program"
)

//go:embed assets.json
var shipped []byte

// A wishFile puts a file of assets in force, and again whenever it changes on
// disk. A broken one is reported, and the last good version stays in force. It
// belongs to one goroutine.
type wishFile struct {
	path  string // "" means the shipped assets, which never change
	board *board

	last    []byte // as it was read last; nil if that failed
	problem error  // with the file as it is
}

// load reads the file and puts it in force if it is good. It returns how many
// assets have changed.
func (w *wishFile) load() (changed int, err error) {
	defer func() { w.problem = err }()
	data := shipped
	if w.path != "" {
		if data, err = os.ReadFile(w.path); err != nil {
			w.last = nil
			return 0, err
		}
	}
	if w.last != nil && bytes.Equal(data, w.last) {
		return 0, w.problem
	}
	w.last = data
	wanted, err := parse(cmp.Or(w.path, "assets.json"), data)
	if err != nil {
		return 0, err
	}
	return w.board.Want(wanted), nil
}

// watch looks at the file once a second until ctx is done. It compares the
// content: the time of a file may be the same after a change.
func (w *wishFile) watch(ctx context.Context, v *view) error {
	if w.path == "" {
		return nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before := w.problem
		changed, err := w.load()
		switch {
		case err != nil && (before == nil || err.Error() != before.Error()):
			v.problem(fmt.Sprintf("%s is not used, the last good version stays in force:", w.path), err)
		case err == nil && (before != nil || changed > 0):
			v.problem("", nil)
			v.note("%s is in force, %s changed", w.path, program.Count(changed, "asset", "assets"))
		}
	}
}

// generate makes up n assets: a key for every 50 of them, and buckets.
func generate(n int) assets {
	a := assets{specs: make(map[cloud.ID]cloud.Spec, n), order: make([]cloud.ID, 0, n)}
	keys := (n + 49) / 50
	regions := []string{"eu-west", "eu-north", "us-east", "us-west"}
	for i := range n {
		spec := cloud.Spec{Region: regions[i%len(regions)], Labels: map[string]string{"made": "by-number"}}
		if i < keys {
			a.add(cloud.ID{Kind: cloud.Key, Name: fmt.Sprintf("key-%05d", i)}, spec)
			continue
		}
		spec.Size = sizes[i%len(sizes)]
		spec.Key = fmt.Sprintf("key-%05d", i%keys)
		a.add(cloud.ID{Kind: cloud.Bucket, Name: fmt.Sprintf("bucket-%05d", i)}, spec)
	}
	return a
}
