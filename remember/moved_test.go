// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/remember"
)

// TestFileNoticesThatItWasMovedAway has another program move the file, and then
// put an older one into its place: what was written would not be found again.
func TestFileNoticesThatItWasMovedAway(t *testing.T) {
	for name, at := range map[string]func(*remember.File[string, int]) error{
		"Begin": func(f *remember.File[string, int]) error { return f.Begin("b") },
		"Close": func(f *remember.File[string, int]) error { return f.Close() },
	} {
		path := filepath.Join(t.TempDir(), "m")
		f := open[string, int](t, path)
		must(t, f.Begin("a"), os.Rename(path, path+".old"))
		if err := at(f); err == nil || !strings.Contains(err.Error(), "moved away") {
			t.Errorf("%s after the file was moved away: %v", name, err)
		}
		f.Close()
		f = open[string, int](t, path)
		must(t, f.Begin("a"), os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		if err := at(f); err == nil || !strings.Contains(err.Error(), "moved away") {
			t.Errorf("%s after the file was replaced: %v", name, err)
		}
		f.Close()
	}
}
