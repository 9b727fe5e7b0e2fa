// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
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
	fails  int // how many steps fail from there on; 0 means one
	locked bool

	syncTakes time.Duration // in a bubble
	mu        sync.Mutex    // held in steps of a file that others may be in
}

type content struct {
	data, safe []byte
	lost       int // from there on no sync brings it to the disk, until it is written again
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

// afterPowerLoss keeps what was synced. Of the rest chance decides, page by page,
// whether it is there, is as it was before, or is a hole; and how much of the end.
func (d *testDisk) afterPowerLoss() *testDisk {
	next := newTestDisk(d.rnd)
	names := d.safe
	if d.rnd.IntN(2) == 0 {
		names = d.files
	}
	for name, c := range names {
		least := min(len(c.data), len(c.safe))
		data := make([]byte, least+d.rnd.IntN(max(len(c.data), len(c.safe))-least+1))
		copy(data, c.safe)
		lost := d.rnd.IntN(3) // nothing, a third, or all
		for from := 0; from < min(len(data), len(c.data)); from += page {
			if lost == 0 || lost == 1 && d.rnd.IntN(3) > 0 {
				copy(data[from:], c.data[from:min(from+page, len(c.data))])
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
	case d.failAt > 0 && d.steps >= d.failAt && d.steps < d.failAt+max(1, d.fails):
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
		return slices.Clone(c.data), nil
	}
	return nil, fs.ErrNotExist
}

func (d *testDisk) create(path, _ string) (file, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	d.files[path] = new(content)
	d.made++
	d.opened++
	return &testFile{disk: d, c: d.files[path]}, nil
}

func (d *testDisk) open(path string) (file, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	if d.files[path] == nil {
		return nil, fs.ErrNotExist
	}
	d.opened++
	return &testFile{disk: d, c: d.files[path]}, nil
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

type unlocker struct{ *testDisk }

func (u unlocker) Close() error {
	u.locked = false
	return nil
}

type testFile struct {
	disk   *testDisk
	c      *content
	closed bool
}

func (f *testFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n := len(p)
	err := f.step()
	if err != nil { // some of it may be written, or all
		n = f.disk.rnd.IntN(n + 1)
	}
	if err == nil && int(off) <= f.c.lost {
		f.c.lost = 0
	}
	old := f.c.data
	f.c.data = slices.Concat(old[:off], p[:n], old[min(int(off)+n, len(old)):])
	return n, err
}

func (f *testFile) Sync() error {
	time.Sleep(f.disk.syncTakes)
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.syncs++
	err := f.step()
	if err == nil && f.c.lost == 0 {
		f.c.safe = f.c.data
	}
	return err
}

func (f *testFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
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
	return f.disk.step()
}

func (f *testFile) step() error {
	if f.closed {
		return fs.ErrClosed
	}
	return f.disk.step()
}
