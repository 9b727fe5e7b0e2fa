// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The version here, which names the program, is the one that is built.
func TestVersion(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "gateway", "tools.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "\tgithub.com/versity/versitygw "+Version+" ") {
		t.Errorf("gateway/tools.mod does not require versitygw %s", Version)
	}
}

func TestBinaryMissing(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	_, err := Binary()
	if err == nil || !strings.Contains(err.Error(), "run example/s3/gateway/build.sh") {
		t.Errorf("without the program the error is %v, want one that names the script", err)
	}
	if _, err := New(t.TempDir(), "127.0.0.1:0"); err == nil {
		t.Error("New has no error")
	}
}

// A gateway that cannot start says why.
func TestReadySaysWhyNot(t *testing.T) {
	g, err := New(t.TempDir(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(g.Buckets); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.Run(ctx); err == nil || !strings.Contains(err.Error(), "versitygw has ended: exit status 1; it said: ") {
		t.Errorf("Run returns %v", err)
	}
	if g.PID() != 0 {
		t.Errorf("its process is %d, want 0: it has ended", g.PID())
	}
}
