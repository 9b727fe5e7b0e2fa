// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/board"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/program"
)

// A view shows how the board stands: on a terminal as a table that is drawn
// again and again, otherwise as lines.
type view struct {
	out, errs io.Writer
	board     *assetBoard
	queue     *reconcile.Queue[cloud.ID]
	screen    func() (width, height int) // nil if out is not a terminal
	logs      io.Writer                  // where a logger is to write
	colour    bool
	brief     bool   // too many assets for a line each
	title     string // the second line of the table
	began     time.Time

	mu       sync.Mutex // guards the fields below, out and errs
	messages []string   // the last few, for the table, the newest first
	trouble  []string   // lines that stay until the trouble is over
	inSync   bool       // all was in sync once; only for who draws
}

const keepMessages = 4

func newView(o options, cloudURL string, queue *reconcile.Queue[cloud.ID], board *assetBoard, stdout, stderr io.Writer) *view {
	v := &view{
		out: stdout, errs: stderr, logs: stderr, board: board, queue: queue,
		brief: o.n > 100, began: time.Now(),
		title: fmt.Sprintf("cloud at %s, tenant %s; Ctrl-C ends", cloudURL, o.tenant),
	}
	if out, ok := stdout.(*os.File); ok && !o.lines {
		if _, _, ok := screenSize(out); ok {
			v.screen = func() (width, height int) {
				width, height, _ = screenSize(out)
				return width, height
			}
			v.colour = os.Getenv("NO_COLOR") == ""
		}
	}
	if errs, ok := stderr.(*os.File); ok && v.screen != nil {
		if _, _, ok := screenSize(errs); ok {
			v.logs = v // it would spoil the table
		}
	}
	return v
}

// start shows the board until the function it returns is called.
func (v *view) start(ctx context.Context) (stop func()) {
	said := make(chan struct{})
	interrupted := context.AfterFunc(ctx, func() {
		defer close(said)
		if _, done := v.board.Final(); !done {
			v.note("ending in order; again to end at once")
		}
	})
	if v.screen == nil {
		v.line("%s", v.title)
	}
	showing, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { v.run(showing) })
	return func() {
		if !interrupted() {
			<-said // else the program may be quicker
		}
		end()
		running.Wait()
	}
}

// moved tells of an asset whose status changed. It is called by the workers.
func (v *view) moved(r board.Row[cloud.ID]) {
	if v.screen != nil || v.brief && !r.CannotBe() {
		return
	}
	text := board.Reason(r.Status, r.Err)
	if r.Status == board.Retrying {
		text = fmt.Sprintf("try %d, the next in %v: %s", r.Tries, r.Next.Round(time.Millisecond), text)
	}
	v.line("%-22s %-10s %s", r.Item, r.Status, text)
}

// note tells of something that happened.
func (v *view) note(format string, args ...any) {
	if v.screen != nil {
		fmt.Fprintf(v, format+"\n", args...)
		return
	}
	v.line(format, args...)
}

// file tells of another version of the file, or what is wrong with it; that stays
// in the table until there is a good one.
func (v *view) file(path string, changed int, err error) {
	v.mu.Lock()
	v.trouble = nil
	if err != nil {
		text := v.stamp() + path + " is not used, the last good version stays in force:\n" + err.Error()
		v.trouble = strings.Split(strings.ReplaceAll(text, "\n", "\n          "), "\n")
		if v.screen == nil {
			fmt.Fprintln(v.errs, strings.Join(v.trouble, "\n"))
		}
	}
	v.mu.Unlock()
	if err == nil {
		v.note("%s is in force, %s changed", path, program.Count(changed, "asset", "assets"))
	}
}

// line writes a line with the time since the start.
func (v *view) line(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(v.out, v.stamp()+strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// stamp gives the time since the start, as each line begins.
func (v *view) stamp() string { return fmt.Sprintf("%7.1fs  ", time.Since(v.began).Seconds()) }

// Write takes the lines of a logger into the table.
func (v *view) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for line := range bytes.Lines(p) {
		v.messages = append([]string{v.stamp() + string(bytes.TrimRight(line, "\n"))}, v.messages...)
	}
	v.messages = v.messages[:min(len(v.messages), keepMessages)]
	return len(p), nil
}

// logTime leaves the date out of a log, and all of the time in the table, which
// has its own.
func (v *view) logTime(_ []string, a slog.Attr) slog.Attr {
	switch {
	case a.Key != slog.TimeKey || a.Value.Kind() != slog.KindTime:
		return a
	case v.logs == v:
		return slog.Attr{}
	}
	return slog.String(a.Key, a.Value.Time().Format("15:04:05.000"))
}

// run shows the board until ctx is done.
func (v *view) run(ctx context.Context) {
	period := 2 * time.Second
	if v.screen != nil {
		period = 200 * time.Millisecond
		v.print(enterScreen)
		defer v.leave()
		v.draw()
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	var last board.Totals
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if v.screen != nil {
			v.draw()
		} else if now := v.board.Totals(); now != last {
			last = now
			v.line("%s%s", line(now), v.timeLeft(now, time.Since(v.began)))
		}
	}
}

// line gives "in sync 12/14, creating 2; 61 reconciles, 4 retries, drift mended 0".
func line(t board.Totals) string {
	return fmt.Sprintf("in sync %d/%d, %s", t.InSync, t.Wanted, others(t))
}

// others gives what is under way and what was done.
func others(t board.Totals) string {
	s := t.UnderWay
	if t.Refused > 0 {
		s = strings.TrimPrefix(fmt.Sprintf("%s, cannot be %d", s, t.Refused), ", ")
	}
	return strings.TrimPrefix(s+"; "+t.Activity(), "; ")
}
