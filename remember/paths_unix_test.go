// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package remember_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/reconkernel/reconcile/remember"
)

// A pipe without a reader in the place of the next file does not block Open.
func TestFileDoesNotWaitForAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	must(t, syscall.Mkfifo(path+".new", 0o600))
	open[string, int](t, path)
}

// A symbolic link in the place of the lock is not followed: else Open would create its
// target, wherever that is.
func TestLockIsNoLink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	target := filepath.Join(t.TempDir(), "target")
	must(t, os.Symlink(target, path+".lock"))
	mustSay(t, "with a link", (&remember.File[string, int]{Path: path}).Open(), path+".lock: a symbolic link, want a regular file or none")
	if _, err := os.Lstat(target); err == nil {
		t.Error("the target of the link was created")
	}
}

// A second Open fails and changes nothing, also by another name of the file, or after its
// lock was removed.
func TestSecondOpenByAnotherNameFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	must(t, f.Begin("a"), os.Link(path, path+"2"))
	for _, name := range []string{path + "2", path} {
		must(t, os.Remove(path+".lock"))
		mustSay(t, name, (&remember.File[string, int]{Path: name}).Open(), "open already")
		must(t, os.WriteFile(path+".lock", nil, 0o600))
	}
	must(t, f.Done("a", 1), f.Close())
	mustHold(t, open[string, int](t, path), map[string]int{"a": 1})
}

// A path leads through a link and out of its target again, when there is no file yet, and
// when there is one.
func TestFileBesideTheTargetOfALink(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must(t, os.MkdirAll("far/folder", 0o700), os.Symlink("far/folder", "link"))
	for _, path := range []string{"link/../m", dir + "/link/../n"} {
		f := open[string, int](t, path)
		must(t, f.Done("a", 1), f.Close())
		mustHold(t, open[string, int](t, path), map[string]int{"a": 1})
		_, err := os.Stat("far/" + filepath.Base(path))
		must(t, err)
	}
}

// A file keeps its owner when root rewrites it, as in one run of the program by hand: the
// service can still open it. Who is not root may keep the group.
func TestFileKeepsItsOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	f := open[string, int](t, path)
	uid, gid := os.Getuid(), os.Getgid()
	if os.Chown(path, 12345, 12346) == nil { // root, unless a container has no such users
		uid, gid = 12345, 12346
	} else if groups, err := os.Getgroups(); err == nil && len(groups) > 0 && os.Chown(path, uid, groups[len(groups)-1]) == nil {
		gid = groups[len(groups)-1]
	}
	before, err := os.Stat(path)
	must(t, err)
	after := before
	for n := 1; os.SameFile(before, after); n++ { // until it is rewritten
		must(t, f.Done("a", n))
		after, err = os.Stat(path)
		must(t, err)
	}
	must(t, f.Close())
	if is := after.Sys().(*syscall.Stat_t); int(is.Uid) != uid || int(is.Gid) != gid {
		t.Errorf("the rewritten file is of user %d and group %d, want %d and %d", is.Uid, is.Gid, uid, gid)
	}
}
