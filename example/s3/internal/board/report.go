// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/reconkernel/reconcile/example/s3/internal/program"
)

// Report prints how it ended, and returns the exit code. One and many are words for
// an item.
func (b *Board[T, W]) Report(out io.Writer, one, many string, took time.Duration, watch bool) int {
	s, done := b.Final()
	rate := ""
	switch {
	case done:
		rate = fmt.Sprintf(", %.0f a second", float64(s.InSync)/max(took, time.Millisecond).Seconds())
	case !watch:
		fmt.Fprintln(out, "interrupted")
	}
	fmt.Fprintf(out, "%d of %s in sync after %.1fs%s\n", s.InSync, program.Count(s.Wanted, one, many), took.Seconds(), rate)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Fprintf(out, "%s, peak memory %d MB\n", s.Activity(), m.Sys>>20)
	if s.Rejected > 0 {
		fmt.Fprintf(out, "%d cannot be:\n", s.Rejected)
		for _, r := range s.CannotBe {
			fmt.Fprintf(out, "  %v: %s\n", r.Item, Reason(r.Status, r.Err))
		}
	}
	if s.Unlisted != nil {
		fmt.Fprintf(out, "what is there besides is not known: %v\n", s.Unlisted)
	}
	if watch || done && s.Rejected == 0 && s.Unlisted == nil {
		return 0
	}
	return 1
}

// Activity says what was done.
func (t Totals) Activity() string {
	s := fmt.Sprintf("%s, %s, drift corrected %d",
		program.Count(t.Runs, "reconcile", "reconciles"), program.Count(t.Retries, "retry", "retries"), t.Corrected)
	if t.Removed > 0 {
		s += fmt.Sprintf(", removed %d", t.Removed)
	}
	return s
}
