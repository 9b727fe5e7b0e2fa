// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubetest

import "syscall"

// childAttr has the system kill a child when this process ends, however it ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
