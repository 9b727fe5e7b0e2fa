// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reconkernel/reconcile/remember"
)

func open[T, V comparable](t *testing.T, path string) *remember.File[T, V] {
	t.Helper()
	f := &remember.File[T, V]{Path: path}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

func mustHold[T, V comparable](t *testing.T, f *remember.File[T, V], want map[T]V) {
	t.Helper()
	if got := maps.Collect(f.All()); !maps.Equal(got, want) {
		t.Errorf("remembered:\n got %v\nwant %v", got, want)
	}
}

func TestFileRemembersAcrossProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	mustHold(t, f, map[string]int{})
	must(
		t,
		f.Begin("done"), f.Done("done", 1),
		f.Begin("begun"),
		f.Done("changing", 1), f.Begin("changing"),
		f.Done("changed", 1), f.Begin("changed"), f.Done("changed", 2),
		f.Begin("gone"), f.Done("gone", 1), f.Begin("gone"), f.Forget("gone"),
		f.Forget("never seen"),
	)
	want := map[string]int{"done": 1, "begun": 0, "changing": 0, "changed": 2}
	for i := range 4 {
		mustHold(t, f, want)
		for item, version := range want {
			if got, ok := f.Version(item); got != version || ok != (version > 0) {
				t.Errorf("Version(%s) = %d, %t, want %d, %t", item, got, ok, version, version > 0)
			}
		}
		if _, ok := f.Version("gone"); ok {
			t.Error("Version knows what is gone")
		}
		must(t, f.Close(), f.Close())
		if i%2 == 0 {
			f = &remember.File[string, int]{Path: path}
		}
		must(t, f.Open())
	}
	must(t, f.Close())
}

func TestFileWritesNothingThatItKnows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	must(t, f.Begin("a"), f.Done("b", 1), f.Begin("c"), f.Forget("c"))
	size := func() int64 {
		info, err := os.Stat(path)
		must(t, err)
		return info.Size()
	}
	before := size()
	must(t, f.Begin("a"), f.Done("b", 1), f.Forget("c"))
	if after := size(); after != before {
		t.Errorf("the file has %d bytes after calls that change nothing, %d before", after, before)
	}
}

func TestFileKeepsAnyString(t *testing.T) {
	keeps(t, map[string]string{"": "empty", "\xff\x00": "\xfe\xff", "a\nb": "x", "<é>": "<é>", strings.Repeat("x", 1<<19): "y", "most": strings.Repeat("x", 1<<20-4)})
}

type key struct {
	Space string
	Index int
}

func TestFileKeepsStructsAndNumbers(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	keeps(t, map[key]time.Time{{"a", 1}: at, {"a", 2}: at.Add(1), {"", 0}: at})
}

// keeps checks that a file has these versions when it is opened again.
func keeps[T, V comparable](t *testing.T, want map[T]V) {
	t.Helper()
	f := open[T, V](t, filepath.Join(t.TempDir(), "m"))
	for item, version := range want {
		must(t, f.Begin(item), f.Done(item, version))
	}
	must(t, f.Close(), f.Open())
	mustHold(t, f, want)
}

func TestFileRefusesWhatWouldNotBeFoundAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	type hidden struct{ name string }
	for name, err := range map[string]error{
		"hidden field":   open[hidden, int](t, path+"1").Begin(hidden{"a"}),
		"no UTF-8":       open[key, int](t, path+"2").Begin(key{"\xff", 1}),
		"local time":     open[string, time.Time](t, path+"3").Done("a", time.Now()),
		"not a number":   open[float64, int](t, path+"4").Begin(nan()),
		"too long":       open[string, string](t, path+"5").Done("a", strings.Repeat("x", 1<<20)),
		"zero version":   open[string, int](t, path+"0").Done("a", 0),
		"pointer":        (&remember.File[*int, int]{Path: path + "6"}).Open(),
		"interface":      (&remember.File[string, any]{Path: path + "7"}).Open(),
		"no path":        (&remember.File[string, int]{}).Open(),
		"no such folder": (&remember.File[string, int]{Path: filepath.Join(path, "x", "y")}).Open(),
		"not open":       (&remember.File[string, int]{Path: path}).Begin("a"),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "remember: ") {
			t.Errorf("%s: error %v, want one that begins with the package", name, err)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	for i := 1; i <= 5; i++ {
		must(t, open[string, string](t, fmt.Sprint(path, "ok", i)).Begin("a"))
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

func TestFileIsOpenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	must(t, f.Done("a", 1))
	other := &remember.File[string, int]{Path: path}
	for name, err := range map[string]error{"same": f.Open(), "other": other.Open()} {
		if err == nil || !strings.Contains(err.Error(), "open already") {
			t.Errorf("%s File: Open = %v, want an error", name, err)
		}
	}
	must(t, f.Close(), other.Open())
	mustHold(t, other, map[string]int{"a": 1})
	must(t, other.Close())
}

// Somebody else's file is not touched.
func TestFileRefusesForeignFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	for _, text := range []string{"something else\n", "reconcile", strings.Repeat("\x00", 100)} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		f := &remember.File[string, int]{Path: path}
		if err := f.Open(); err == nil || !strings.Contains(err.Error(), "no file of package remember") {
			t.Errorf("Open of %q = %v, want an error", text, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("it is now %q, %v, want %q", got, err, text)
		}
	}
	other := open[string, string](t, path+"2")
	must(t, other.Done("a", "no number"), other.Close())
	f := &remember.File[string, int]{Path: path + "2"}
	if err := f.Open(); err == nil || !strings.Contains(err.Error(), `"no number" of item "a"`) {
		t.Errorf("Open of a file with other types = %v, want an error that names the item", err)
	}
}

