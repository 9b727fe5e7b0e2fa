// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package rare_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/adapters/kube/internal/rare"
)

// TestFailures logs the first, second, fourth, whatever they say; one after a quiet while
// is the first again.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f rare.Failures
		if f.Last() != nil {
			t.Error("a failure before there is one")
		}
		for i, step := range []struct {
			pause time.Duration
			text  string
			count int
			log   bool
		}{
			{0, "a", 1, true},
			{time.Minute, "a", 2, true},
			{time.Minute, "a", 3, false},
			{5 * time.Minute, "a", 4, true},
			{5*time.Minute + 1, "a", 1, true},
			{0, "a", 2, true},
			{0, "b", 3, false},
			{0, "request 17", 4, true},
		} {
			time.Sleep(step.pause)
			err := fmt.Errorf("%s", step.text) // each time another value
			if count, log := f.Add(err); count != step.count || log != step.log || !errors.Is(f.Last(), err) {
				t.Errorf("step %d: %d, %t, want %d, %t", i, count, log, step.count, step.log)
			}
		}
	})
}
