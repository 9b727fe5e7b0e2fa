// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bytes"
	"context"
	"os"
	"time"

	"github.com/reconkernel/reconcile"
)

// A File puts the wishes of a file in force, and again whenever it changes on
// disk. A bad one is reported, and the last good version stays in force. It
// belongs to one goroutine at a time.
type File struct {
	Path   string                       // required
	Wishes *Wishes                      // required
	Every  time.Duration                // how often to look at the file; 0 means every second
	Told   func(changed int, err error) // of a new version, or once of what is wrong with it; may be nil

	last    []byte // as it was read last; nil if that failed
	problem error  // with the file as it is
}

// Load reads the file and puts it in force if it is good. It returns the names
// of the buckets for which something else is wished now.
func (f *File) Load() (changed []string, err error) {
	defer func() { f.problem = err }()
	data, err := os.ReadFile(f.Path)
	if err != nil {
		f.last = nil
		return nil, err
	}
	if f.last != nil && bytes.Equal(data, f.last) {
		return nil, f.problem
	}
	f.last = data
	wishes, err := Parse(f.Path, data)
	if err != nil {
		return nil, err
	}
	return f.Wishes.Set(wishes), nil
}

// Feed is a [reconcile.Feeder]: it enqueues what changes, until ctx is done. It
// compares the content, as the time of a file may be the same after a change.
func (f *File) Feed(ctx context.Context, q reconcile.Enqueuer[string]) error {
	every := f.Every
	if every <= 0 {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before := f.problem
		changed, err := f.Load()
		for _, name := range changed {
			q.Enqueue(name)
		}
		news := err == nil && (before != nil || len(changed) > 0) ||
			err != nil && (before == nil || err.Error() != before.Error())
		if news && f.Told != nil {
			f.Told(len(changed), err)
		}
	}
}
