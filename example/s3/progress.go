// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/bucket"
)

// Statuses besides those of package bucket.
const (
	removed  bucket.Status = "removed"
	retrying bucket.Status = "retrying"
	refused  bucket.Status = "refused"
	gaveUp   bucket.Status = "gave up"
)

// statusOf reads the status out of a result.
func statusOf(r reconcile.Result[string]) bucket.Status {
	switch s := bucket.Status(""); {
	case r.Outcome == reconcile.Succeeded:
		return removed
	case r.Outcome == reconcile.Terminated:
		return refused
	case r.Outcome == reconcile.GaveUp:
		return gaveUp
	case r.Outcome == reconcile.Requeued && errors.As(r.Err, &s):
		return s
	}
	return retrying
}

// Progress knows how far each bucket is, and when nothing is left to do. It
// stands between those who feed the queue and the queue. All methods may be
// called from any goroutine, and none blocks.
type progress struct {
	queue  *reconcile.Queue[string]
	wishes *bucket.Wishes
	news   func(name string, s bucket.Status, err error) // with the lock held; of each change

	mu       sync.Mutex // guards the fields below
	rows     map[string]row
	open     int // rows that are not settled
	runs     int
	listed   bool
	unlisted error // why it is not known what is there, after several tries
	failures int   // of the list, in a row
	done     chan struct{}
}

type row struct {
	status bucket.Status // "" before the first run
	err    error
	again  bool // an event has come since the last run began
	did    bool // something to it since the last run ended
}

func (r row) settled() bool {
	return !r.again && r.status != "" && r.status != retrying && r.status != bucket.Busy
}

func newProgress(queue *reconcile.Queue[string], wishes *bucket.Wishes) *progress {
	return &progress{queue: queue, wishes: wishes, rows: map[string]row{}, done: make(chan struct{})}
}

// Enqueue passes on an event. Until the next run nothing is settled for that
// bucket. The lock is held, so that the result of an older run cannot come in
// between.
func (p *progress) Enqueue(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rows[name]
	r.again = true
	p.setLocked(name, r)
	p.queue.Enqueue(name)
}

// EnqueueAfter passes on an event for later.
func (p *progress) EnqueueAfter(name string, d time.Duration) { p.queue.EnqueueAfter(name, d) }

// Offer passes on an observation. What it may lead to is known from list.
func (p *progress) Offer(name string) { p.queue.Offer(name) }

// list is told what is there, or why that is not known.
func (p *progress) list(names []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.failures++; p.failures >= 3 && !p.listed {
			p.unlisted = err
		}
		p.checkLocked()
		return
	}
	p.failures, p.listed, p.unlisted = 0, true, nil
	for _, name := range names {
		if _, known := p.rows[name]; !known {
			p.setLocked(name, row{}) // it is offered in a moment
		}
	}
	p.checkLocked()
}

// did is told of each step that was done.
func (p *progress) did(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rows[name]
	r.did = true
	p.setLocked(name, r)
}

// result is told how each run ended, before its item goes back to the queue.
func (p *progress) result(r reconcile.Result[string]) {
	if r.Outcome == reconcile.Aborted {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs++
	old := p.rows[r.Item]
	now := row{status: statusOf(r), err: r.Err, again: p.queue.State(r.Item).Again}
	p.setLocked(r.Item, now)
	same := now.status == old.status && (now.err == nil || old.err == nil || now.err.Error() == old.err.Error())
	if p.news != nil && (old.did || !same) {
		p.news(r.Item, now.status, now.err)
	}
	p.checkLocked()
}

func (p *progress) setLocked(name string, r row) {
	if old, ok := p.rows[name]; ok && !old.settled() {
		p.open--
	}
	if r.status == removed && !r.again {
		delete(p.rows, name)
		return
	}
	p.rows[name] = r
	if !r.settled() {
		p.open++
	}
}

func (p *progress) checkLocked() {
	if p.open > 0 || !p.listed && p.unlisted == nil {
		return
	}
	select {
	case <-p.done:
	default:
		close(p.done)
	}
}

// A total counts the buckets.
type total struct {
	wanted, inSync, runs int
	bad                  []string // those that cannot be, with the reason; sorted
	kept                 []string
	unlisted             error
}

func (p *progress) total() total {
	names, _ := p.wishes.Names(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	t := total{wanted: len(names), runs: p.runs, unlisted: p.unlisted}
	for name, r := range p.rows {
		switch r.status {
		case bucket.Kept:
			t.kept = append(t.kept, name)
		case refused, gaveUp:
			t.bad = append(t.bad, name+": "+r.err.Error())
		}
	}
	for _, name := range names {
		if r := p.rows[name]; r.status == bucket.InSync && !r.again {
			t.inSync++
		}
	}
	slices.SortFunc(t.bad, cmp.Compare[string])
	slices.Sort(t.kept)
	return t
}
