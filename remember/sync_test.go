// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

func openOn(t *testing.T, d *testDisk, noSync bool) *File[string, int] {
	t.Helper()
	f := &File[string, int]{Path: path, disk: d, NoSync: noSync}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	return f
}

// Only a Begin that changes something waits for the disk.
func TestFileSyncsOnceForABegin(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
		f := openOn(t, d, noSync)
		opened := d.syncs
		err := errors.Join(
			f.Done("a", 1), f.Begin("a"), f.Begin("a"), f.Done("a", 2), f.Begin("b"), f.Done("c", 1), f.Begin("b"), f.Forget("b"),
		)
		want := 2
		if noSync {
			want = 0
		}
		if got := d.syncs - opened; err != nil || got != want {
			t.Errorf("NoSync %t: %d times synced, error %v, want %d, nil", noSync, got, err, want)
		}
		before := d.syncs
		if err := f.Close(); err != nil || d.syncs != before+want/2 {
			t.Errorf("NoSync %t: %d times synced by Close, error %v, want %d, nil", noSync, d.syncs-before, err, want/2)
		}
		// What the process before wrote, the disk may not have.
		before = d.syncs
		f = openOn(t, d, noSync)
		if d.syncs != before+1 {
			t.Errorf("NoSync %t: %d times synced by Open, want once", noSync, d.syncs-before)
		}
		before = d.syncs
		if err := f.Begin("a"); err != nil || d.syncs != before+want/2 {
			t.Errorf("NoSync %t: %d times synced by Begin, error %v, want %d, nil", noSync, d.syncs-before, err, want/2)
		}
	}
}

// What was written while the disk was busy takes one sync, however many calls it was.
func TestFileSyncsOnceForManyCalls(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d, false)
	before := d.syncs
	var calls []uint64
	for i := range 10 { // each as far as Begin gets before it waits
		item := fmt.Sprint(i)
		r, err := f.encode(item, began, entry[int]{})
		if err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		upTo, _, err := f.noteLocked(item, began, entry[int]{}, r)
		f.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, upTo)
	}
	var workers sync.WaitGroup
	for _, upTo := range calls {
		workers.Go(func() {
			if err := f.flush(upTo); err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	if got := d.syncs - before; got != 1 {
		t.Errorf("%d times synced for 10 calls, want once", got)
	}
}

// What the disk has at Open, and what is written anew, it has: a call that waits for
// it needs no more, and the next record says so.
func TestFileKnowsWhatTheDiskHas(t *testing.T) {
	for name, make := range map[string]func(f *File[string, int]) error{
		"Open":          func(f *File[string, int]) error { return errors.Join(f.Close(), f.Open()) },
		"written anew":  func(f *File[string, int]) error { f.allowed = 0; return f.compact() },
		"one after two": func(f *File[string, int]) error { return f.Begin("c") },
	} {
		d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
		f := openOn(t, d, false)
		if err := errors.Join(f.Begin("a"), f.Done("b", 1), make(f)); err != nil {
			t.Fatal(err)
		}
		before, at := d.syncs, len(d.files[path].data)
		if err := errors.Join(f.Begin("a"), f.Done("b", 2)); err != nil || d.syncs != before {
			t.Errorf("%s: a Begin that is known and a Done sync %d times, error %v, want never, nil", name, d.syncs-before, err)
		}
		if r, n := parse(d.files[path].data[at:]); n == 0 || r.loose != 0 {
			t.Errorf("%s: the next record says that the disk may not have %d bytes, want 0", name, r.loose)
		}
	}
}

// A call waits for the disk while the file is written anew, and the folder of that is
// not synced: a loss of power may bring back the old file, without the call.
func TestFileDoesNotTrustAFolderThatWasNotSynced(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d, false)
	r, err := f.encode("a", began, entry[int]{})
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	upTo, _, err := f.noteLocked("a", began, entry[int]{}, r)
	f.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	f.allowed = 0
	d.failDir = true
	if err := f.compact(); !errors.Is(err, errFull) {
		t.Errorf("compact = %v, want %v", err, errFull)
	}
	if err := f.flush(upTo); !errors.Is(err, errFull) {
		t.Errorf("the call that waited returns %v, want %v", err, errFull)
	}
}

// A new file that could not be finished does not keep the space that is short.
func TestFileGivesBackTheSpaceOfANewFileThatFailed(t *testing.T) {
	for step := 2; step <= 4; step++ { // after create: write, sync, rename
		d := newTestDisk(rand.New(rand.NewPCG(1, uint64(step))))
		f := openOn(t, d, false)
		if err := errors.Join(f.Begin("a"), f.Done("b", 1)); err != nil {
			t.Fatal(err)
		}
		f.allowed = 0
		d.failAt = d.steps + step
		if err := f.compact(); err != nil {
			t.Errorf("step %d: compact = %v, want nil: the old file goes on", step, err)
		}
		if left := d.files[path+".new"]; left != nil {
			t.Errorf("step %d: %d bytes are left of the new file", step, len(left.data))
		}
		if err := f.Begin("c"); err != nil {
			t.Errorf("step %d: Begin = %v", step, err)
		}
	}
}

// After an fsync that failed, nobody knows what the disk has. The File says so until
// it is opened anew.
func TestFileStopsAfterASyncThatFailed(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d, false)
	if err := f.Done("a", 1); err != nil {
		t.Fatal(err)
	}
	d.failAt = d.steps + 2 // the write, and then the sync
	if err := f.Begin("b"); !errors.Is(err, errFull) {
		t.Errorf("Begin = %v, want %v", err, errFull)
	}
	for i, err := range []error{f.Begin("b"), f.Begin("c"), f.Done("b", 2), f.Forget("a")} {
		if !errors.Is(err, errFull) {
			t.Errorf("call %d after that = %v, want %v", i, err, errFull)
		}
	}
	if err := f.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close = %v, want %v", err, errFull)
	}
	f = openOn(t, d, false)
	if err := f.Begin("c"); err != nil {
		t.Errorf("Begin = %v after it was opened anew, want nil", err)
	}
}

// A write that failed, and cannot be cut off, leaves a file that must not be written
// to: what comes behind would be lost.
func TestFileStopsWhenAFailedWriteCannotBeCutOff(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d, false)
	d.killAt = d.steps + 1
	if err := f.Done("a", 1); !errors.Is(err, errKilled) {
		t.Errorf("Done = %v, want %v", err, errKilled)
	}
	d.killAt = 0 // it works again, too late
	if err := f.Done("a", 1); err == nil || !strings.Contains(err.Error(), "after a write that failed") {
		t.Errorf("Done = %v, want an error that tells of the write", err)
	}
	if err := f.Close(); err == nil {
		t.Error("Close = nil, want the error")
	}
	f = openOn(t, d, false)
	if err := errors.Join(f.Done("b", 2), f.Close()); err != nil {
		t.Error(err)
	}
	f = openOn(t, d, false)
	if got := maps.Collect(f.All()); got["b"] != 2 {
		t.Errorf("remembered %v, want b at 2", got)
	}
}
