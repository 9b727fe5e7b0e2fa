// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/reconkernel/reconcile/verify/plant"
)

// No two mutants have one name, so that none is accepted for the reason of
// another, and none is accepted that is not there.
func TestNames(t *testing.T) {
	reasons, err := readAccepted("accepted.txt")
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]bool{".": true}
	for name := range reasons {
		dirs[dirOf(name)] = true
	}
	seen := map[string]bool{}
	for dir := range dirs {
		_, mutants, err := read("../..", dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mutants {
			if seen[m.name] {
				t.Errorf("there are two of %s", m.name)
			}
			seen[m.name] = true
		}
	}
	for name, reason := range reasons {
		if !seen[name] {
			t.Errorf("accepted.txt has %s, which there is none of", name)
		}
		if reason == "" {
			t.Errorf("accepted.txt has no reason for %s", name)
		}
	}
}

func TestSampleIsDrawnAgain(t *testing.T) {
	mutants := slices.Repeat([]mutant{{Change: &plant.Change{}}}, 1000)
	*sample, *seed = "5%", 7
	defer func() { *sample, *seed = "100%", 0 }()
	first, err := choose(mutants)
	if err != nil || len(first) != 50 {
		t.Fatalf("choose: %d of 1000, %v, want 50", len(first), err)
	}
	again, _ := choose(mutants)
	for i := range first {
		if first[i] != again[i] {
			t.Fatalf("the same seed draws %v and %v", first, again)
		}
	}
	*sample = "5 percent"
	if _, err := choose(mutants); err == nil {
		t.Error("choose of 5 percent: no error")
	}
}
