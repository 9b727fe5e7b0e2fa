// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
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
		if size == 0 || r.runs < short.objects || r.requests == 0 || r.rss == 0 || r.cleanCPU == 0 {
			t.Errorf("%s: %+v, want figures", side, r)
		}
		// The same requests: the finalizer comes and goes, and there is a cache.
		if got, want := r.sent["PATCH configmaps"], 2*short.objects; got != want {
			t.Errorf("%s patched %d times (%s), want %d", side, got, r.verbs(), want)
		}
		if got := r.sent["PUT configmaps"] + r.sent["GET configmaps"]; got != 0 {
			t.Errorf("%s: %s; want no object read or replaced", side, r.verbs())
		}
		t.Logf("%s: %d runs for %d events; %s", side, r.runs, short.events(), r.verbs())
	}
}

// TestBeside has both programs run at the same time: there is a delay for each
// update, and the part after the answer is shorter than the whole.
func TestBeside(t *testing.T) {
	var programs []string
	dir := t.TempDir()
	for _, side := range sides {
		if _, err := build(t.Context(), side, dir); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, filepath.Join(dir, side))
	}
	delays, err := beside(t.Context(), kubetest.Shared(t), programs, short)
	if err != nil {
		t.Fatal(err)
	}
	for i, side := range sides {
		if got := len(delays[i]); got != short.paced {
			t.Errorf("%s: %d delays, want %d", side, got, short.paced)
		}
		for _, d := range delays[i] {
			if d.sent <= 0 || d.answered >= d.sent {
				t.Errorf("%s: %v after the update was sent, %v after the answer; want more than 0, and less than that", side, d.sent, d.answered)
			}
		}
	}
}

// TestQuantile takes values from the order of their size.
func TestQuantile(t *testing.T) {
	delays := []delay{{sent: 3 * time.Millisecond}, {sent: time.Millisecond}, {sent: 2 * time.Millisecond}}
	for part, want := range map[float64]float64{0: 1, 0.5: 2, 1: 3} {
		if got := quantile(delays, part, func(d delay) time.Duration { return d.sent }); got != want {
			t.Errorf("quantile %v is %v, want %v", part, got, want)
		}
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
