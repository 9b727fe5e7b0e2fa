// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build repo

package repocheck_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goLines bounds the lines of all Go files, tests too, with blanks and comments. It only
// falls: a commit that removes lines lowers it to what is left.
const goLines = 103_733

// About how much there is meant to be. They are for thinking: a tenth more
// passes, and a number is raised with a reason in the commit.
const (
	rootEntries = 58     // files and folders in the root folder
	modules     = 12     // one for each tree of dependencies: those of controller-runtime came last
	sources     = 18     // source files of the kernel
	tests       = 18     // its test files
	kernel      = 3_100  // lines of code of the kernel
	words       = 22_000 // in the README and docs
)

// testsApart are the test files of the kernel that belong to no one source file.
var testsApart = []string{"memory_test.go", "bench_test.go", "example_test.go", "export_test.go", "model_test.go", "support_test.go"}

// TestSize counts all lines of Go, and what somebody sees who opens the repository:
// the entries of the root folder, the modules, and the kernel's source files, each
// with one test file beside it.
func TestSize(t *testing.T) {
	inRoot(t)
	got := make(map[string]int)
	entries := make(map[string]bool)
	for _, path := range repoFiles(t, "") {
		entry, _, inFolder := strings.Cut(filepath.ToSlash(path), "/")
		entries[entry] = true
		switch {
		case filepath.Base(path) == "go.mod":
			got["modules"]++
		case inFolder:
		case strings.HasSuffix(path, "_test.go"):
			got["tests"]++
		case strings.HasSuffix(path, ".go"):
			got["sources"]++
		}
	}
	for name := range entries {
		base, isTest := strings.CutSuffix(name, "_test.go")
		if isTest && !entries[base+".go"] && !slices.Contains(testsApart, name) {
			t.Errorf("%s is beside no source file of the kernel", name)
		}
	}

	all := 0
	for _, path := range trackedFiles(t, ".go") {
		all += strings.Count(readFile(t, path), "\n")
	}
	if all > goLines {
		t.Errorf("%d lines of Go, want %d at most: remove as many as you add", all, goLines)
	} else {
		t.Logf("%d lines of Go, of %d", all, goLines)
	}

	for _, c := range []struct {
		what       string
		got, about int
	}{
		{"entries in the root folder", len(entries), rootEntries},
		{"modules", got["modules"], modules},
		{"source files of the kernel", got["sources"], sources},
		{"test files of the kernel", got["tests"], tests},
		{"lines of code in the kernel", kernelLines(t), kernel},
		{"words in the README and docs", wordsOf(t), words},
	} {
		if most := c.about + c.about/10; c.got > most {
			t.Errorf("%d %s, want about %d and %d at most", c.got, c.what, c.about, most)
		} else {
			t.Logf("%d %s, of about %d", c.got, c.what, c.about)
		}
	}
}

// kernelLines counts the lines of the kernel's source files that are neither blank nor
// a comment.
func kernelLines(t *testing.T) (lines int) {
	t.Helper()
	for _, path := range repoFiles(t, ".go") {
		if strings.Contains(filepath.ToSlash(path), "/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for line := range strings.Lines(readFile(t, path)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	return lines
}

// wordsOf counts what somebody reads who reads it all.
func wordsOf(t *testing.T) (n int) {
	t.Helper()
	for _, path := range repoFiles(t, ".md") {
		if path == "README.md" || strings.HasPrefix(path, "docs"+string(filepath.Separator)) {
			n += len(strings.Fields(readFile(t, path)))
		}
	}
	return n
}
