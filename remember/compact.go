// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"bufio"
	"cmp"
	"fmt"
)

// This file holds how the log is written anew when most of it is out of date: beside
// the old one, and then put in its place.

// compact writes the log anew if it is still too long. If that does not succeed and
// the old one goes on, this is no error: it is tried again when the log is twice as
// long.
func (f *File[T, V]) compact() error {
	f.syncing.Lock()
	defer f.syncing.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil || f.err != nil || f.records <= f.allowed {
		return f.err
	}
	if err := f.disk.isAt(f.file, f.path); err != nil {
		f.err = err
		return err
	}
	if f.rewrite() != nil {
		f.allowed = 2 * f.records
	}
	return f.err
}

// rewrite puts a log of all entries into the place of the old one, if there is one,
// and opens it. If it returns an error, and does not set err, the old one goes on.
// Both locks are held.
func (f *File[T, V]) rewrite() error {
	next := f.path + ".new"
	size, err := f.writeAll(next)
	if err != nil {
		f.disk.remove(next) // it takes space, which may be what is short
		return err
	}
	if f.file != nil {
		f.file.Close() // as some systems do not rename to what is open
	}
	renamed := f.disk.rename(next, f.path)
	if renamed != nil {
		f.disk.remove(next)
	}
	switch {
	case renamed == nil:
		f.size, f.records, f.checked = size, len(f.entries), true
		f.allow()
		// Until the disk has the folder, a loss of power may bring back the old
		// log, without what is appended to the new one.
		if err := f.disk.syncDir(f.path); err != nil {
			f.err = err
			return err
		}
		f.safe, f.synced = size, f.written
	case f.file == nil: // there is no old one
		return renamed
	}
	file, err := f.disk.append(f.path)
	if err != nil {
		f.err = err
		return err
	}
	f.file = file
	return renamed
}

// allow decides how long the log may grow.
func (f *File[T, V]) allow() { f.allowed = 2*len(f.entries) + cmp.Or(f.slack, 1024) }

// writeAll writes a log of all entries, and returns its size.
func (f *File[T, V]) writeAll(path string) (size int64, err error) {
	file, err := f.disk.create(path)
	if err != nil {
		return 0, err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	w := bufio.NewWriterSize(file, 1<<16)
	var text []byte
	write := func(p []byte) {
		size += int64(len(p))
		w.Write(p) // its errors are those of Flush
	}
	write([]byte(magic))
	for item, e := range f.entries {
		r := record{verb: did}
		if r.item, err = f.item.encode(item); err != nil {
			return 0, fmt.Errorf("item %v: %w", item, err)
		}
		if e.begun > 0 {
			r.verb = began
		} else if r.version, err = f.ver.encode(e.version); err != nil {
			return 0, fmt.Errorf("version %v: %w", e.version, err)
		}
		text = r.append(text[:0])
		write(text)
	}
	write(checkpoint(len(f.entries)).append(nil))
	if err := w.Flush(); err != nil {
		return 0, err
	}
	return size, file.Sync()
}
