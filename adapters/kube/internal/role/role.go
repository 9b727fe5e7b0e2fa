// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package role lets a Runner that runs another one be for a Group what that one is.
package role

import "github.com/reconkernel/reconcile"

// A Role is embedded by such a Runner. A Group asks its members whether they
// reconcile, with a method that is not exported; a Group has it, and says yes if
// one of its own members does. The Group in here is never run.
type Role struct{ *reconcile.Group }

// Of returns the role of r, which may be nil.
func Of(r reconcile.Runner) Role {
	g := new(reconcile.Group)
	if r != nil {
		g.Add("", r)
	}
	return Role{g}
}
