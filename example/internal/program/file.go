// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"os"
	"time"
)

// A File puts what a file says in force, and again whenever it changes on disk.
// Half of a file may be a good one that wants less, so none is used that is being
// written: a change is used when two looks in a row have found the same, that is
// one to two seconds after the last byte. Who writes with longer pauses replaces
// the file in one step.
//
// A bad file is reported, and the last good version stays in force. A File
// belongs to one goroutine at a time.
type File struct {
	Path string
	Use  func(text []byte) (changed int, err error) // puts a version in force if it is good
	Told func(changed int, err error)               // of a new version, or once of what is wrong with it

	seen    []byte // at the last look; nil if that failed
	last    []byte // what was used last, good or bad; nil if there was nothing to read
	problem error  // with that
}

// Load reads the file and puts it in force if it is good. It blocks only if the
// file has changed within the last second: until two looks have found the same,
// or ctx is done.
func (f *File) Load(ctx context.Context) error {
	for {
		data, same, err := f.look()
		// Its time after the look: what was written before that is in it.
		info, _ := os.Stat(f.Path)
		if err != nil || same || info != nil && time.Since(info.ModTime()) >= time.Second {
			_, err := f.use(data, err)
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Run looks at the file once a second until ctx is done. It compares the content,
// as the time of a file may be the same after a change.
func (f *File) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
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
		if err == nil && (before != nil || changed > 0) ||
			err != nil && (before == nil || err.Error() != before.Error()) {
			f.Told(changed, err)
		}
	}
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
func (f *File) use(data []byte, err error) (changed int, _ error) {
	switch {
	case err != nil:
		f.last, f.problem = nil, err
	case f.last == nil || !bytes.Equal(data, f.last):
		f.last = data
		changed, f.problem = f.Use(data)
	}
	return changed, f.problem
}
