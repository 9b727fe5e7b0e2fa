// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin || dragonfly || freebsd || linux || netbsd)

package main

import "os"

// screenSize returns a size that all terminals have, if a file is a terminal.
func screenSize(f *os.File) (width, height int, ok bool) {
	info, err := f.Stat()
	return 80, 24, err == nil && info.Mode()&os.ModeCharDevice != 0
}
