// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Only a Begin that changes the state waits for the disk. A known state is not written
// again.
func TestFileSyncsOnceForABegin(t *testing.T) {
	for _, noSync := range []bool{false, true} {
		d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
		f := &File[string, int]{Path: path, disk: d, NoSync: noSync}
		var syncs, lines []int
		note := func(errs ...error) {
			t.Helper()
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			states, _ := statesOf(t, d.files[path].data)
			syncs, lines = append(syncs, d.syncs), append(lines, len(states)-1)
		}
		note(f.Open()) // with a line that says that the disk has it all
		note(f.Done("a", 1), f.Begin("a"), f.Begin("a"), f.Done("a", 2), f.Begin("b"), f.Done("c", 1), f.Begin("b"), f.Forget("b"))
		note(f.Done("a", 2), f.Forget("b"))
		note(f.Close())
		note(f.Open()) // what the process before wrote, the disk may not have
		note(f.Begin("a"))
		note(f.Begin("a"))
		wantSyncs, wantLines := []int{2, 4, 4, 5, 6, 7, 7}, []int{1, 7, 7, 8, 8, 9, 9}
		if noSync {
			wantSyncs, wantLines = []int{2, 2, 2, 3, 4, 4, 4}, []int{1, 7, 7, 8, 8, 9, 9}
		}
		if !slices.Equal(syncs, wantSyncs) || !slices.Equal(lines, wantLines) {
			t.Errorf("NoSync %t: synced %v times by then, with %v lines, want %v, %v", noSync, syncs, lines, wantSyncs, wantLines)
		}
	}
}

// All calls during one sync share the next sync. Calls that need not wait for the disk do
// not wait. Close waits.
func TestFileWhileTheDiskIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
		f := openOn(t, d)
		d.syncTakes, f.allowed = time.Second, 100
		start, before := time.Now(), d.syncs
		var workers sync.WaitGroup
		begin := func(item string, seconds time.Duration) {
			workers.Go(func() {
				if err := f.Begin(item); err != nil || time.Since(start) != seconds*time.Second {
					t.Errorf("Begin(%s) = %v after %v, want nil after %d s", item, err, time.Since(start), seconds)
				}
			})
			synctest.Wait()
		}
		begin("first", 1)
		if err := f.Done("done", 1); err != nil || time.Since(start) != 0 {
			t.Errorf("Done = %v after %v, want nil at once", err, time.Since(start))
		}
		for i := range 5 {
			begin(fmt.Sprint(i), 2)
		}
		begin("first", 1)
		workers.Wait()
		if got := d.syncs - before; got != 2 {
			t.Errorf("%d times synced for 6 calls, want twice", got)
		}

		start = time.Now()
		begin("last", 1)
		f.allowed, d.syncTakes = 0, 0 // it is written anew by the call that waits, before Close
		made := d.made
		if err := f.Done("done", 2); err != nil || d.made != made {
			t.Errorf("Done = %v, written anew: %t", err, d.made > made)
		}
		err := f.Close()
		workers.Wait()
		if err != nil || d.made != made+1 {
			t.Errorf("Close = %v, written anew %d times, want once", err, d.made-made)
		}
	})
}

// If the file cannot be rewritten, calls succeed, and the next attempt comes when the
// file is twice as long. After a rewrite that succeeds, the file may grow to twice the
// records that it needs, and some more.
func TestFileRewriteIsRetriedAfterAFailure(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d)
	if err := errors.Join(f.Done("b", 1), f.Done("c", 1), f.Close(), f.Open()); err != nil || f.records != 4 {
		t.Fatalf("%v, %d records, want nil, 4", err, f.records)
	}
	f.allowed = 5
	var made []int
	for i := range 18 {
		before := d.made
		if i == 1 {
			d.failAt = d.steps + 3 // write, create, and then write
		}
		if err := f.Done("a", i+1); err != nil {
			t.Fatal(err)
		}
		if d.made > before {
			made = append(made, i)
		}
	}
	if want := []int{1, 8, 17}; !slices.Equal(made, want) {
		t.Errorf("written anew by the calls %v, want %v", made, want)
	}
}

// After a step with an unknown result, nothing is written until the file is opened again.
func TestFileStopsAfterAFailedSync(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d)
	d.failAt = d.steps + 2 // the write, and then the sync
	for i, err := range []error{f.Begin("b"), f.Begin("b"), f.Begin("c"), f.Done("b", 2), f.Forget("a")} {
		if !errors.Is(err, errFull) {
			t.Errorf("call %d = %v, want %v", i, err, errFull)
		}
	}
	mustNotCompact(t, d, f)
	if err := f.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close = %v, want %v", err, errFull)
	}
	if err := errors.Join(f.Open(), f.Begin("c"), f.Close()); err != nil {
		t.Errorf("Begin = %v after it was opened anew, want nil", err)
	}
	mustNotCompact(t, d, f)
}

// The same holds after a failed write that could not be truncated, although a sync that
// had begun before it succeeds.
func TestFileStopsAfterAFailedTruncation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
		f := openOn(t, d)
		d.syncTakes = time.Second
		var worker sync.WaitGroup
		worker.Go(func() {
			if err := f.Begin("a"); err != nil {
				t.Errorf("Begin = %v, want nil", err)
			}
		})
		synctest.Wait()
		d.failAt, d.fails = d.steps+1, 2 // the write, and what cuts it off
		for i, err := range []error{f.Forget("a"), f.Done("b", 1)} {
			if !errors.Is(err, errFull) {
				t.Errorf("call %d during the sync = %v, want %v", i, err, errFull)
			}
		}
		worker.Wait()
		if err := f.Done("b", 1); !errors.Is(err, errFull) {
			t.Errorf("Done after the sync = %v, want %v", err, errFull)
		}
	})
}

// mustNotCompact is for a File that was closed, or stopped, while a call waited for the
// disk.
func mustNotCompact(t *testing.T, d *testDisk, f *File[string, int]) {
	t.Helper()
	before := d.steps
	f.allowed = -1
	if err := f.compactLocked(); err != nil || d.steps != before {
		t.Errorf("compact = %v in %d steps, want nil in none", err, d.steps-before)
	}
}

// If the close of the next file fails, the next file does not replace the old one, and
// Close returns the error.
func TestFailedCloseOfTheNextFileKeepsTheOldOne(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d)
	f.allowed = 0
	old := d.files[path]
	d.failAt = d.steps + 4 // create, write, sync, close
	if err := f.compactLocked(); err != nil || d.files[path] != old || d.steps < d.failAt {
		t.Errorf("compact = %v, the old file goes on: %t; want nil, true", err, d.files[path] == old)
	}
	d.failAt = d.steps + 2 // sync, close
	if err := f.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close = %v, want %v", err, errFull)
	}
}

// An Open that fails on an empty file leaves it so that the next Open succeeds.
func TestFailedOpenLeavesAnEmptyFile(t *testing.T) {
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

// After a failed fsync in an earlier process, the next fsync succeeds although the data
// of the failed one is lost.
func TestFileAfterAFailedSyncOfAnotherProcess(t *testing.T) {
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

// A write that returns an error may have taken place nevertheless.
func TestFileUndoesAFailedWrite(t *testing.T) {
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

// A Begin that still waits when the file is closed, removed and opened again fails, and
// its record is not in the new file.
func TestFileReopenedWhileABeginWaits(t *testing.T) {
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

// A second Open does not disturb calls in progress. The race detector checks this.
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
