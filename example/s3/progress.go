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
	case r.Outcome == reconcile.Terminated:
		return refused
	case r.Outcome == reconcile.GaveUp:
		return gaveUp
	case errors.As(r.Err, &s):
		return s
	case r.Outcome == reconcile.Succeeded:
		return removed
	}
	return retrying
}

// Progress knows how far each bucket is. Whether anything is left to do the queue
// knows, once it is known what is there. All methods may be called from any
// goroutine, and none blocks except wait.
type progress struct {
	queue  *reconcile.Queue[string]
	wishes *bucket.Wishes
	news   func(name string, s bucket.Status, err error) // with the lock held; of each change

	mu       sync.Mutex // guards the fields below
	rows     map[string]row
	runs     int
	listed   bool
	unlisted error         // why it is not known what is there, after several tries
	failures int           // of the list, before the first complete one
	known    chan struct{} // closed when it is listed, or unlisted for the first time
}

type row struct {
	status bucket.Status // "" before the first run
	err    error
	next   time.Time // when the last run asked for the next one
	did    bool      // something to it since the last run ended
}

func newProgress(queue *reconcile.Queue[string], wishes *bucket.Wishes) *progress {
	return &progress{queue: queue, wishes: wishes, rows: map[string]row{}, known: make(chan struct{})}
}

// list is told what is there, or why that is not known.
func (p *progress) list(names []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listed {
		return
	}
	if err != nil {
		if p.failures++; p.failures < 3 {
			return
		}
	}
	// The poller offers them too, but the queue might be idle before.
	for _, name := range names {
		p.queue.Offer(name)
	}
	if p.unlisted == nil {
		close(p.known)
	}
	p.listed, p.unlisted = err == nil, err
}

// wait blocks until nothing is left to do: all that is wished for, and all that
// is there, is settled or given up.
func (p *progress) wait(ctx context.Context) error {
	select {
	case <-p.known:
		return p.queue.WaitIdle(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// did is told of each step that was done.
func (p *progress) did(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rows[name]
	r.did = true
	p.rows[name] = r
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
	now := row{status: statusOf(r), err: r.Err, next: time.Now().Add(r.Next)}
	if p.rows[r.Item] = now; now.status == removed {
		delete(p.rows, r.Item)
	}
	same := now.status == old.status && (now.err == nil || old.err == nil || now.err.Error() == old.err.Error())
	if p.news != nil && (old.did || !same) {
		p.news(r.Item, now.status, now.err)
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
		// A look that is due does not make a difference, an event before that does.
		if r, s := p.rows[name], p.queue.State(name); r.status == bucket.InSync && (s.Settled || !s.Since.Before(r.next)) {
			t.inSync++
		}
	}
	slices.SortFunc(t.bad, cmp.Compare[string])
	slices.Sort(t.kept)
	return t
}
