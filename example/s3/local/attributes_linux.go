// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package local

import "syscall"

// hasAttributes reports whether files in a folder can have extended attributes.
func hasAttributes(dir string) bool {
	const name = "user.reconcile-example"
	if syscall.Setxattr(dir, name, []byte("1"), 0) != nil {
		return false
	}
	return syscall.Removexattr(dir, name) == nil
}
