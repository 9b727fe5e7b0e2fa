// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && nightly

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The test runs the program as a process: the test binary, told to be it.
func TestMain(m *testing.M) {
	if os.Getenv("BE_FILES") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Missing files are written, and changed files are corrected.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "out"), 0o700), os.WriteFile(filepath.Join(dir, "out", "news.txt"), []byte("Lies.\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "BE_FILES=1")
	out, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	printed := bufio.NewScanner(out)
	files, _ := desired(t.Context())
	for range files {
		if !printed.Scan() || !strings.Contains(printed.Text(), "write ") {
			t.Errorf("the program prints %q, want what it writes", printed.Text())
		}
	}
	if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
		t.Error(err)
	}
	for name, want := range files {
		if there, err := os.ReadFile(filepath.Join(dir, "out", name)); err != nil || string(there) != want {
			t.Errorf("%s has %q, %v, want %q", name, there, err, want)
		}
	}
}
