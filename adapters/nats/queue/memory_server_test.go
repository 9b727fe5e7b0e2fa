// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// pullsLeft returns how many messages are asked for and not there.
func (m *memory) pullsLeft() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.consumer.pulls {
		n += p.left
	}
	return n
}

// The memory of the plays does what a server does: the same requests, made of both
// in turn, have the same answers, and the consumer sends the same.
func TestMemoryBehavesAsAServer(t *testing.T) {
	const requests = 600
	js := natstest.New(t).JetStream(t, natstest.In(t, "creator", "q"))
	q, err := New[string](t.Context(), js, Config{Name: "q", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	q.end()
	if err := q.wire.(*jetWire).s.Purge(t.Context()); err != nil { // of the reserve
		t.Fatal(err)
	}
	m := newMemory("q", time.Hour)
	if m.seq, err = q.wire.publish(t.Context(), "q.x", 0, nil); err != nil { // both go on from here
		t.Fatal(err)
	}
	if err := q.wire.purge(t.Context(), "q.x"); err != nil {
		t.Fatal(err)
	}
	link := newLink(m, time.Minute, 1)
	link.atOnce = true
	wires := [2]wire{q.wire, link}
	var came [2]chan arrival
	for i, w := range wires {
		c := make(chan arrival, 1000)
		came[i] = c
		unsubscribe, err := w.subscribe(func(a arrival) {
			if a.status != "100" {
				c <- a
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer unsubscribe()
	}
	ctx := t.Context()
	r := rand.New(rand.NewPCG(1, 2))
	subjects := []string{"q.i.a", "q.i.b", "q.i.c", "q.m.1", "q.m.2", "q.r"}
	last := make(map[string]uint64) // as stored last
	var unanswered [][2]arrival
	asked, arrived := 0, 0
	for n := range requests {
		subject := subjects[r.IntN(len(subjects))]
		seq := last[subject]
		if r.IntN(4) == 0 {
			seq = uint64(r.IntN(int(m.seq) + 2))
		}
		data := fmt.Appendf(nil, "%d", n)
		var do func(w wire, i int) string
		switch what := r.IntN(12); what {
		case 0, 1, 2, 3:
			do = func(w wire, _ int) string {
				var stored uint64
				var err error
				if what == 0 {
					stored, err = w.publishBriefly(ctx, subject, seq, data)
				} else {
					stored, err = w.publish(ctx, subject, seq, data)
				}
				if err == nil {
					last[subject] = stored
				}
				return fmt.Sprintf("publish %s over %d: %d, %s", subject, seq, stored, kind(err))
			}
		case 4:
			other := subjects[r.IntN(len(subjects))]
			do = func(w wire, _ int) string {
				return fmt.Sprintf("publish if %s is %d: %s", other, seq, kind(w.publishIf(ctx, "q.w", other, seq)))
			}
		case 5:
			do = func(w wire, _ int) string {
				m, err := w.last(ctx, subject)
				return fmt.Sprintf("last %s: %+v, %s", subject, m, kind(err))
			}
		case 6, 7:
			do = func(w wire, _ int) string { return fmt.Sprintf("purge %s: %s", subject, kind(w.purge(ctx, subject))) }
			last[subject] = 0
		case 8:
			filter := []string{"q.i.>", "q.m.>", "q.r"}[r.IntN(3)]
			do = func(w wire, _ int) string {
				all, err := w.subjects(ctx, filter)
				slices.Sort(all)
				return fmt.Sprintf("subjects %s: %v, %s", filter, all, kind(err))
			}
		case 9:
			do = func(w wire, _ int) string {
				var all []string
				_, err := w.scan(ctx, func(m stored, _ time.Time) { all = append(all, fmt.Sprintf("%+v", m)) })
				return fmt.Sprintf("scan: %v, %s", all, kind(err))
			}
		case 10:
			if m.pullsLeft() > 4 {
				continue
			}
			more := 1 + r.IntN(2)
			asked += more
			do = func(w wire, _ int) string { w.pull(uint64(n), more); return "pull" }
		case 11:
			if len(unanswered) == 0 {
				continue
			}
			at := r.IntN(len(unanswered))
			both := unanswered[at]
			unanswered = slices.Delete(unanswered, at, at+1)
			answer := "+ACK"
			if m.pullsLeft() > 0 { // else it is handed out again sooner or later than what is new
				answer = "-NAK"
			}
			do = func(w wire, i int) string {
				w.answer(both[i], answer)
				return fmt.Sprint("answer ", both[1].seq, answer)
			}
		}
		got := [2]string{do(wires[0], 0), do(wires[1], 1)}
		if got[0] != got[1] {
			t.Fatalf("request %d: the server %s; the memory %s", n, got[0], got[1])
		}
		// A pull and an answer are not answered: what is asked next comes after them.
		for _, w := range wires {
			if _, err := w.epoch(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for ; arrived < asked-m.pullsLeft(); arrived++ {
			var both [2]arrival
			for i := range came {
				select {
				case both[i] = <-came[i]:
				case <-time.After(time.Minute):
					t.Fatalf("request %d, %s: only one has a message for who pulled", n, got[0])
				}
			}
			if a, b := fmt.Sprintf("%+v", both[0].stored), fmt.Sprintf("%+v", both[1].stored); a != b || both[0].status != both[1].status {
				t.Fatalf("request %d, %s: the server sent %+v, the memory %+v", n, got[0], both[0], both[1])
			}
			unanswered = append(unanswered, both)
		}
	}
	if arrived < requests/50 {
		t.Errorf("%d messages came, want more", arrived)
	}
}

// kind says what an error means to a queue.
func kind(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, errConflict):
		return "conflict"
	case errors.Is(err, errNoRecord):
		return "no record"
	case isFull(err):
		return "full"
	}
	return err.Error()
}
