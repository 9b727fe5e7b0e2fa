// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

// An Open that fails leaves an empty file so that the next one succeeds.
func TestFileThatIsEmptyAndDoesNotOpen(t *testing.T) {
	for step := 1; step < 12; step++ {
		d := diskWith(nil)
		d.failAt = step
		f := &File[string, int]{Path: path, disk: d}
		if f.Open() != nil && d.opened != 0 {
			t.Errorf("step %d failed: %d files stay open", step, d.opened)
		}
		openOn(t, d.afterKill())
	}
}

// After an fsync that failed in the process before, the next one succeeds without what
// that was for.
func TestFileAfterASyncThatFailedInAnotherProcess(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d)
	before := len(d.files[path].data)
	d.failAt = d.steps + 2
	if f.Begin("a") == nil {
		t.Fatal("Begin = nil, want the error of the fsync")
	}
	d.files[path].lost = before
	d = d.afterKill()
	if err := openOn(t, d).Begin("a"); err != nil {
		t.Fatal(err)
	}
	c := d.files[path]
	if f = openOn(t, diskWith(c.safe)); len(holds(f)) != 1 {
		t.Errorf("after a loss of power it holds %v, want a", holds(f))
	}
}

// A write that fails may have been done all the same.
func TestFileUndoesAWriteThatFailed(t *testing.T) {
	for seed := range uint64(300) {
		d := newTestDisk(rand.New(rand.NewPCG(seed, 1)))
		f := openOn(t, d)
		if err := f.Begin("a"); err != nil {
			t.Fatal(err)
		}
		d.failAt = d.steps + 1
		if f.Forget("a") == nil {
			t.Fatal("Forget = nil, want an error")
		}
		if err := f.Begin("a"); err != nil {
			t.Fatal(err)
		}
		if f = openOn(t, d.afterKill()); len(holds(f)) != 1 {
			t.Fatalf("seed %d: it holds %v, want a", seed, holds(f))
		}
	}
}

// A Begin that still waits when the file was closed, removed and opened again does not
// succeed; what it noted is not in the new one.
func TestFileOpenedAgainWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
		f := openOn(t, d)
		f.syncing = true // as another Begin does
		result := make(chan error, 1)
		go func() { result <- f.Begin("a") }()
		synctest.Wait()

		f.mu.Lock() // the waiter wakes after all of this
		f.syncing = false
		f.idle.Broadcast()
		f.file.Close()
		f.lock.Close()
		f.file, f.entries, f.err = nil, nil, errFull
		delete(d.files, path)
		if err := f.openLocked(); err != nil {
			t.Error(err)
		}
		f.mu.Unlock()
		if err := <-result; err == nil {
			t.Errorf("Begin = nil, and it holds %v", holds(f))
		}
	})
}

// An Open too many disturbs no others; the race detector sees it.
func TestFileOpenWhileOthersBegin(t *testing.T) {
	f := &File[int, int]{Path: t.TempDir() + "/log"}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 50 {
			if err := f.Begin(i); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 200 {
		if f.Open() == nil {
			t.Error("a second Open = nil, want an error")
		}
	}
	<-ended
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
