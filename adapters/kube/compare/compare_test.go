// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// TestBothPrograms has either program do a small load, with all faults: in the
// end each file is as its object wants it, and gone with it.
func TestBothPrograms(t *testing.T) {
	s := kubetest.Shared(t)
	for _, side := range sides {
		dir := t.TempDir()
		size, err := build(t.Context(), side, dir)
		if err != nil {
			t.Fatal(err)
		}
		r, err := run(t.Context(), s, filepath.Join(dir, side), short)
		if err != nil {
			t.Fatalf("%s: %v", side, err)
		}
		if size == 0 || r.runs < short.objects || r.requests == 0 || r.rss == 0 || len(r.late) != short.updates {
			t.Errorf("%s: %+v, want figures", side, r)
		}
		t.Logf("%s: %d runs for %d events; %s", side, r.runs, short.events(), r.verbs())
	}
}

// TestReplace writes a table into a document, again and again.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(path, []byte("a\n"+begin+"old\n"+end+"b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"| 1 |\n", "| 2 |\n"} {
		if err := replace(path, table); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(data), "a\n"+begin+table+end+"b\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := os.WriteFile(path, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replace(path, "x"); err == nil || !strings.Contains(err.Error(), "compare: begin") {
		t.Errorf("a document without the lines: %v, want an error that names them", err)
	}
}
