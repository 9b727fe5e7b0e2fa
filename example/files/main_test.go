// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/internal/programtest"
)

// The test runs the program as a process: the test binary, told to be it.
func TestMain(m *testing.M) {
	if os.Getenv("BE_FILES") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// What is missing is written, and what is not as it is wanted is mended.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "news.txt"), []byte("Lies.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "BE_FILES=1")
	p := programtest.Start(t, time.Minute, cmd)
	p.Line("write ")
	p.Line("write ") // the other one
	p.Signal(os.Interrupt)
	p.WantEnd(0, "write hello.txt", "write news.txt")
	for name, want := range wanted {
		if there, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(there) != want {
			t.Errorf("%s has %q, %v, want %q", name, there, err, want)
		}
	}
}
