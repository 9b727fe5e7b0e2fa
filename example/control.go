// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/program"
	"github.com/reconkernel/reconcile/statuspage"
)

// control puts all parts together and runs them until ctx is done or, unless it
// is to watch, nothing is left to do. It returns the exit code.
func control(ctx context.Context, o options, client *cloud.Client, stdout, stderr io.Writer) (int, error) {
	queue := reconcile.NewQueue[cloud.ID]()
	board := newBoard(queue)
	c := &controller{cloud: client, board: board, recheck: o.Recheck, patience: time.Second}
	v := newView(o, client.URL, queue, board, stdout, stderr)
	board.moved = v.moved
	// All parts log there, except what the view shows.
	slog.SetDefault(program.Logger(v.logs, o.verbose, &slog.HandlerOptions{Level: o.level, ReplaceAttr: v.logTime}))

	wishes := &wishFile{path: o.assets, board: board}
	if o.n > 0 {
		board.Want(generate(o.n))
	} else if _, err := wishes.load(); err != nil {
		return 1, err
	}

	// Both do the same with or without a page that shows them, see -http.
	group := &statuspage.Group{Name: "Runners"}
	shown := &statuspage.Loop[cloud.ID]{Name: "assets", Queue: queue}
	if o.http != "" {
		addPage(group, shown, o.http)
		v.title += "; live page at " + pageURL(o.http)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()

	// The loop.
	group.Add("assets", &reconcile.Reconciler[cloud.ID]{
		Name:      "assets",
		Queue:     queue,
		Reconcile: c.Reconcile,
		OnResult:  shown.OnResult(c.result),
		Workers:   o.Workers,
		Timeout:   15 * time.Second,
		Grace:     2 * time.Second,
		Retry:     reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(o.Retries),
	})

	// What is wanted: once at the start, and again with each poll, which also
	// gives what was refused or given up another try. What changes in the file
	// is enqueued by the board.
	group.Add("wanted", &reconcile.Poller[cloud.ID]{
		Name: "wanted", Queue: queue, GetItems: board.AllWanted, Period: o.Poll, Jitter: 0.1,
	})
	if o.n == 0 {
		group.Add("file", reconcile.RunFunc(func(ctx context.Context) error { return wishes.watch(ctx, v) }))
	}

	// What is there: by polls, and by events between them. What happens to an
	// asset concerns those that depend on it, too. Vanished is not set because
	// the board finds more than it: it compares with what is wanted, not with
	// the last poll.
	changes := reconcile.Map(queue, c.withDependants)
	existing := &reconcile.Poller[cloud.ID]{
		Name: "existing", Queue: changes, GetItems: c.list, Period: o.Poll, Jitter: 0.1,
	}
	group.Add("existing", existing)
	events := group.Watch("event stream", reconcile.Feed(changes, c.feed(existing.Trigger)))
	group.Add("events", reconcile.Restart(reconcile.Backoff(100*time.Millisecond, 5*time.Second), events))

	if !o.watch {
		group.Add("end", reconcile.RunFunc(func(ctx context.Context) error {
			defer end()
			return board.Wait(ctx)
		}))
	}

	stopView := v.start(ctx)
	err := group.Run(ctx)
	stopView()
	if err != nil {
		return 1, err
	}
	return report(stdout, board, time.Since(v.began), o.watch), nil
}
