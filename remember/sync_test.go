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

// Only a Begin that changes something waits for the disk, and what is known already is
// not written.
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
			wantSyncs, wantLines = []int{2, 2, 2, 2, 3, 3, 3}, []int{1, 7, 7, 7, 8, 9, 9}
		}
		if !slices.Equal(syncs, wantSyncs) || !slices.Equal(lines, wantLines) {
			t.Errorf("NoSync %t: synced %v times by then, with %v lines, want %v, %v", noSync, syncs, lines, wantSyncs, wantLines)
		}
	}
}

// What is written while the disk is busy takes one sync, however many calls it is, and
// who need not wait for the disk does not. Close waits.
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

// If the file cannot be written anew, it goes on, and the next try comes when it is
// twice as long; after one that succeeds, it may have twice the records that it needs,
// and some more. One says that the disk has the others.
func TestFileIsWrittenAnewNowAndThen(t *testing.T) {
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

// After a step of which nobody knows what it left, nothing is written any more until the
// file is opened anew.
func TestFileStopsAfterASyncThatFailed(t *testing.T) {
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

// What says when it is closed that it was not written well is not put in the place of
// what was; and Close says so, too.
func TestFileThatDoesNotCloseWell(t *testing.T) {
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
