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

// A server that loses its last messages, as with the power, has them stored anew with
// sequences that it gave before. Members that live are not taken for silent then, and one
// whose sign of life is lost does not go on as if its runs were known.
func TestMembersSurviveLostMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("q", playLease)
		join := func() *Queue[string] {
			q, l := inMemory(t, m, new(logbook), func(w wire) wire { return w })
			l.atOnce = true
			if !q.renew() {
				t.Fatal("not a member")
			}
			return q
		}
		a, b := join(), join()
		defer a.end()
		defer b.end()
		saved, beats := m.seq, [2]stored{}
		for i, q := range []*Queue[string]{a, b} {
			var err error
			if beats[i], err = m.last("q.m." + q.member.id); err != nil {
				t.Fatal(err)
			}
		}
		for range 12 {
			time.Sleep(playLease / 5)
			for _, q := range []*Queue[string]{a, b} {
				if !q.renew() {
					t.Fatal("the lease is lost")
				}
				q.readMembers(false)
			}
		}
		// As it was after both joined.
		m.mu.Lock()
		for _, seq := range m.bySubject {
			m.deleteLocked(seq)
		}
		m.seq, m.order = saved, nil
		for _, k := range beats {
			m.bySubject[k.subject], m.bySeq[k.seq] = k.seq, &kept{k, time.Now()}
		}
		m.mu.Unlock()

		before := b.member.id
		if b.renew() || b.member.id == before {
			t.Error("a member whose sign of life is lost goes on")
		}
		if !b.renew() {
			t.Fatal("it does not join anew")
		}
		for _, when := range []string{"before", "after"} {
			if a.goneForALease("who is not known") {
				t.Error("a member that is not known is gone for a lease")
			}
			a.readMembers(false)
			a.declareSilent()
			if !b.renew() {
				t.Errorf("%s its next sign of life, a member declares one gone that lives", when)
			}
			a.renew()
			a.renew()
		}
	})
}
