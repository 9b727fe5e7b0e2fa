// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package local

import "syscall"

// child does nothing. If we are killed the command stays, and has to be ended by hand.
func child() *syscall.SysProcAttr { return nil }

// hasAttributes reports whether files in a folder can have extended attributes.
func hasAttributes(string) bool { return true }
