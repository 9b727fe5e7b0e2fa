// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package local

// hasAttributes reports whether files in a folder can have extended attributes.
func hasAttributes(string) bool { return true }
