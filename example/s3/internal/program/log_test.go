// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package program_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/example/s3/internal/program"
)

func TestLogger(t *testing.T) {
	var out strings.Builder
	log := program.Logger(&out, false, nil)
	for _, l := range []*slog.Logger{log, log.With("a", 1), log.WithGroup("g")} {
		l.Info("begins", "item", "x")
		l.Warn("tried again", "item", "x", "outcome", "retrying")
		l.Error("panicked", "item", "x", "outcome", "retrying", "stack", "main.go:1")
	}
	if n := strings.Count(out.String(), "begins"); n != 3 {
		t.Errorf("%d records without an outcome are logged, want 3:\n%s", n, &out)
	}
	if strings.Contains(out.String(), "tried again") {
		t.Errorf("an outcome is logged:\n%s", &out)
	}
	if n := strings.Count(out.String(), "panicked"); n != 3 {
		t.Errorf("%d panics are logged, want 3:\n%s", n, &out)
	}
}
