// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
)

// deviations are the cells of the kernel's table that a Queue answers otherwise. Close ends the
// part of one process, so other processes keep what is ready or waits.
var deviations = map[string]string{
	// The clock goes on between two operations, so two hours from now are never the two hours from
	// before. TestTable has the tie.
	"EnqueueAfter 2h/within 2h":                 "within 2h",
	"EnqueueAfter 2h/recheck 2h":                "within 2h",
	"EnqueueAfter 2h/in flight, within 2h next": "in flight, within 2h next",

	"Close/within 2h":                     "within 2h",
	"Close/recheck 2h":                    "recheck 2h",
	"Close/held 2h":                       "held 2h",
	"Close/in flight, within 2h next":     "in flight, within 2h next",
	"Close/in flight, held 2h next":       "in flight, held 2h next",
	"closed/Dequeue/ready":                "ready",
	"closed/Requeue 1h/in flight":         "within 1h",
	"closed/Requeue 1h Recheck/in flight": "recheck 1h",

	// A MinDelay holds after Close too.
	"Close/in flight, now next":                           "in flight, now next",
	"closed/Requeue 0s MinDelay 1h/in flight":             "held 1h",
	"closed/Requeue 0s MinDelay 1h/in flight, ready next": "held 1h",
	"closed/Requeue 1h MinDelay 1h/in flight":             "held 1h",
	"closed/Requeue 1h MinDelay 1h/in flight, ready next": "held 1h",
}

// TestQueueTable runs the cells of the kernel's state table by the methods of a Queue. It
// leaves out those with times that may pass before the row is read, and the Dequeues that
// wait: TestTable has them.
func TestQueueTable(t *testing.T) {
	p := setUp(t)
	q := open(t, Config{Pool: p, Lease: time.Minute})
	deviating := 0
	for n, c := range model.Cells() {
		name := c.Name()
		waits := c.Op.Verb == model.Dequeue && c.Want == c.Entry && !c.Closed
		if strings.Contains(name+c.Want, "1s") || strings.Contains(name, "500ms") || waits {
			continue
		}
		want, deviates := deviations[name]
		if deviates {
			deviating++
		} else {
			want = strings.ReplaceAll(c.Want, "background", "ready")
		}
		t.Run(name, func(t *testing.T) {
			one, item := q, fmt.Sprint("x", n)
			if c.Closed || c.Op.Verb == model.Close {
				one = open(t, Config{Pool: p, Lease: time.Minute})
			}
			for _, o := range append(slices.Clip(c.Setup), c.Op) {
				play(t, one, item, o)
			}
			if got := standing(t, p, one.cfg.Name, item); got != want {
				t.Errorf("%v of %q: %q, want %q", c.Op, c.Entry, got, want)
			}
			one.Done(item) // if it is in flight
			if err := one.Flush(t.Context()); err != nil && err != reconcile.ErrClosed {
				t.Fatal(err)
			}
			exec(t, p, "DELETE FROM reconcile.item WHERE queue = $1 AND owner IS NULL", one.cfg.Name)
		})
	}
	if deviating != len(deviations) {
		t.Errorf("%d cells deviate, want the %d that are listed", deviating, len(deviations))
	}
}

// play carries an operation out on an item.
func play(t *testing.T, q *Queue[string], item string, o model.Op[string]) {
	t.Helper()
	switch o.Verb {
	case model.Offer:
		q.Offer(item)
	case model.Enqueue:
		q.Enqueue(item)
	case model.EnqueueAfter:
		q.EnqueueAfter(item, o.Options.Delay)
	case model.EnqueueWithin:
		q.EnqueueWithin(item, o.Options.Delay)
	case model.EnqueueNow:
		q.EnqueueNow(item)
	case model.Remove:
		if _, err := q.Remove(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	case model.Done:
		q.Done(item)
	case model.Requeue:
		q.Requeue(item, reconcile.RequeueOptions(o.Options))
	case model.Close:
		closing(t, q)
		return
	case model.Dequeue:
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if got, err := q.Dequeue(ctx); got != item && err != reconcile.ErrClosed {
			t.Fatalf("Dequeue: %q, %v", got, err)
		}
	}
	if err := q.Flush(t.Context()); err != nil && err != reconcile.ErrClosed {
		t.Fatal(err)
	}
}

// closing begins a Close, and lets it wait for the items in flight.
func closing(t *testing.T, q *Queue[string]) {
	t.Helper()
	ended := make(chan bool)
	go func() {
		defer close(ended)
		_ = q.Close(context.Background())
	}()
	for { // until it has begun, or a Dequeue would wait
		q.mu.Lock()
		closed := q.closed
		q.mu.Unlock()
		if closed {
			break
		}
	}
	t.Cleanup(func() { <-ended })
}

// standing says how an item stands, in the words of the table.
func standing(t *testing.T, p *pgxpool.Pool, queue, item string) string {
	t.Helper()
	var inFlight, atOnce, recheck bool
	var due, notBefore *float64
	rows, _ := p.Query(t.Context(), `SELECT owner IS NOT NULL, COALESCE(not_before = '-infinity', false), recheck, EXTRACT(epoch FROM due - now())::float8,
		CASE WHEN isfinite(not_before) THEN EXTRACT(epoch FROM not_before - now())::float8 END FROM reconcile.item WHERE queue = $1 AND item = $2`, queue, item)
	defer rows.Close()
	if !rows.Next() {
		return "none"
	}
	if err := rows.Scan(&inFlight, &atOnce, &recheck, &due, &notBefore); err != nil {
		t.Fatal(err)
	}
	hours := func(seconds *float64) time.Duration {
		if seconds == nil {
			return 0
		}
		return time.Duration(max(0, *seconds) * float64(time.Second)).Round(time.Hour)
	}
	s := ""
	switch {
	case due == nil:
	case *due > 0:
		s = model.Words(hours(due), hours(notBefore), recheck)
	case atOnce && inFlight:
		s = "now"
	default:
		s = "ready"
	}
	switch {
	case !inFlight:
		return s
	case s == "":
		return "in flight"
	}
	return "in flight, " + s + " next"
}
