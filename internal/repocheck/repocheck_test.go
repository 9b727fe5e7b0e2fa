// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package repocheck_test checks the repository: what the documents say, what
// the kernel exports, that it can be vendored, and how big it is. The tests of
// the packages themselves read nothing of all this.
package repocheck_test

import (
	"io/fs"
	"os"
	"path/filepath"
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

// repoFiles returns the files of this repository with the given suffix,
// without testdata and what tools keep in hidden folders other than .github.
func repoFiles(t *testing.T, suffix string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "testdata" || len(name) > 1 && strings.HasPrefix(name, ".") && name != ".github") {
			return fs.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(name, suffix) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
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
