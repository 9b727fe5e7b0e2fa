// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Go 1.26 has the setting tracebacklabels.
//go:build go1.26

package explore

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A panic in a goroutine of the controller ends the test, and the traceback names the plan.
func TestPanicOfAGoroutine(t *testing.T) {
	const child = "EXPLORE_PANIC"
	if os.Getenv(child) != "" {
		s := of(func(c client) func(context.Context) error {
			return func(ctx context.Context) error {
				if err := c.asDesired(ctx); err != nil {
					go func() { panic("no disk") }()
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		s.Parallel = 1
		search(t, s)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicOfAGoroutine$")
	cmd.Env = append(os.Environ(), child+"=1", "GODEBUG=tracebacklabels=1")
	out, err := cmd.CombinedOutput()
	if want := `TestPanicOfAGoroutine, plan 6: [\"call get a #1: fails\"]`; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("the process ends with %v and prints\n%s\nwant %s", err, out, want)
	}
}
