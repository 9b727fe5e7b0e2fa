// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
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
		t.Errorf("remembered %.1000v, want %.1000v", got, want)
	}
}

func mustSay(t *testing.T, name string, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "remember: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want one of the package that says %q", name, err, want)
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

type key struct {
	Space string
	Index int
}

func TestFileKeepsStringsStructsAndNumbers(t *testing.T) {
	long := strings.Repeat("x", 1<<21)
	keeps(t, map[string]string{"": "empty", "\xff\x00": "\xfe\xff", "a\nb": "x\ty", "<é>": "<é>", "\"\\": " ", long: long})
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	keeps(t, map[key]time.Time{{"a\t\n", 1}: at, {"a", 2}: at.Add(1), {"", 0}: at})
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

func TestFileRejectsValuesThatJSONChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	type hidden struct{ name string }
	type loose struct{ Any any }
	for want, err := range map[string]error{
		"hidden {a} comes back": open[hidden, int](t, path+"1").Begin(hidden{"a"}),
		"\xff 1} comes back":    open[key, int](t, path+"2").Begin(key{"\xff", 1}),
		"as time.Time":          open[string, time.Time](t, path+"3").Done("a", time.Now()),
		"NaN":                   open[float64, int](t, path+"4").Done(nan(), 1),
		"*int":                  open[*int, int](t, path+"5").Begin(new(int)),
		"as float64 1":          open[string, any](t, path+"6").Done("a", 1),
		"uncomparable":          open[loose, int](t, path+"7").Begin(loose{[]any{1.0}}),
		"version is the zero":   open[string, int](t, path+"8").Done("a", 0),
		"Path is required":      (&remember.File[string, int]{}).Open(),
		"x.lock: no such":       (&remember.File[string, int]{Path: filepath.Join(path, "x")}).Open(),
		"not open":              (&remember.File[string, int]{Path: path}).Begin("a"),
	} {
		mustSay(t, "", err, want)
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

func TestSecondOpenFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	must(t, f.Done("a", 1))
	other := &remember.File[string, int]{Path: path}
	mustSay(t, "same File", f.Open(), "open already")
	mustSay(t, "other File", other.Open(), "open already")
	must(t, f.Done("a", 1), f.Close(), other.Open())
	mustHold(t, other, map[string]int{"a": 1})
	must(t, other.Close())
}

// A file of another program is not changed.
func TestFileRejectsForeignFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	for _, text := range []string{"something else\n", "reconcile", strings.Repeat("\x00", 100)} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		f := &remember.File[string, int]{Path: path}
		mustSay(t, text, f.Open(), "no file of package remember")
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("it is now %q, %v, want %q", got, err, text)
		}
	}
	other := open[string, string](t, path+"2")
	must(t, other.Done("a", "no number"), other.Close())
	f := &remember.File[string, int]{Path: path + "2"}
	mustSay(t, "other types", f.Open(), `item "a", version "no number"`)
}

// The file stays short, however many runs there are.
func TestFileIsRewrittenWhenMostRecordsAreOld(t *testing.T) {
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

// Workers call at the same time, while the file is rewritten.
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

// An error fits in a line of a log, however long the values that it names are.
func TestErrorsAreShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	long := strings.Repeat("é", 1<<19+1)
	f := open[string, string](t, path)
	closed := open[string, string](t, path+"1")
	must(t, closed.Close())
	for name, err := range map[string]error{
		"zero version": f.Done(long, ""),
		"not open":     closed.Begin(long),
		"bad item":     open[key, int](t, path+"2").Begin(key{long + "\xff", 1}),
		"bad version":  open[string, key](t, path+"3").Done("a", key{long + "\xff", 1}),
	} {
		mustSay(t, name, err, "…")
		if len(err.Error()) > 1000 || !utf8.ValidString(err.Error()) {
			t.Errorf("%s: an error of %d bytes, valid %t: %.100v", name, len(err.Error()), utf8.ValidString(err.Error()), err)
		}
	}
}

// A symbolic link to the file stays a link, and the file is its target.
func TestFileBehindALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "m"), filepath.Join(dir, "link")
	must(t, os.Symlink("m", link))
	f := &remember.File[string, int]{Path: link, NoSync: true}
	mustSay(t, "link to nothing", f.Open(), "want a regular file, or a symbolic link to one")
	other := open[string, int](t, path)
	mustSay(t, "link to a file that is open", f.Open(), "open already")
	must(t, other.Close(), f.Open())
	must(t, written(f))
	must(t, f.Close(), other.Open())
	mustHold(t, other, map[string]int{"a": 3_000})
}

// A folder and a socket, which stands for all devices, are not changed. The test uses no
// real device, because an Open that accepts one would replace it.
func TestFileRejectsFoldersAndDevices(t *testing.T) {
	t.Chdir(t.TempDir()) // the path of a socket must be short
	listener, err := net.Listen("unix", "socket")
	must(t, err, os.Symlink("socket", "link"))
	defer listener.Close()
	for _, path := range []string{".", "socket", "link"} {
		mustSay(t, path, (&remember.File[string, int]{Path: path}).Open(), "want a regular file")
	}
	must(t, os.MkdirAll("m.new/full", 0o700))
	mustSay(t, "folder", (&remember.File[string, int]{Path: "m"}).Open(), "m.new")
	must(t, os.Remove("m.new/full")) // what is in the way of a new file is removed
	open[string, int](t, "m")
}

