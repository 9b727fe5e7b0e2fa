// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package remember

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// lock keeps others out, as long as it is not closed; the system gives it up when
// the process ends.
func (osDisk) lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		if info, _ := os.Lstat(path); info != nil && info.Mode()&fs.ModeSymlink != 0 { // systems give it different errors
			err = fmt.Errorf("%s: a symbolic link, want a regular file or none", path)
		}
		return nil, err
	}
	return f, exclude(f)
}

// exclude keeps others from the file itself too, who came by another name of it, or
// after the lock was removed. If it returns an error, the file is closed.
func exclude(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		err = errors.New("open already")
	}
	if err != nil {
		f.Close()
	}
	return err
}

// own gives a file the owner and the group of another one, if it may: only root gives files
// away.
func own(f *os.File, like fs.FileInfo) {
	if s, ok := like.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
}
