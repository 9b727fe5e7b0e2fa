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
// disk. Half of a file may be a good one that wishes for less, so none is used
// that is being written: a change is used when two looks in a row have found the
// same, that is one to two times Every after the last byte. Who writes with
// longer pauses replaces the file in one step.
//
// A bad file is reported, and the last good version stays in force. A File
// belongs to one goroutine at a time.
type File struct {
	Path   string                       // required
	Wishes *Wishes                      // required
	Every  time.Duration                // how often to look at the file; 0 means every second
	Told   func(changed int, err error) // of a new version, or once of what is wrong with it; may be nil

	seen    []byte // at the last look; nil if that failed
	last    []byte // what was used last, good or bad; nil if there was nothing to read
	problem error  // with that
}

// Load reads the file and puts it in force if it is good. It returns the names
// of the buckets for which something else is wished now. It blocks only if the
// file has changed within Every: until two looks have found the same, or ctx is
// done.
func (f *File) Load(ctx context.Context) (changed []string, err error) {
	for {
		data, same, err := f.look()
		// Its time after the look: what was written before that is in it.
		info, _ := os.Stat(f.Path)
		if err != nil || same || info != nil && time.Since(info.ModTime()) >= f.every() {
			return f.use(data, err)
		}
		select {
		case <-time.After(f.every()):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Feed is a [reconcile.Feeder]: it enqueues what changes, until ctx is done. It
// compares the content, as the time of a file may be the same after a change.
func (f *File) Feed(ctx context.Context, q reconcile.Enqueuer[string]) error {
	tick := time.NewTicker(f.every())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		data, same, err := f.look()
		if err == nil && !same {
			continue
		}
		before := f.problem
		changed, err := f.use(data, err)
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

func (f *File) every() time.Duration {
	if f.Every <= 0 {
		return time.Second
	}
	return f.Every
}

// look reads the file, and reports whether the last look has found the same.
func (f *File) look() (data []byte, same bool, err error) {
	data, err = os.ReadFile(f.Path)
	if err != nil {
		f.seen = nil
		return nil, false, err
	}
	same = f.seen != nil && bytes.Equal(data, f.seen)
	f.seen = data
	return data, same, nil
}

// use puts what a look has found in force if it is good.
func (f *File) use(data []byte, err error) (changed []string, _ error) {
	switch {
	case err != nil:
		f.last, f.problem = nil, err
	case f.last == nil || !bytes.Equal(data, f.last):
		var wishes map[string]Wish
		if wishes, f.problem = Parse(f.Path, data); f.problem == nil {
			changed = f.Wishes.Set(wishes)
		}
		f.last = data
	}
	return changed, f.problem
}
