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
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/statuspage"
	"github.com/reconkernel/reconcile/tracker"
)

// control puts all parts together and runs them until ctx is done or, unless it
// is to watch, nothing is left to do. It returns the exit code.
func control(ctx context.Context, o options, client *cloud.Client, stdout, stderr io.Writer) (int, error) {
	queue := reconcile.NewQueue[cloud.ID]()
	board := newBoard(queue)
	var read func(context.Context) (assets, error) // the file; nil if there is none
	if o.n == 0 && o.assets != "" {
		read = tracker.FromFile(o.assets, func(text []byte) (assets, error) { return parse(o.assets, text) })
	}
	c := &controller{cloud: client, board: board, recheck: o.Recheck, patience: time.Second, wish: lookUp(board, read)}
	v := newView(o, client.URL, queue, board, stdout, stderr)
	board.Moved = v.moved
	// All parts log there, except what the view shows.
	slog.SetDefault(program.Logger(v.logs, o.verbose, &slog.HandlerOptions{Level: o.level, ReplaceAttr: v.logTime}))

	var wanted assets
	var err error
	switch {
	case o.n > 0:
		wanted = generate(o.n)
	case read == nil:
		wanted, err = parse(o.assets, shipped)
	default:
		wanted, err = read(ctx)
	}
	if err != nil {
		return 1, err
	}
	board.Want(wanted.order, wanted.specs)

	// What the cloud allows, and a pause for all when it says that it has too much to do.
	calls := &gate.Gate{Pause: pause}
	if o.budget > 0 {
		calls.Every, calls.Burst = time.Second/time.Duration(o.budget), max(1, o.budget/5)
	}

	// Both do the same with or without a page that shows them, see -http.
	group := &statuspage.Group{Name: "Runners"}
	shown := &statuspage.Loop[cloud.ID]{Name: "assets", Queue: queue, Wanted: func(id cloud.ID) bool {
		_, wanted := board.Wanted(id)
		return wanted // what was removed is shown no more
	}}
	if o.http != "" {
		page := statuspage.New(shown, &statuspage.Gate{Name: "cloud", Gate: calls}, group)
		page.Title = "Assets"
		page.AllowActions = true // whoever reaches the page may press the buttons
		group.Add("page", statuspage.Serve(o.http, page))
		v.title += "; live page at " + pageURL(o.http)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()

	// The loop. What is there is asked for as often as an asset is tried.
	board.Lists = 1 + o.Retries
	group.Add("assets", &reconcile.Reconciler[cloud.ID]{
		Name:          "assets",
		Queue:         queue,
		Reconcile:     c.Reconcile,
		OnResult:      shown.OnResult(c.result),
		Workers:       o.Workers,
		Timeout:       15 * time.Second,
		Grace:         2 * time.Second,
		Retry:         reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(o.Retries),
		RecheckJitter: 0.1, // what was made together is not looked at together for ever
		Admit:         calls.Admit,
	})

	// What is wanted: once at the start, and again with each poll, which also
	// gives what was refused or given up another try. What changes in the file
	// is enqueued by the board.
	group.Add("wanted", &reconcile.Poller[cloud.ID]{
		Name: "wanted", Queue: queue, GetItems: board.AllWanted, Period: o.Poll, Jitter: 0.1,
	})
	if read != nil {
		look := statuspage.Poll(group, o.assets, read) // red while the file is not used
		news := program.News(func(changed int, err error) { v.file(o.assets, changed, err) })
		group.Add("file", &reconcile.Poller[cloud.ID]{
			Name: "file", Queue: queue, Period: 2 * time.Second, Logger: slog.New(slog.DiscardHandler), // the view says why
			GetItems: func(ctx context.Context) ([]cloud.ID, error) {
				wanted, err := look(ctx)
				news(board.Want(wanted.order, wanted.specs), err)
				return nil, err
			},
		})
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

// lookUp returns a function that looks up whether an asset is wanted: in the file, if
// there is one that read reads, and not in what the board knows of it.
func lookUp(board *assetBoard, read func(context.Context) (assets, error)) func(context.Context, cloud.ID) (bool, error) {
	return func(ctx context.Context, id cloud.ID) (wanted bool, err error) {
		if read == nil {
			_, wanted = board.Wanted(id)
			return wanted, nil
		}
		now, err := read(ctx)
		if err == nil {
			_, wanted = now.specs[id]
		}
		return wanted, err
	}
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
