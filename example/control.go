// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net"
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
	board.Moved = v.moved
	// All parts log there, except what the view shows.
	slog.SetDefault(program.Logger(v.logs, o.verbose, &slog.HandlerOptions{Level: o.level, ReplaceAttr: v.logTime}))

	file := &program.File{
		Path: o.assets,
		Use: func(text []byte) (changed int, err error) {
			wanted, err := parse(o.assets, text)
			if err != nil {
				return 0, err
			}
			return board.Want(wanted.order, wanted.specs), nil
		},
		Told: func(changed int, err error) { v.file(o.assets, changed, err) },
	}
	var err error
	switch {
	case o.n > 0:
		a := generate(o.n)
		board.Want(a.order, a.specs)
	case o.assets == "":
		_, err = file.Use(shipped)
	default:
		err = file.Load(ctx)
	}
	if err != nil {
		return 1, err
	}

	// Both do the same with or without a page that shows them, see -http.
	group := &statuspage.Group{Name: "Runners"}
	shown := &statuspage.Loop[cloud.ID]{Name: "assets", Queue: queue}
	if o.http != "" {
		page := statuspage.New(shown, group)
		page.Title = "Assets"
		page.AllowActions = true // whoever reaches the page may press the buttons
		group.Add("page", statuspage.Serve(o.http, page))
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
	if o.n == 0 && o.assets != "" {
		group.Add("file", file)
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
	err = group.Run(ctx)
	stopView()
	if err != nil {
		return 1, err
	}
	return board.Report(stdout, "asset", "assets", time.Since(v.began), o.watch), nil
}

// pageURL returns a URL that a browser on this machine can open. The page answers
// nobody who calls it 0.0.0.0.
func pageURL(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if net.ParseIP(host).IsUnspecified() {
		host = ""
	}
	return "http://" + net.JoinHostPort(cmp.Or(host, "localhost"), port)
}
