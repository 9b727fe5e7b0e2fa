// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package local

import "syscall"

// child makes a command one that is killed if we are, however we end, and that is
// in a process group of its own: Ctrl-C is for us, who end it in order.
func child() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// hasAttributes reports whether files in a folder can have extended attributes.
func hasAttributes(dir string) bool {
	const name = "user.reconcile-example"
	if syscall.Setxattr(dir, name, []byte("1"), 0) != nil {
		return false
	}
	return syscall.Removexattr(dir, name) == nil
}
