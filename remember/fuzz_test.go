// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/reconkernel/reconcile/remember"
)

// FuzzOpen opens files with anything in them: one is refused, and stays as it is, or is
// opened, and then says the same when it is opened again.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	path := filepath.Join(dir, "memory")
	seed := remember.File[string, int]{Path: path, NoSync: true}
	if err := seed.Open(); err != nil {
		f.Fatal(err)
	}
	for _, item := range []string{"a", "b", "line\nfeed"} {
		if err := seed.Begin(item); err != nil {
			f.Fatal(err)
		}
		if err := seed.Done(item, len(item)); err != nil {
			f.Fatal(err)
		}
	}
	if err := seed.Forget("a"); err != nil {
		f.Fatal(err)
	}
	if err := seed.Close(); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(append(whole[:len(whole):len(whole)], "garbage"...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "memory")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		read := func() (map[string]int, error) {
			file := remember.File[string, int]{Path: path, NoSync: true}
			if err := file.Open(); err != nil {
				return nil, err
			}
			return maps.Collect(file.All()), file.Close()
		}
		first, err := read()
		if err != nil {
			if left, readErr := os.ReadFile(path); readErr != nil || string(left) != string(data) {
				t.Errorf("a file that is refused has become %q, %v", left, readErr)
			}
			return
		}
		if second, err := read(); err != nil || !maps.Equal(first, second) {
			t.Errorf("opened again it says %v, %v; first it said %v", second, err, first)
		}
	})
}
