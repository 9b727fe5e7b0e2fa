// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestWrongFlags(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	for _, test := range []struct{ args, want string }{
		{"", "want -local, or the -endpoint"},
		{"-local -endpoint http://127.0.0.1", "want -local, or the -endpoint"},
		{"-local now", `argument "now"`},
		{"-endpoint http://127.0.0.1", "DATABASE_URL is not set"},
		{"-local -owner=", "-owner is empty"},
		{"-local -period 1ms", "-period is 1ms"},
		{"-local -delete-after -1s", "-delete-after -1s"},
	} {
		if _, err := parse(strings.Fields(test.args)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("parse(%q): %v, want %q", test.args, err, test.want)
		}
	}
	for _, endpoint := range []string{"", "s3.example.org", "ftp://s3.example.org"} {
		if _, err := openStore(endpoint, "", ""); err == nil || !strings.Contains(err.Error(), "want a URL") {
			t.Errorf("openStore(%q): %v, want an error", endpoint, err)
		}
	}
}
