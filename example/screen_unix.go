// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// screenSize returns the size of the terminal that a file is, if it is one.
func screenSize(f *os.File) (width, height int, ok bool) {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, 0, false
	}
	if size.columns == 0 || size.rows == 0 { // a terminal that does not know
		return 80, 24, true
	}
	return int(size.columns), int(size.rows), true
}
