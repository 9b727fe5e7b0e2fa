// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

var errLate = errors.New("the time limit")

// Tests with a mutant hang when they have used the processor for longer than the
// limit, or not at all for idle. Both are counted in what the process got of it,
// so that a busy machine, or one that stops, makes nothing late.
const idle = 5 * time.Second

// watch cancels when a process hangs.
func watch(ctx context.Context, cancel context.CancelFunc, pid int, limit time.Duration) {
	const step = 100 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	var used, still, passed time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := processorTime(pid)
		switch {
		case err != nil: // no Linux, or gone
			if passed += step; passed < 10*limit {
				continue
			}
		case now > used:
			used, still = now, 0
			if used < limit {
				continue
			}
		default:
			if still += step; still < idle {
				continue
			}
		}
		cancel()
		return
	}
}

// processorTime is what a process has had of the processors so far.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("cannot read %q", text)
	}
	var ticks int64
	for _, f := range fields[11:13] { // of the user, of the system
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * (time.Second / 100), nil
}
