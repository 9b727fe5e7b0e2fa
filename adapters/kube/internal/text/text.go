// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package text makes text fit for the API server.
package text

import (
	"strings"
	"unicode/utf8"
)

// Cut returns the beginning of s, as valid UTF-8, in no more than n bytes. N is 3
// or more: what was cut ends with three dots.
func Cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	const more = "..."
	for n -= len(more); !utf8.RuneStart(s[n]); n-- {
	}
	return s[:n] + more
}
