// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A mounted disk answers a rename as the system does if the target is a mount point.
type mounted struct{ osDisk }

func (mounted) rename(from, to string) error {
	return explained(&os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EBUSY})
}

// A file that is a mount point cannot be replaced. Open of an empty one, and the call
// that would rewrite it, return an error that says what to mount. The remembered state
// stays.
func TestFileThatIsAMountPoint(t *testing.T) {
	const want = "mount its folder instead"
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &File[string, int]{Path: path, NoSync: true, slack: 10, disk: mounted{}}
	if err := f.Open(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Open of an empty file = %v, want an error that says %q", err, want)
	}
	f.disk = nil
	if err := errors.Join(f.Open(), f.Done("b", 7), f.Close()); err != nil {
		t.Fatal(err)
	}
	f.disk = mounted{}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	var err error
	n := 0
	for n = 1; n < 1000 && err == nil; n++ {
		err = f.Done("a", n)
	}
	if n > 20 || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Done number %d = %v, want an error soon that says %q", n, err, want)
	}
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Close = %v, want that error", err)
	}
	f.disk = nil
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	if v, ok := f.Version("b"); v != 7 || !ok {
		t.Errorf("Version(b) = %d, %t after the error, want 7", v, ok)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
