// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package tracker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// settled is the time between the two reads of a file that must agree before it is used:
// half of a file may be a good one that has less.
const settled = time.Second

// maxFile is how many bytes a file may have.
const maxFile = 64 << 20

// FromFile returns a function that reads a file of desired state. It returns the result
// of parse for the last text that parse accepted, or the zero value if there was none. If
// the file has another text now, or cannot be read, it also returns an error: that of
// reading, of ctx, or of parse, unchanged. So a mistake in the file does not remove
// items, and the caller reports the reason:
//
//	desired := tracker.FromFile("desired.json", parse)
//	poller.GetItems = func(ctx context.Context) ([]string, error) {
//		all, err := desired(ctx)
//		return slices.Collect(maps.Keys(all)), err // the items count, the error is logged
//	}
//
// If W is a map of items to versions, [FromMap] accepts the function.
//
// The path must lead to a regular file of at most 64 MiB. Anything else, such as a pipe
// or a folder, is an error of reading.
//
// A text that is still being written is not used. If the text differs from the last one,
// the function blocks until two reads a second apart agree, or until ctx is done. It
// ignores the modification time, because some file systems store it coarsely. Programs
// that write with longer pauses must replace the file in one step.
//
// The function may be called from any goroutine, and parse is called by one goroutine at
// a time. All callers get the same value, which must not be changed. Parse is called
// again when the text has changed. FromFile panics if parse is nil.
func FromFile[W any](path string, parse func(text []byte) (W, error)) func(ctx context.Context) (W, error) {
	if parse == nil {
		panic("tracker: FromFile: parse is nil")
	}
	f := &file[W]{path: path, parse: parse, turn: make(chan struct{}, 1)}
	f.good.Store(new(W))
	return func(ctx context.Context) (W, error) {
		err := f.load(ctx)
		return *f.good.Load(), err
	}
}

// A file is one that FromFile reads.
type file[W any] struct {
	path  string
	parse func(text []byte) (W, error)
	good  atomic.Pointer[W] // what parse made of the last text that it took
	turn  chan struct{}     // has an element while a call goes on, to which the fields below belong

	text []byte // what was parsed last; nil if nothing was
	err  error  // of that
}

// load brings good up to date.
func (f *file[W]) load(ctx context.Context) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%s is being read: %w", f.path, context.Cause(ctx))
	}
	text, err := f.read(ctx)
	if err != nil {
		return err
	}
	if f.text == nil || !bytes.Equal(text, f.text) {
		value, err := f.parse(text)
		if err == nil {
			f.good.Store(&value)
		}
		f.text, f.err = text, err
	}
	return f.err
}

// read returns the text once it has settled.
func (f *file[W]) read(ctx context.Context) ([]byte, error) {
	var before []byte // what it was a second ago; not nil then
	for {
		text, err := readFile(f.path)
		if err != nil {
			return nil, err
		}
		if before != nil && bytes.Equal(text, before) || f.text != nil && bytes.Equal(text, f.text) {
			return text, nil
		}
		before = text
		select {
		case <-time.After(settled):
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is still being written: %w", f.path, context.Cause(ctx))
		}
	}
}

// readFile is os.ReadFile of a regular file of a bounded size. It asks before it opens the
// file, because to open a pipe waits for whoever writes to it.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); mode.IsDir() {
		return nil, fmt.Errorf("read %s: it is a directory, want a regular file", path)
	} else if !mode.IsRegular() {
		return nil, fmt.Errorf("read %s: its mode is %v, want a regular file", path, mode)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(text) > maxFile {
		return nil, fmt.Errorf("read %s: it has more than %d bytes", path, maxFile)
	}
	return text, err
}
