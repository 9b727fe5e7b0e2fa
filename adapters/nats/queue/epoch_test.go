// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"
	"testing/synctest"
	"time"
)

// A member of a stream that was made anew does not take those that join it for silent,
// though all that it has stored itself has a higher sequence.
func TestMemberOfTheOldStreamBuriesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		join := func(m *memory) (*Queue[string], *link) {
			q, l := inMemory(t, m, new(logbook), func(w wire) wire { return w })
			l.atOnce = true
			if !q.renew() {
				t.Fatal("not a member")
			}
			return q, l
		}
		before := newMemory("q", playLease)
		before.seq = 1000
		old, l := join(before)
		defer old.end()
		for range 6 {
			time.Sleep(playLease / 5)
			old.renew()
		}
		now := newMemory("q", playLease)
		l.m = now
		other, _ := join(now)
		defer other.end()
		check := func(when string) {
			t.Helper()
			old.readMembers(false)
			old.declareSilent()
			if !other.renew() {
				t.Fatalf("%s, it has declared a member gone that has just joined", when)
			}
		}
		check("before its next sign of life")
		old.readMembers(false)
		for !old.renew() { // the first finds out, the next joins
		}
		old.readMembers(false)
		old.declareSilent()
		if !other.renew() {
			t.Fatal("after it has joined anew, it has declared a member gone that lives")
		}
	})
}
