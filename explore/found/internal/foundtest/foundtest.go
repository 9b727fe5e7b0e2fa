// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package foundtest has the check that the tests of found faults share.
package foundtest

import (
	"slices"
	"testing"

	"github.com/reconkernel/reconcile/explore"
)

// Find fails the test unless the first plan in which s fails is this one.
func Find[W any](t *testing.T, s explore.Scenario[W], plan string) {
	t.Helper()
	r, err := explore.Search(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Found == nil || !slices.Equal(r.Found.Plan, []string{plan}) {
		t.Fatalf("found %v in %d plans, want %q", r.Found, r.Plans, plan)
	}
	t.Log(r.Found.Number, r.Took, r.Found)
}
