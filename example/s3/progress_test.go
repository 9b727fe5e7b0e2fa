// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/bucket"
)

var (
	errInSync = fmt.Errorf("%w: %w", bucket.InSync, reconcile.RequeueWithin(time.Minute))
	errKept   = fmt.Errorf("%w: %w", bucket.Kept, reconcile.RequeueWithin(time.Minute))
	errBusy   = fmt.Errorf("%w: %w", bucket.Busy, reconcile.RequeueAfter(time.Minute))
	errNever  = errors.New("never")
)

// A step of a protocol: what progress is told, and whether it is done then.
type told struct {
	what func(*progress)
	done bool
}

func event(name string) func(*progress) { return func(p *progress) { p.Enqueue(name) } }

func listed(names ...string) func(*progress) { return func(p *progress) { p.list(names, nil) } }

func unlisted(p *progress) { p.list(nil, errNever) }

// ran is a run that ended so. No event has come meanwhile.
func ran(name string, outcome reconcile.Outcome, err error) func(*progress) {
	return func(p *progress) {
		p.queue.Remove(name) // it is taken
		p.result(reconcile.Result[string]{Item: name, Outcome: outcome, Err: err})
	}
}

// It is done once all that is wished for is in sync or cannot be, all else has
// been looked at, and it is known what there is.
func TestProgress(t *testing.T) {
	for name, steps := range map[string][]told{
		"list last": {
			{event("a"), false},
			{ran("a", reconcile.Requeued, errInSync), false},
			{listed("a"), true},
		},
		"list first": {
			{event("a"), false},
			{event("b"), false},
			{listed(), false},
			{ran("a", reconcile.Requeued, errInSync), false},
			{ran("b", reconcile.Terminated, errNever), true},
		},
		"too much is there": {
			{listed("a", "b", "c"), false},
			{ran("a", reconcile.Requeued, errKept), false},
			{ran("b", reconcile.Requeued, fmt.Errorf("%w: %w", bucket.NotOurs, reconcile.RequeueWithin(0))), false},
			{ran("c", reconcile.Succeeded, nil), true},
		},
		"nothing": {
			{listed(), true},
		},
		"not settled": {
			{event("a"), false},
			{listed(), false},
			{ran("a", reconcile.Retrying, errNever), false},
			{ran("a", reconcile.Requeued, errBusy), false},
			{ran("a", reconcile.Aborted, errNever), false},
			{ran("a", reconcile.GaveUp, errNever), true},
		},
		"no list": {
			{event("a"), false},
			{ran("a", reconcile.Requeued, errInSync), false},
			{unlisted, false},
			{unlisted, false},
			{unlisted, true},
		},
	} {
		p := newProgress(reconcile.NewQueue[string](), &bucket.Wishes{})
		for i, step := range steps {
			step.what(p)
			done := false
			select {
			case <-p.done:
				done = true
			default:
			}
			if done != step.done {
				t.Errorf("%s: after step %d done is %v, want %v", name, i+1, done, step.done)
			}
		}
	}
}

// A bucket that was asked for again while its run went on is not settled by it.
func TestProgressWaitsForTheNextRun(t *testing.T) {
	p := newProgress(reconcile.NewQueue[string](), &bucket.Wishes{})
	p.Enqueue("a")
	p.list([]string{"a"}, nil)
	if _, err := p.queue.Dequeue(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Enqueue("a")
	p.result(reconcile.Result[string]{Item: "a", Outcome: reconcile.Requeued, Err: errInSync})
	select {
	case <-p.done:
		t.Error("it is done, and an event has come after the run began")
	default:
	}
	p.queue.Requeue("a", reconcile.Wait{Delay: time.Minute})
	if _, err := p.queue.Dequeue(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.result(reconcile.Result[string]{Item: "a", Outcome: reconcile.Requeued, Err: errInSync})
	select {
	case <-p.done:
	default:
		t.Error("it is not done after the last run")
	}
}

func TestProgressTotal(t *testing.T) {
	wishes := &bucket.Wishes{}
	wishes.Set(map[string]bucket.Wish{"a": {}, "b": {}, "c": {}, "d": {}})
	p := newProgress(reconcile.NewQueue[string](), wishes)
	for _, step := range []func(*progress){
		listed("a", "k", "j"),
		ran("a", reconcile.Requeued, errInSync), ran("b", reconcile.Terminated, errNever),
		ran("c", reconcile.GaveUp, errors.New("no answer")), ran("k", reconcile.Requeued, errKept), ran("j", reconcile.Requeued, errKept),
	} {
		step(p)
	}
	got := p.total()
	if got.wanted != 4 || got.inSync != 1 || got.runs != 5 || got.unlisted != nil ||
		!slices.Equal(got.bad, []string{"b: never", "c: no answer"}) || !slices.Equal(got.kept, []string{"j", "k"}) {
		t.Errorf("the total is %+v", got)
	}
}
