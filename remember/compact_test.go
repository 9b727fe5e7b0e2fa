// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// madeBy returns how often the file is written anew by n calls that change something.
func madeBy(t *testing.T, d *testDisk, f *File[string, int], n int) int {
	t.Helper()
	before := d.made
	for range n {
		version, _ := f.Version("a")
		if err := f.Done("a", version+1); err != nil {
			t.Fatal(err)
		}
	}
	return d.made - before
}

// If the file cannot be written anew, it goes on, and the next try comes when it is
// twice as long; after one that succeeds, it may be as long as before.
func TestFileIsTriedAgainWhenItIsTwiceAsLong(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d, false)
	f.slack, f.allowed = 5, 2
	if made := madeBy(t, d, f, 2); made != 0 {
		t.Errorf("written anew %d times by two calls, want never", made)
	}
	d.failAt = d.steps + 3 // write, create, and then write
	for i, want := range []int{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1} {
		if made := madeBy(t, d, f, 1); made != want {
			t.Errorf("call %d: written anew %d times, want %d", i+3, made, want)
		}
	}
}

// How often the file is written anew does not depend on how much is remembered.
func TestFileOfManyItemsIsWrittenAnewAsSeldom(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d, true)
	f.slack = 1
	for i := range 100 {
		if err := f.Done(fmt.Sprint(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	f.allowed = 0
	if err := f.compact(); err != nil {
		t.Fatal(err)
	}
	if made := madeBy(t, d, f, 101); made != 0 {
		t.Errorf("written anew %d times by 101 calls, want never: half of it is not out of date", made)
	}
	if made := madeBy(t, d, f, 1); made != 1 {
		t.Errorf("written anew %d times by the next call, want once", made)
	}
}

// The file stays short, too, when no process makes many calls.
func TestFileOfManyProcessesIsWrittenAnew(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	for i := range 100 {
		f := reopen(t, d)
		if err := errors.Join(f.Done("a", i+1), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(d.files[path].data); n > 300 {
		t.Errorf("the file has %d bytes for one item", n)
	}
}

// Between the call that finds the file too long and the time when it has it for itself,
// another one may have closed it, or found that nothing can be written any more.
func TestFileThatIsClosedIsNotWrittenAnew(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d, false)
	if err := f.Done("a", 1); err != nil {
		t.Fatal(err)
	}
	f.allowed = 0
	f.err = errBroken
	before := d.steps
	if err := f.compact(); !errors.Is(err, errBroken) || d.steps != before {
		t.Errorf("compact = %v in %d steps, want %v at once", err, d.steps-before, errBroken)
	}
	f.err = nil
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	before = d.steps
	if err := f.compact(); err != nil || d.steps != before {
		t.Errorf("compact = %v in %d steps after Close, want nil at once", err, d.steps-before)
	}
	if got := maps.Collect(reopen(t, d).All()); got["a"] != 1 {
		t.Errorf("remembered %v, want a at 1", got)
	}
}

var errBroken = errors.New("broken")

// What says when it is closed that it was not written well is not put in the place of
// what was; and Close says so, too.
func TestFileThatDoesNotCloseWell(t *testing.T) {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := openOn(t, d, false)
	if err := f.Done("a", 1); err != nil {
		t.Fatal(err)
	}
	f.allowed = 0
	d.failClose = true
	old := d.files[path]
	if err := f.compact(); err != nil || d.files[path] != old {
		t.Errorf("compact = %v, the old file goes on: %t; want nil, true", err, d.files[path] == old)
	}
	if err := f.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close = %v, want %v", err, errFull)
	}
}

func TestRemoveRemoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.new")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	osDisk{}.remove(path)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after remove: %v, want %v", err, os.ErrNotExist)
	}
}
