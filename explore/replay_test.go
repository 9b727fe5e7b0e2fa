// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"log"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// A stack that the controller logs is the same each time: it has no addresses, and no
// numbers of goroutines. Other lines stay as they are.
func TestStacksAreReplayed(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, 10*time.Minute, func(ctx context.Context) error {
			err := client{proc, w}.asDesired(ctx)
			log.Printf("%v\n%s", err, debug.Stack())
			log.Print("the goroutine became idle")
			proc.Logger().Error("no disk", "stack", string(debug.Stack()))
			return err
		})
	}
	first, _ := played(t, s)
	again, _ := played(t, s)
	all := strings.Join(first, "\n")
	if !slices.Equal(first, again) || !strings.Contains(all, "explore/replay_test.go:") || !strings.Contains(all, "the goroutine became idle") {
		t.Errorf("the journal is another one, want the same, with stacks and the other line: %s\n%s", differs(first, again), all)
	}
}
