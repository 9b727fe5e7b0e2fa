// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programs are the same controller of Kubernetes, written twice: see kube.
var programs = []impl{
	{name: nameOurs, program: "./kube/ours"},
	{name: nameCtrl, program: "./kube/theirs"},
}

// binary builds a program without its debug information, and records its size.
// It is run in the folder of this module.
func binary(t *trial) error {
	dir, err := os.MkdirTemp("", "bench-binary-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "program")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", path, t.impl.program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build %s: %w: %s", t.impl.program, err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	t.values["size"] = float64(info.Size())
	return nil
}
