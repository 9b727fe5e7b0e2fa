// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies checks that who imports the packages does not build a server.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "./elect").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "github.com/nats-io/nats.go/jetstream") {
		t.Errorf("go list has no jetstream:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "nats-server") {
			t.Errorf("one of the packages depends on %s", line)
		}
	}
}
