// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package servers_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/internal/servers"
)

// TestStartOfAProcessThatEnds has a process end at once: the error has what it printed,
// and no process is left.
func TestStartOfAProcessThatEnds(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context) error { return errors.New("no answer") }
	p := &servers.Process{Path: self, Args: []string{"-no-such-flag"}, Ready: never}
	if err = p.Start(t.Context()); err == nil {
		t.Fatal("Start: nil, want an error")
	}
	for _, want := range []string{"has ended: exit status 2", "flag provided but not defined: -no-such-flag"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Start: %v, want %q in it", err, want)
		}
	}
	if pid := p.PID(); pid != 0 {
		t.Errorf("PID: %d, want 0", pid)
	}
}