// A file whose records are all damaged is not taken for an empty file, and is not
// changed.
func TestFileRejectsAFileWithoutAnIntactRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	must(t, f.Begin("a"), f.Done("a", 1), f.Close())
	whole, err := os.ReadFile(path)
	must(t, err)
	first := bytes.IndexByte(whole, '\n') + 1
	lines := bytes.Clone(whole)
	for i := first; i < len(lines); i++ {
		if i == first || lines[i-1] == '\n' {
			lines[i] ^= 1
		}
	}
	zeros := append(bytes.Clone(whole[:first]), make([]byte, len(whole)-first)...)
	for name, damaged := range map[string][]byte{"each line": lines, "zeros": zeros} {
		must(t, os.WriteFile(path, damaged, 0o600))
		mustSay(t, name, f.Open(), "no whole record")
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, damaged) {
			t.Errorf("%s: it is now %q, %v", name, got, err)
		}
	}
}

// A truncated tail that is longer than half a record is kept beside the file.
func TestFileKeepsTheTruncatedTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	must(t, f.Begin("a"), f.Close())
	data, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(data, "half"...), 0o600), f.Open(), f.Close())
	if _, err := os.Stat(path + ".cut"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of half a record is kept: %v", err)
	}
	data, err = os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(data, "bad\nworse"...), 0o600), f.Open())
	mustHold(t, f, map[string]int{"a": 0})
	if got, err := os.ReadFile(path + ".cut"); err != nil || string(got) != "bad\nworse" {
		t.Errorf("kept aside is %q, %v", got, err)
	}
}

// Another program's file or link in the place of the next file is neither written to nor
// waited for.
func TestFileReplacesAForeignNextFile(t *testing.T) {
	dir := t.TempDir()
	path, theirs := filepath.Join(dir, "m"), filepath.Join(dir, "theirs")
	f := open[string, int](t, path)
	must(t, f.Close(), os.Chmod(path, 0o640))
	must(t, os.WriteFile(theirs, []byte("theirs"), 0o600), os.Symlink("theirs", path+".new"))
	f.NoSync = true
	must(t, f.Open(), written(f))
	if got, err := os.ReadFile(theirs); err != nil || string(got) != "theirs" {
		t.Errorf("the file that a link leads to is now %q, %v", got, err)
	}
	info, err := os.Lstat(path)
	must(t, err)
	if info.Mode() != 0o640 {
		t.Errorf("written anew, the file has the mode %v, want %v as before", info.Mode(), fs.FileMode(0o640))
	}
}

// A relative path is that of the working directory at Open, also after another one.
func TestFileStaysInAnotherWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	f := &remember.File[string, int]{Path: "m", NoSync: true}
	must(t, f.Open())
	t.Chdir(t.TempDir())
	must(t, written(f), f.Begin("b"), f.Close())
	f = open[string, int](t, filepath.Join(dir, "m"))
	if _, ok := f.Version("a"); !ok {
		t.Error("the first item is not remembered")
	}
}

// Another program moves the file, or replaces it by an older one. A call then returns an
// error, because its record would be lost.
func TestFileDetectsThatItWasMoved(t *testing.T) {
	for name, call := range map[string]func(*remember.File[string, int]) error{
		"Begin":   func(f *remember.File[string, int]) error { return f.Begin("b") },
		"Close":   func(f *remember.File[string, int]) error { return f.Close() },
		"rewrite": func(f *remember.File[string, int]) error { return written(f) },
	} {
		for how, move := range map[string]func(path string) error{
			"moved": func(path string) error { return os.Rename(path, path+".old") },
			"replaced": func(path string) error {
				return errors.Join(os.WriteFile(path+"2", nil, 0o600), os.Rename(path+"2", path))
			},
		} {
			path := filepath.Join(t.TempDir(), "m")
			f := &remember.File[string, int]{Path: path, NoSync: name == "rewrite"}
			must(t, f.Open(), f.Begin("a"), move(path))
			mustSay(t, name+" "+how, call(f), "moved away")
			f.Close()
		}
	}
}

// written makes calls until the file is written anew, or they fail.
func written(f *remember.File[string, int]) (err error) {
	for i := 1; err == nil && i <= 3_000; i++ {
		err = f.Done("a", i)
	}
	return err
}

// A moody value calls what a test wants when it becomes JSON and back.
type moody struct{ Name string }

var mood func()

func (m moody) MarshalJSON() ([]byte, error) {
	mood()
	return json.Marshal(m.Name)
}

func (m *moody) UnmarshalJSON(b []byte) error {
	mood()
	return json.Unmarshal(b, &m.Name)
}

// A value that panics while it is encoded is rejected, and later calls succeed.
func TestFileRejectsValuesThatPanic(t *testing.T) {
	mood = func() {}
	f := open[moody, string](t, filepath.Join(t.TempDir(), "m"))
	must(t, f.Begin(moody{"a"}), f.Close())
	mood = func() { panic("bad mood") }
	mustSay(t, "Open", f.Open(), "bad mood")
	mood = func() {}
	must(t, f.Open())
	mood = func() { panic("bad mood") }
	mustSay(t, "Begin", f.Begin(moody{"b"}), "bad mood")
}
