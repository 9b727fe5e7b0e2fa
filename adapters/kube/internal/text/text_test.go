// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package text_test

import (
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube/internal/text"
)

func TestCut(t *testing.T) {
	for _, test := range []struct {
		s    string
		n    int
		want string
	}{
		{"", 3, ""},
		{"abcd", 4, "abcd"},
		{"abcde", 4, "a..."},
		{"äää", 6, "äää"},
		{"äääx", 6, "ä..."},
		{"aääx", 5, "a..."},
		{"a\xffb", 5, "a\uFFFDb"},
		{"abcd", 3, "..."},
	} {
		if got := text.Cut(test.s, test.n); got != test.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", test.s, test.n, got, test.want)
		}
	}
}
