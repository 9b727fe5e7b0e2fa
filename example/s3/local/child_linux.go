// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"os/exec"
	"runtime"
	"syscall"
)

// run runs a command that is killed if we are, however we end. Linux does that
// when the thread ends that has started it: so this one is kept until then.
func run(cmd *exec.Cmd, started, ended chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A process group of its own: Ctrl-C is for us, who end it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	err := cmd.Start()
	started <- err
	if err == nil {
		ended <- cmd.Wait()
	}
}

// hasAttributes reports whether files in a folder can have extended attributes.
func hasAttributes(dir string) bool {
	const name = "user.reconcile-example"
	if syscall.Setxattr(dir, name, []byte("1"), 0) != nil {
		return false
	}
	return syscall.Removexattr(dir, name) == nil
}
