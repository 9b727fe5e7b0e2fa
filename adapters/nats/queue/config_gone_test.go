// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"
	"testing/synctest"
	"time"
)

// Config.Gone is a RetryPolicy as any: one that overflows does not run an item at once
// that kills its process.
func TestGoneDelaysAreThoseOfARetryPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := inMemory(t, newMemory("q", playLease), new(logbook), func(w wire) wire { return w })
		defer q.end()
		doubled := func(n int) time.Duration { return time.Second << n }
		for _, c := range []struct {
			policy   time.Duration
			failures int
			want     time.Duration
		}{
			{0, 1, 0},
			{0, 2, time.Second},
			{-1, 1, 5 * time.Minute},
			{doubled(34), 34, 5 * time.Minute},
			{doubled(64), 64, time.Second},
			{time.Hour, 3, time.Hour},
		} {
			for _, retry := range []bool{true, false} {
				q.cfg.Gone = func(error, int) (time.Duration, bool) { return c.policy, retry }
				delay, again := q.askGone(ErrGone, c.failures)
				if again != retry || again && delay != c.want {
					t.Errorf("failure %d, the policy says %v, %t: the queue waits %v, %t, want %v", c.failures, c.policy, retry, delay, again, c.want)
				}
			}
		}
	})
}
