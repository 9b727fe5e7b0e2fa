// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/board"
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// The table of a view is drawn with escape sequences that all terminals know.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
	plain       = "\x1b[0m"
	bold        = "\x1b[1m"
	dim         = "\x1b[2m"
	red         = "\x1b[31m"
	green       = "\x1b[32m"
	yellow      = "\x1b[33m"
)

func (v *view) print(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(v.out, s)
}

// leave goes back to the screen of before, and leaves the last frame there.
func (v *view) leave() {
	width, height := v.screen()
	v.print(leaveScreen + strings.Join(v.frame(width, height), "\n") + "\n")
}

func (v *view) draw() {
	width, height := v.screen()
	var b strings.Builder
	b.WriteString(home)
	for i, line := range v.frame(width, height) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + clearLine)
	}
	b.WriteString(clearRest)
	v.print(b.String())
}

// frame returns the lines of the table, as many as fit.
func (v *view) frame(width, height int) []string {
	v.mu.Lock()
	messages, trouble := v.messages, v.trouble
	v.mu.Unlock()

	var foot []string
	for _, line := range trouble {
		foot = append(foot, v.paint(red, cut(line, width)))
	}
	for _, line := range messages {
		foot = append(foot, v.paint(dim, cut(line, width)))
	}
	now, took := v.board.Totals(), time.Since(v.began)
	progress := fmt.Sprintf("in sync %d/%d%s, %.0f reconciles a second, %.1fs",
		now.InSync, now.Wanted, v.timeLeft(now, took), float64(now.Runs)/max(1, took.Seconds()), took.Seconds())
	if width >= 100 {
		progress = bar(now.InSync, now.Wanted) + " " + progress
	}
	head := []string{
		v.paint(bold, cut(progress, width)),
		cut(others(now), width),
		v.paint(dim, cut(v.title, width)),
		"",
		v.paint(bold, cut(fmt.Sprintf("%-24s %-9s %5s  %-16s  %s", "ASSET", "STATE", "TRIES", "NEXT RUN", "DETAIL"), width)),
	}
	room := max(0, height-len(head)-len(foot)-1)
	lines := head
	for _, r := range v.board.Rows(room) {
		lines = append(lines, v.row(r, width))
	}
	lines = append(lines, "")
	lines = append(lines, foot...)
	return lines[:min(len(lines), height)]
}

func (v *view) row(r board.Row[cloud.ID], width int) string {
	tries := ""
	if r.Tries > 0 {
		tries = fmt.Sprint(r.Tries)
	}
	line := cut(fmt.Sprintf("%-24s %-9s %5s  %-16s  %s", cut(r.Item.String(), 24), r.Status, tries, nextRun(v.queue.State(r.Item)), board.Reason(r.Status, r.Err)), width)
	switch {
	case r.CannotBe():
		return v.paint(red, line)
	case r.Status == board.InSync:
		return v.paint(green, line)
	case r.Status == board.Retrying, r.Status == board.Throttled:
		return v.paint(yellow, line)
	}
	return line
}

// nextRun tells a floor ("not before 2s") from a ceiling ("within 28s").
func nextRun(s reconcile.State) string {
	left := max(0, time.Until(s.Due)).Round(100 * time.Millisecond)
	if left > 10*time.Second {
		left = left.Round(time.Second)
	}
	switch {
	case s.Phase == reconcile.InFlight:
		return "running"
	case s.Phase == reconcile.Ready, s.Phase == reconcile.Waiting && left == 0:
		return "now"
	case s.Phase == reconcile.Waiting && s.NotBefore.Equal(s.Due):
		return "not before " + left.String()
	case s.Phase == reconcile.Waiting:
		return "within " + left.String()
	}
	return "-"
}

func (v *view) paint(colour, s string) string {
	if !v.colour || s == "" {
		return s
	}
	return colour + s + plain
}

// bar gives "[#####-----]".
func bar(part, whole int) string {
	const length = 20
	filled := length * part / max(1, cmp.Or(whole, part))
	return "[" + strings.Repeat("#", filled) + strings.Repeat("-", length-filled) + "]"
}

// timeLeft gives ", about 9s left", if that can be said. What was begun counts as
// half done. There is no such time once all was in sync.
func (v *view) timeLeft(now board.Totals, took time.Duration) string {
	begun := float64(now.Wanted-now.Pending+now.InSync+now.Refused) / 2
	v.inSync = v.inSync || now.InSync+now.Refused >= now.Wanted
	if v.inSync || begun <= 0 {
		return ""
	}
	left := time.Duration(float64(took) * (float64(now.Wanted) - begun) / begun)
	return fmt.Sprintf(", about %v left", max(left, time.Second).Round(time.Second))
}

// cut shortens a line to the width of the screen.
func cut(s string, width int) string {
	if runes := []rune(s); len(runes) > width {
		return string(runes[:max(0, width-1)]) + "~"
	}
	return s
}
