// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"
)

// This file has the workloads of whole controllers.

var (
	noLog   = slog.New(slog.DiscardHandler)
	infoLog = slog.New(slog.NewTextHandler(io.Discard, nil)) // Info and above
)

// background runs the trial's controller. The function that it returns ends it
// and waits for it.
func (t *trial) background(l loop) (end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	t.atEnd(cancel)
	l.ctx = ctx
	ended := make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		if err = t.impl.loop(l); err == nil && ctx.Err() == nil {
			err = errors.New("the loop ended by itself")
		}
		if err != nil {
			t.fail("%v", err)
		}
	}()
	return func() error {
		cancel()
		return t.wait(ended)
	}
}

// loopAll runs a controller with a function that does nothing over n items that
// are in its queue already.
func loopAll(t *trial, workers int, log *slog.Logger) error {
	items, l := names(t.n), t.ledger(t.n)
	end := t.background(loop{
		workers: workers,
		log:     log,
		feed: func(q feeder) {
			for _, item := range items {
				q.Add(item)
			}
			t.start()
		},
		reconcile: func(item string) {
			l.take(index(item))
			l.finish()
		},
	})
	if err := t.wait(l.all); err != nil {
		return err
	}
	t.stop("", t.n)
	return end()
}

// loopLate runs n items in 4 workers, each after a delay; the delays end evenly
// over a while. It measures how late each run begins, and what it all costs.
func loopLate(t *trial) error {
	spread := [...]time.Duration{tiny: 100 * time.Millisecond, quick: time.Second, full: 10 * time.Second}[t.mode]
	items, l, r := names(t.n), t.ledger(t.n), t.dice()
	lead := time.Duration(t.n) * 10 * time.Microsecond // to add them all
	due, late := make([]time.Duration, t.n), make([]time.Duration, t.n)
	end := t.background(loop{
		workers: 4,
		log:     noLog,
		feed: func(q feeder) {
			t.start()
			for i, item := range items {
				d := lead + time.Duration(r.Int64N(int64(spread)))
				now := time.Since(t.began)
				due[i] = max(now, d)
				q.AddAfter(item, d-now)
			}
		},
		reconcile: func(item string) {
			now := time.Since(t.began)
			i := index(item)
			l.take(i)
			if late[i] = now - due[i]; late[i] < 0 {
				t.fail("%q ran %v too early", item, -late[i])
			}
			l.finish()
		},
	})
	if err := t.wait(l.all); err != nil {
		return err
	}
	t.stop("", t.n)
	t.values["total cpu"] = t.values["cpu"] * float64(t.n)
	t.lateness(late)
	return end()
}

// loopWake measures how long an idle worker of a controller takes from Add to
// its start.
func loopWake(t *trial) error {
	w := newWaker(t, false)
	fed := make(chan struct{})
	var queue feeder
	end := t.background(loop{
		workers: 1,
		log:     noLog,
		feed: func(q feeder) {
			queue = q
			close(fed)
		},
		reconcile: w.started,
	})
	if err := t.wait(fed); err != nil {
		return err
	}
	if err := w.run(func(item string) { queue.Add(item) }); err != nil {
		return err
	}
	return end()
}
