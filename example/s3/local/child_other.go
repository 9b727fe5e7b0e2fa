// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package local

import "os/exec"

// run runs a command. If we are killed it stays, and has to be ended by hand.
func run(cmd *exec.Cmd, started, ended chan<- error) {
	err := cmd.Start()
	started <- err
	if err == nil {
		ended <- cmd.Wait()
	}
}

// hasAttributes reports whether files in a folder can have extended attributes.
func hasAttributes(string) bool { return true }
