// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/reconkernel/reconcile/example/internal/program"
)

// report prints how it ended, and returns the exit code.
func report(out io.Writer, b *board, took time.Duration, watch bool) int {
	s, done := b.Final()
	rate := ""
	switch {
	case done:
		rate = fmt.Sprintf(", %.0f a second", float64(s.InSync)/max(took, time.Millisecond).Seconds())
	case !watch:
		fmt.Fprintln(out, "interrupted")
	}
	fmt.Fprintf(out, "%d of %s in sync after %.1fs%s\n",
		s.InSync, program.Count(s.Wanted, "asset", "assets"), took.Seconds(), rate)
	fmt.Fprintf(out, "%s, peak memory %d MB\n", s.activity(), peakMemory()>>20)
	if s.Refused > 0 {
		fmt.Fprintf(out, "%d cannot be:\n", s.Refused)
		for _, r := range s.CannotBe {
			fmt.Fprintf(out, "  %s: %s\n", r.ID, strings.ReplaceAll(r.Err.Error(), "\n", " "))
		}
	}
	if watch || done && s.Refused == 0 {
		return 0
	}
	return 1
}

// peakMemory returns the most memory that the program held at once, in bytes:
// what Linux says, elsewhere what Go took from the system.
func peakMemory() uint64 {
	if file, err := os.Open("/proc/self/status"); err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var kB uint64
			if _, err := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &kB); err == nil {
				return kB << 10
			}
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys
}
