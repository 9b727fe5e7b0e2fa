// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube/internal/lease"
)

// TestNamespace takes that of the pod if none is given.
func TestNamespace(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"pod": "shop\n", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range [][3]string{{"given", "pod", "given"}, {"", "pod", "shop"}, {"given", "none", "given"}} {
		if got, err := lease.Namespace(test[0], filepath.Join(dir, test[1])); got != test[2] || err != nil {
			t.Errorf("Namespace(%q, %q) = %q, %v, want %q", test[0], test[1], got, err, test[2])
		}
	}
	if got, err := lease.Namespace("", filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no pod") {
		t.Errorf("outside of a pod: %q, %v, want an error that says so", got, err)
	}
	if got, err := lease.Namespace("", filepath.Join(dir, "empty")); err == nil {
		t.Errorf("of an empty file: %q, want an error", got)
	}
}
