// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies checks that the package needs this project, pgx and what pgx needs, and
// nothing else.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	pgx := false
	for line := range strings.Lines(string(out)) {
		switch module := strings.TrimSpace(line); {
		case module == "github.com/jackc/pgx/v5":
			pgx = true
		case module == "", strings.HasPrefix(module, "github.com/reconkernel/reconcile"), strings.HasPrefix(module, "github.com/jackc/"), strings.HasPrefix(module, "golang.org/x/"):
		default:
			t.Errorf("the package depends on %s", module)
		}
	}
	if !pgx {
		t.Errorf("go list has no pgx:\n%s", out)
	}
}
