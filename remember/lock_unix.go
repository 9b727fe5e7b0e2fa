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
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == syscall.EWOULDBLOCK {
		err = errors.New("open already")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
