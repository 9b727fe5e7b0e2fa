// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"fmt"
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

// A run ends after the stream was made anew, or has lost messages, and the record of another
// run of its item has the sequence that its own had: that one is left alone.
func TestLostRunLeavesTheNextAlone(t *testing.T) {
	const claim = 100
	ends := map[string]func(ctx context.Context, q *Queue[string], l *link, anew *memory){
		"after the lease is lost": func(ctx context.Context, q *Queue[string], l *link, anew *memory) {
			l.m = anew
			<-q.Lease(ctx, "x").Done()
			q.Done("x")
		},
		"after the server is back": func(ctx context.Context, q *Queue[string], l *link, anew *memory) {
			l.tear()
			l.m = anew
			l.reconnect()
			q.Done("x")
		},
		"by a timer, after the server is back": func(ctx context.Context, q *Queue[string], l *link, anew *memory) {
			q.Done("x")
			q.Flush(ctx)
			l.m.seq = q.member.seq
			q.EnqueueAfter("x", time.Minute)
			q.Flush(ctx)
			m, err := l.m.last("q.i.x")
			item, s, ok := q.known(m)
			if err != nil || !ok || s.seq != claim {
				panic(fmt.Sprint(err, s))
			}
			q.schedule(item, s)
			l.tear()
			l.m = anew
			l.reconnect()
			time.Sleep(time.Minute)
			synctest.Wait()
		},
		"in a long outbox while the server is away": func(ctx context.Context, q *Queue[string], l *link, anew *memory) {
			l.atOnce = false
			l.tear()
			for i := range 2 * maxSenders {
				q.Enqueue(fmt.Sprint(i))
			}
			q.Done("x")
			time.Sleep(playLease)
			l.m = anew
			l.reconnect()
		},
	}
	for d := playLease / 2; d < playLease; d += 10 * time.Millisecond { // in each phase of an attempt
		ends[fmt.Sprint("while the server is away for ", d)] = func(ctx context.Context, q *Queue[string], l *link, anew *memory) {
			l.atOnce = false
			l.tear()
			q.Done("x")
			time.Sleep(d)
			l.m = anew
			l.reconnect()
		}
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				take := func(m *memory, claim uint64) (*Queue[string], *link) {
					q, l := inMemory(t, m, new(logbook), func(w wire) wire { return w })
					l.atOnce = true
					if err := q.EnqueueContext(t.Context(), "x"); err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // for the reserve
					m.seq = claim - 2
					if item, err := q.Dequeue(t.Context()); err != nil || item != "x" {
						t.Fatalf("Dequeue: %q, %v, want x", item, err)
					}
					if got := q.held["x"].seq; got != claim { // after a sign of life
						t.Fatalf("the claim has the sequence %d, want %d", got, claim)
					}
					return q, l
				}
				late, l := take(newMemory("q", playLease), claim)
				anew := newMemory("q", playLease)
				other, _ := take(anew, claim)
				defer func() {
					for _, q := range []*Queue[string]{late, other} {
						q.end()
						q.running.Wait()
					}
				}()
				record := func() string {
					m, err := anew.last("q.i.x")
					return fmt.Sprintf("%d %s %v", m.seq, m.data, err)
				}
				before := record()
				end(t.Context(), late, l, anew)
				if err := late.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if now := record(); now != before {
					t.Errorf("the record of the next run was %s, and is %s", before, now)
				}
			})
		})
	}
}

// A tearing wire loses the connection as soon as something is stored.
type tearing struct{ *link }

func (w tearing) publish(ctx context.Context, subject string, last uint64, data []byte) (uint64, error) {
	defer w.tear()
	return w.link.publish(ctx, subject, last, data)
}

func (w tearing) publishBriefly(ctx context.Context, subject string, last uint64, data []byte) (uint64, error) {
	defer w.tear()
	return w.link.publishBriefly(ctx, subject, last, data)
}

func (w tearing) patient() wire { return w }

// What was to be deleted when the connection was lost is deleted once it is back, by a
// server that may have lost messages: the records that have its sequence by then stay.
func TestLateDeletionLeavesRecordsAlone(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, q *Queue[string]){
		"the end of a run": func(ctx context.Context, q *Queue[string]) { q.forget(ctx, "q.i.x", "x", 0, "w") },
		"a grave": func(ctx context.Context, q *Queue[string]) {
			q.declareGone(ctx, "m", 0, false)
			q.removeGrave("m")
		},
		"a probe": func(ctx context.Context, q *Queue[string]) {
			q.wire.(tearing).m.publish(q.reserveSubject(), 0, nil)
			q.refill(ctx, true)
		},
		"a reserve": func(ctx context.Context, q *Queue[string]) { q.refill(ctx, false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, l := inMemory(t, newMemory("q", playLease), new(logbook), func(w wire) wire { return tearing{w.(*link)} })
				defer q.end()
				do(t.Context(), q)
				l.m = newMemory("q", playLease)
				const n = 10
				for i := range n {
					l.m.publish(fmt.Sprint("q.i.y", i), 0, nil)
				}
				l.reconnect()
				time.Sleep(time.Second)
				if got := len(l.m.items()); got != n {
					t.Errorf("of %d records %d are left", n, got)
				}
			})
		})
	}
}
