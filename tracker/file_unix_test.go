// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tracker_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe without a writer in the place of the file does not block a call.
func TestFromFileDoesNotWaitForAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := words(path)(t.Context()); err == nil || !strings.Contains(err.Error(), "want a regular file") {
		t.Errorf("the function returned %v, want that it is no regular file", err)
	}
}
