// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// TestBothPrograms has either program do a small load, with all faults: in the
// end each file is as its object wants it, and gone with it.
func TestBothPrograms(t *testing.T) {
	s := kubetest.Shared(t)
	for i, program := range builtPrograms(t) {
		v, sent, err := run(t.Context(), s, program, short)
		if err != nil {
			t.Fatalf("%s: %v", sides[i], err)
		}
		for _, metric := range []string{"start", "memory", "recovery", "clean-up", "peak", "runs", "allocations", "processor", "requests"} {
			if v[metric] <= 0 {
				t.Errorf("%s: %s is %v, want a figure", sides[i], metric, v[metric])
			}
		}
		// The same requests: the finalizer comes and goes, and there is a cache. A run that
		// begins before the cache has what the last one did may do or ask that again: of
		// few objects, where one request for each run would be one for each update as well.
		again := short.Updates() - 1
		if got, want := sent["PATCH configmaps"], 2*short.Objects; got < want || got > want+again {
			t.Errorf("%s patched %d times (%s), want %d to %d", sides[i], got, verbs(sent), want, want+again)
		}
		if got := sent["GET configmaps"]; got > again {
			t.Errorf("%s: %s; want no object read for each run", sides[i], verbs(sent))
		}
		if got := sent["PUT configmaps"]; got != 0 {
			t.Errorf("%s: %s; want no object replaced", sides[i], verbs(sent))
		}
	}
}

// TestNewEnv has a program that cannot be started, and one that ends at once.
func TestNewEnv(t *testing.T) {
	for _, program := range []string{"/no/program", "/bin/true"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if e, err := newEnv(ctx, kubetest.Shared(t), program, 1); err == nil {
			e.close()
			t.Errorf("%s: no error", program)
		}
	}
}

func builtPrograms(t *testing.T) (programs []string) {
	dir := t.TempDir()
	for _, side := range sides {
		program, _, err := build(t.Context(), side, dir)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program)
	}
	return programs
}