// The file stays short, however many runs there are.
func TestFileIsWrittenAnewWhenMostOfItIsOld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := &remember.File[string, int]{Path: path, NoSync: true}
	must(t, f.Open())
	for i := range 5_000 {
		must(t, f.Begin("a"), f.Done("a", i+1), f.Begin("b"))
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() > 40_000 {
		t.Errorf("the file has %d bytes for two items", info.Size())
	}
	must(t, f.Close(), f.Open())
	mustHold(t, f, map[string]int{"a": 5_000, "b": 0})
	if version, ok := f.Version("b"); ok {
		t.Errorf("b is done at version %d, want begun", version)
	}
	must(t, f.Close())
}

// Workers call at the same time, and the file is written anew under way.
func TestFileForManyWorkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	var workers sync.WaitGroup
	want := make(map[string]int)
	for w := range 8 {
		item := fmt.Sprint("item", w)
		want[item] = 50
		workers.Go(func() {
			for i := range 50 {
				if err := f.Begin(item); err != nil {
					t.Error(err)
				}
				for range f.All() {
					f.Version(item)
					break
				}
				if err := f.Done(item, i+1); err != nil {
					t.Error(err)
				}
				if err := f.Forget(item + "x"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	mustHold(t, f, want)
	must(t, f.Close(), f.Open())
	mustHold(t, f, want)
}

// An error fits a line of a log, however long is what it is about.
func TestErrorsAreShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	long := strings.Repeat("é", 1<<19+1)
	f := open[string, string](t, path)
	closed := open[string, string](t, path+"1")
	must(t, closed.Close())
	for name, err := range map[string]error{
		"long item":    f.Begin(long),
		"long version": f.Done("a", long),
		"not open":     closed.Begin(long),
		"bad item":     open[key, int](t, path+"2").Begin(key{long + "\xff", 1}),
		"bad version":  open[string, key](t, path+"3").Done("a", key{long + "\xff", 1}),
	} {
		switch {
		case err == nil:
			t.Errorf("%s: no error", name)
		case len(err.Error()) > 1000 || !utf8.ValidString(err.Error()):
			t.Errorf("%s: an error of %d bytes, valid %t: %.100v", name, len(err.Error()), utf8.ValidString(err.Error()), err)
		default:
			t.Logf("%s: %v", name, err)
		}
	}
	mustHold(t, f, map[string]string{})
}

// A link to the file stays one, and what it points to is the file.
func TestFileBehindALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "m"), filepath.Join(dir, "link")
	must(t, os.Symlink("m", link))
	f := &remember.File[string, int]{Path: link, NoSync: true}
	if err := f.Open(); err == nil || !strings.Contains(err.Error(), "link to nothing") {
		t.Fatalf("Open of a link to nothing = %v, want an error that says so", err)
	}
	other := open[string, int](t, path)
	if err := f.Open(); err == nil || !strings.Contains(err.Error(), "open already") {
		t.Fatalf("Open of a link to a file that is open = %v, want an error that says so", err)
	}
	must(t, other.Close(), f.Open())
	for i := range 3_000 { // so it is written anew
		must(t, f.Done("a", i+1))
	}
	must(t, f.Close(), other.Open())
	mustHold(t, other, map[string]int{"a": 3_000})
}
