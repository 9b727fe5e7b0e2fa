// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package remember_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/reconkernel/reconcile/remember"
)

// TestFileRefusesOtherThanFiles leaves a folder and a pipe, which stands for all
// devices, as they are. A device of the machine has no place here: an Open that
// takes it replaces it.
func TestFileRefusesOtherThanFiles(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	must(t, syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link))
	for _, path := range []string{dir, pipe, link} {
		f := &remember.File[string, int]{Path: path}
		if err := f.Open(); err == nil || !strings.Contains(err.Error(), "want a regular file") {
			t.Errorf("Open of %s: %v, want that it is no regular file", path, err)
		}
	}
}
