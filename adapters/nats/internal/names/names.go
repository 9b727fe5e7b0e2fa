// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package names tells which subjects and keys a server takes.
package names

import (
	"regexp"
	"strings"
)

var key = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

// Key reports whether a KeyValue bucket takes s as a key: letters, digits and
// -/_=, with dots between.
func Key(s string) bool { return key.MatchString(s) && Subject(s) }

// Subject reports whether the parts of a subject between dots are all right.
func Subject(subject string) bool {
	tokens := strings.Split(subject, ".")
	for i, t := range tokens {
		switch {
		case t == "",
			t != "*" && strings.Contains(t, "*"),
			strings.Contains(t, ">") && (t != ">" || i < len(tokens)-1):
			return false
		}
	}
	return true
}
