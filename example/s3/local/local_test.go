// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

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

// A gateway that cannot start says why.
func TestReadySaysWhyNot(t *testing.T) {
	address, release, err := Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	g, err := New(t.TempDir(), address)
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

// A gateway that is ended before it starts has not failed.
func TestRunEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := new(Gateway).Run(ctx); err != nil {
		t.Errorf("Run returns %v with a context that is done, want nil", err)
	}
}

// fakeGo stands for the Go command: it lists 120 packages, and builds them.
const fakeGo = `#!/usr/bin/env bash
case $1 in
list) seq 120 ;;
build)
	for n in $(seq 120); do echo "example.org/p$n" >&2; done
	[ -z "$FAIL" ] || { echo "p/x.go:1:1: no such thing" >&2; exit 1; }
	while [ "$1" != -o ]; do shift; done
	echo built >"$2"
	;;
esac
`

// While the gateway is built, it is said how far that is and how long it takes.
func TestBuildSaysHowFar(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(fakeGo), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Chdir("..")
	for _, test := range []struct {
		fail string
		want []string
	}{
		{"yes", []string{"two minutes", "50 of at most 120", "100 of at most 120", "p/x.go:1:1: no such thing"}},
		{"", []string{"two minutes", "50 of at most 120", "100 of at most 120"}},
		{"yes", nil}, // it is there
	} {
		if test.want != nil {
			home := t.TempDir()
			t.Setenv("XDG_CACHE_HOME", home)
			t.Setenv("HOME", home)
		}
		t.Setenv("FAIL", test.fail)
		var said strings.Builder
		err := build(t.Context(), &said)
		_, missing := Binary()
		if failed := test.fail != "" && test.want != nil; (err != nil) != failed || (missing != nil) != failed {
			t.Errorf("build: %v, and after it: %v", err, missing)
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		if got := len(lines); test.want != nil && got != len(test.want) {
			t.Errorf("it says %d lines, want %d:\n%s", got, len(test.want), said.String())
		}
		for i, want := range test.want {
			if i < len(lines) && !strings.Contains(lines[i], want) {
				t.Errorf("line %d is %q, want %q", i+1, lines[i], want)
			}
		}
	}
}
