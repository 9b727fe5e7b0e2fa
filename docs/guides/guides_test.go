// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package guides_test has the programs of the guides. Each runs in a bubble of
// testing/synctest, where hours take no time, and what the guide says that it
// prints is compared with what it did, instant by instant.
package guides_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

// A diary is a journal whose lines are aligned.
type diary struct{ *record.Journal }

func newDiary() diary { return diary{record.New()} }

func (d diary) note(format string, args ...any) { d.Note(format, args...) }

// check compares with a text of one line for each note.
func (d diary) check(t *testing.T, want string) {
	t.Helper()
	var lines []string
	for _, line := range d.Lines() {
		at, what, _ := strings.Cut(line, " ")
		lines = append(lines, fmt.Sprintf("%-7s %s", at, what))
	}
	if got := strings.Join(lines, "\n"); got != strings.TrimSpace(want) {
		t.Errorf("what happened:\n%s\nwant:\n%s", got, strings.TrimSpace(want))
	}
}

// run runs r for d, then ends it.
func run(t *testing.T, r reconcile.Runner, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// each waits for the same time after every failure.
func each(d time.Duration) reconcile.RetryPolicy {
	return func(error, int) (time.Duration, bool) { return d, true }
}

var quiet = slog.New(slog.DiscardHandler)

// TestGuidesOutput checks that what a guide or the README of kubesim shows as output, a
// block marked text, is what a test in this folder or that of the README compares with.
func TestGuidesOutput(t *testing.T) {
	sources, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	sources = append(sources, "../../explore/kubesim/manager/guide_test.go")
	guides, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	guides = append(guides, "../../explore/kubesim/README.md")
	shown := 0
	for _, guide := range guides {
		for i, part := range strings.Split(read(t, guide), "\n```") {
			block, ok := strings.CutPrefix(part, "text\n")
			if !ok {
				continue
			}
			shown++
			if !slices.ContainsFunc(sources, func(path string) bool {
				return strings.Contains(read(t, path), "`\n"+block+"\n`")
			}) {
				t.Errorf("%s, fence %d: no test compares with this:\n%s", guide, i, block)
			}
		}
	}
	if shown == 0 {
		t.Error("the guides show no output at all")
	}
}

// TestGuidesAreShort checks that a guide can be read in a few minutes, and that
// the index names each.
func TestGuidesAreShort(t *testing.T) {
	index := read(t, "README.md")
	guides, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, guide := range guides {
		if lines := strings.Count(read(t, guide), "\n"); lines > 140 {
			t.Errorf("%s has %d lines, want 140 at most", guide, lines)
		}
		if guide != "README.md" && !strings.Contains(index, "("+guide+")") {
			t.Errorf("README.md does not link to %s", guide)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
