// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package remember

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lock keeps others out, as long as it is not closed; the system gives it up when
// the process ends.
func (osDisk) lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
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
