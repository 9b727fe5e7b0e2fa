// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/reconkernel/reconcile/remember"
)

// TestFileNoticesATurnedBit turns bits of files of records that no Begin had
// synced: of one that was closed, and of processes that were killed after Open
// and after the file was written anew.
func TestFileNoticesATurnedBit(t *testing.T) {
	fill := func(f *remember.File[string, int]) {
		for i := range 30 {
			must(t, f.Done(fmt.Sprint("item", i), i+1))
		}
	}
	for name, c := range map[string]struct {
		noSync bool // so that Close leaves it as it is
		do     func(f *remember.File[string, int], path string)
	}{
		"closed": {false, func(f *remember.File[string, int], _ string) {
			fill(f)
			must(t, f.Close())
		}},
		"opened": {true, func(f *remember.File[string, int], _ string) {
			fill(f)
			must(t, f.Close(), f.Open())
		}},
		"written anew": {true, func(f *remember.File[string, int], path string) {
			for before, i := int64(0), 1; ; i++ {
				must(t, f.Done("a", i))
				info, err := os.Stat(path)
				must(t, err)
				if info.Size() < before {
					return
				}
				before = info.Size()
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m")
			f := &remember.File[string, int]{Path: path, NoSync: c.noSync}
			must(t, f.Open())
			c.do(f, path)
			good, err := os.ReadFile(path)
			must(t, err, f.Close(), f.Open())
			want := maps.Collect(f.All())
			must(t, f.Close())
			for at := range good {
				bad := append([]byte(nil), good...)
				bad[at] ^= 1 << (at % 8)
				must(t, os.WriteFile(path, bad, 0o600))
				f := &remember.File[string, int]{Path: path, NoSync: true}
				if err := f.Open(); err != nil {
					continue
				}
				if got := maps.Collect(f.All()); !maps.Equal(got, want) {
					t.Errorf("with a bit turned in byte %d of %d, it opens with %d of %d items", at, len(good), len(got), len(want))
				}
				must(t, f.Close())
			}
		})
	}
}
