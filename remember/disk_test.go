// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
)

var (
	errKilled = errors.New("killed")
	errFull   = errors.New("disk full")
)

// A testDisk is a disk in memory. After a number of steps it is dead, as it is for a
// process that was killed; or one of its steps fails.
type testDisk struct {
	rnd    *rand.Rand
	files  map[string]*content
	safe   map[string]*content // what a loss of power leaves of files
	steps  int
	syncs  int // of files
	opened int // files that are not closed
	made   int // files that were created
	killAt int // the step in which the process is killed; 0 means never
	failAt int // the step that fails; 0 means none
	locked bool

	failDir   bool // syncDir fails
	failClose bool // files say that they could not be closed well, and are closed
}

type content struct {
	data, safe []byte
}

func newTestDisk(rnd *rand.Rand) *testDisk {
	return &testDisk{rnd: rnd, files: make(map[string]*content), safe: make(map[string]*content)}
}

// afterKill is the disk as the next process finds it.
func (d *testDisk) afterKill() *testDisk {
	next := newTestDisk(d.rnd)
	next.files, next.safe = d.files, d.safe
	return next
}

// page is how much of a file a disk writes at once; which page comes first, it decides.
const page = 20

// afterPowerLoss keeps what was synced, and of the rest what chance decides: not to its
// end, and with holes.
func (d *testDisk) afterPowerLoss() *testDisk {
	next := newTestDisk(d.rnd)
	names := d.safe
	if d.rnd.IntN(2) == 0 {
		names = d.files
	}
	for name, c := range names {
		data := c.safe
		if n := len(c.data) - len(c.safe); n > 0 && string(c.data[:len(c.safe)]) == string(c.safe) {
			data = c.data[:len(c.safe)+d.rnd.IntN(n+1)]
		}
		data = append([]byte(nil), data...)
		if d.rnd.IntN(2) == 0 {
			for i := len(c.safe); i < len(data); i += page {
				if d.rnd.IntN(3) == 0 {
					clear(data[i:min(i+page, len(data))])
				}
			}
		}
		next.files[name] = &content{data: data, safe: data}
	}
	next.safe = maps.Clone(next.files)
	return next
}

func (d *testDisk) step() error {
	d.steps++
	switch {
	case d.killAt > 0 && d.steps >= d.killAt:
		return errKilled
	case d.steps == d.failAt:
		return errFull
	}
	return nil
}

func (d *testDisk) resolve(path string) (string, error) { return path, nil }

func (d *testDisk) isAt(file, string) error { return nil }

func (d *testDisk) read(path string) ([]byte, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	if c := d.files[path]; c != nil {
		return append([]byte(nil), c.data...), nil
	}
	return nil, nil
}

func (d *testDisk) append(path string) (file, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	if c := d.files[path]; c != nil {
		return d.open(c), nil
	}
	return nil, fs.ErrNotExist
}

func (d *testDisk) create(path string) (file, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	c := d.files[path]
	if c == nil {
		c = new(content)
		d.files[path] = c
	}
	c.data = nil
	d.made++
	return d.open(c), nil
}

func (d *testDisk) open(c *content) *testFile {
	d.opened++
	return &testFile{disk: d, c: c}
}

func (d *testDisk) rename(from, to string) error {
	if err := d.step(); err != nil {
		return err
	}
	d.files[to] = d.files[from]
	delete(d.files, from)
	return nil
}

func (d *testDisk) remove(path string) {
	if d.step() == nil {
		delete(d.files, path)
	}
}

func (d *testDisk) syncDir(string) error {
	if err := d.step(); err != nil {
		return err
	}
	if d.failDir {
		return errFull
	}
	d.safe = maps.Clone(d.files)
	return nil
}

func (d *testDisk) lock(string) (io.Closer, error) {
	if d.locked {
		return nil, errors.New("locked")
	}
	d.locked = true
	return unlocker{d}, nil
}

type unlocker struct{ d *testDisk }

func (u unlocker) Close() error {
	u.d.locked = false
	return nil
}

type testFile struct {
	disk   *testDisk
	c      *content
	closed bool
}

func (f *testFile) Write(p []byte) (int, error) {
	n := len(p)
	err := f.step()
	if err != nil { // some of it may be written
		n = f.disk.rnd.IntN(n + 1)
	}
	f.c.data = append(f.c.data, p[:n]...)
	return n, err
}

func (f *testFile) Sync() error {
	f.disk.syncs++
	err := f.step()
	if err == nil {
		f.c.safe = append([]byte(nil), f.c.data...)
	}
	return err
}

func (f *testFile) Truncate(size int64) error {
	err := f.step()
	if err == nil {
		f.c.data = f.c.data[:size:size]
	}
	return err
}

func (f *testFile) Close() error {
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	f.disk.opened--
	if f.disk.failClose {
		return errFull
	}
	return nil
}

func (f *testFile) step() error {
	if f.closed {
		return fs.ErrClosed
	}
	return f.disk.step()
}
