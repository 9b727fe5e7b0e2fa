// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// How much there may be at most. A number is raised only with a reason in the
// commit.
const (
	maxRootEntries = 45 // files and folders in the root folder
	maxModules     = 8
	maxSources     = 14     // source files of the kernel
	maxTests       = 14     // its test files
	maxTestsApart  = 0      // those of its test files that are not beside a source file
	maxKernel      = 3063   // lines of code of the kernel
	maxNATS        = 4439   // lines of code of the package in adapters/nats
	maxWords       = 25_000 // in the README and docs
)

// testsApart are the test files of the kernel that belong to no one source file.
var testsApart = []string{"bench_test.go", "example_test.go"}

// TestSize counts what somebody sees who opens the repository: the entries of
// the root folder, the modules, and the kernel's source files, each with one
// test file beside it.
func TestSize(t *testing.T) {
	inRoot(t)
	var sources, tests, apart int
	entries := rootEntries(t)
	for _, name := range entries {
		base, isTest := strings.CutSuffix(name, "_test.go")
		switch {
		case isTest:
			tests++
			if !slices.Contains(testsApart, name) && !slices.Contains(entries, base+".go") {
				apart++
			}
		case strings.HasSuffix(name, ".go"):
			sources++
		}
	}
	modules := 0
	for _, path := range repoFiles(t, "go.mod") {
		if filepath.Base(path) == "go.mod" {
			modules++
		}
	}

	for _, c := range []struct {
		what      string
		got, most int
	}{
		{"entries in the root folder", len(entries), maxRootEntries},
		{"modules", modules, maxModules},
		{"source files of the kernel", sources, maxSources},
		{"test files of the kernel", tests, maxTests},
		{"test files of the kernel that are beside no source file", apart, maxTestsApart},
		{"lines of code in the kernel", codeLines(t, "."), maxKernel},
		{"lines of code in adapters/nats", codeLines(t, "adapters/nats"), maxNATS},
		{"words in the README and docs", words(t), maxWords},
	} {
		if c.got > c.most {
			t.Errorf("%d %s, want %d at most", c.got, c.what, c.most)
		}
	}
}

// codeLines counts the lines of a package's source files that are neither blank
// nor a comment.
func codeLines(t *testing.T, dir string) (lines int) {
	t.Helper()
	for _, path := range repoFiles(t, ".go") {
		if filepath.Dir(path) != dir || strings.HasSuffix(path, "_test.go") {
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

// words counts what somebody reads who reads it all.
func words(t *testing.T) (n int) {
	t.Helper()
	for _, path := range repoFiles(t, ".md") {
		if path == "README.md" || strings.HasPrefix(path, "docs"+string(filepath.Separator)) {
			n += len(strings.Fields(readFile(t, path)))
		}
	}
	return n
}

// rootEntries returns what is in the root folder, without what git and go test
// leave there.
func rootEntries(t *testing.T) []string {
	t.Helper()
	ignored := []string{".git", "*.test", "*.out", "*.prof"}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if !slices.ContainsFunc(ignored, func(pattern string) bool {
			match, err := filepath.Match(pattern, entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			return match
		}) {
			names = append(names, entry.Name())
		}
	}
	return names
}
