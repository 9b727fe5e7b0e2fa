// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build repo

// Package repocheck_test checks the repository: what the documents say, what
// the kernel exports, that it can be vendored, and how big it is. The tests of
// the packages themselves read nothing of all this, and those who only want to
// know whether the packages work need not wait for it: it has a build tag.
//
//	go test -tags repo ./internal/repocheck
package repocheck_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inRoot makes the root folder that of the test, so that all paths are those of
// the repository. A TestMain that did so would hide from the test cache which
// files the tests read.
func inRoot(t *testing.T) {
	t.Helper()
	t.Chdir("../..")
}

// repoFiles returns the tracked files with the given suffix, without testdata and what
// tools keep in hidden folders other than .github.
func repoFiles(t *testing.T, suffix string) []string {
	t.Helper()
	return slices.DeleteFunc(trackedFiles(t, suffix), func(path string) bool {
		return slices.ContainsFunc(strings.Split(filepath.ToSlash(filepath.Dir(path)), "/"), func(folder string) bool {
			return folder == "testdata" || len(folder) > 1 && folder[0] == '.' && folder != ".github"
		})
	})
}

// trackedFiles returns the files that git tracks with the given suffix. What an editor or
// a build has left is not of the repository.
func trackedFiles(t *testing.T, suffix string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal("git ls-files: ", err)
	}
	var files []string
	for path := range strings.SplitSeq(string(out), "\x00") {
		if !strings.HasSuffix(path, suffix) {
			continue
		}
		if _, err := os.Stat(path); err == nil { // it may be deleted and not yet committed
			files = append(files, filepath.FromSlash(path))
		}
	}
	return files
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
