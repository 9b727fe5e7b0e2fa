// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"flag"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seed    = flag.Uint64("seed", 1, "of the first round; each other round has the next one")
	changes = flag.Int("changes", 1_000_000, "at least so many, in rounds of 100,000")
	during  = flag.Duration("for", 0, "go on for so long")
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(&handler{})) // Restart logs to it
	flag.Parse()
	os.Exit(m.Run())
}

// bubble runs a round in a bubble, where hours take no time, and where a
// goroutine that is left behind is an error.
func bubble(t *testing.T, c Config) (report Report) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		c.Unit, c.Exact = time.Second, true
		c.Settle = func(func() bool) {
			time.Sleep(time.Hour)
			synctest.Wait()
		}
		report = Run(c)
	})
	return report
}

// TestChaos is the million of changes over ten thousand items. For an hour of
// it: go test -race -timeout 2h -for 1h ./chaos
func TestChaos(t *testing.T) {
	var all Report
	begin := time.Now()
	rounds := 0
	for s := *seed; all.Changes < int64(*changes) || time.Since(begin) < *during; s++ {
		r := bubble(t, Config{Seed: s, Items: 10_000, Changes: 100_000, Wrap: wraps[s%uint64(len(wraps))]})
		all.Add(r)
		rounds++
		if len(r.Found) > 0 {
			t.Errorf("seed %d: %v\n%v\n%s", s, r, r.Found, strings.Join(r.First, "\n"))
			break
		}
	}
	t.Logf("seeds %d to %d: %v", *seed, *seed+uint64(rounds)-1, all)
}
