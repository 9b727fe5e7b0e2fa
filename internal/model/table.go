// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
)

//go:embed table.md
var tables string

// errRun is the Err of the rows.
var errRun = errors.New("model: the run failed")

// Cell is one cell of the state table.
type Cell struct {
	Operation, Entry string // its row and its column
	Closed           bool   // of the table of the closed queue
	Setup            []Op[string]
	Op               Op[string]
	Want             string // how the item stands then, as in a column
}

// Name is the cell's place, such as "Enqueue/within 2h".
func (c Cell) Name() string {
	if c.Closed {
		return "closed/" + c.Operation + "/" + c.Entry
	}
	return c.Operation + "/" + c.Entry
}

// Cells reads the state table. Each cell is about the item "x" of a queue that
// holds nothing else, and has a Background. A table that it cannot read is a
// panic.
func Cells() []Cell {
	var cells []Cell
	var columns []string
	closed := false
	for line := range strings.Lines(tables) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "## "):
			columns, closed = nil, line == "## Closed"
		case !strings.HasPrefix(line, "|"), strings.HasPrefix(line, "|---"):
		case columns == nil:
			columns = fields(line)
		default:
			row := fields(line)
			for i, entry := range columns[1:] {
				c := Cell{Operation: row[0], Entry: entry, Closed: closed, Setup: setup(entry), Op: parseOp(row[0])}
				if closed {
					c.Setup = append(c.Setup, Op[string]{Verb: Close})
				}
				switch c.Want = row[i+1]; {
				case c.Want == "–":
					c.Want = entry
				case strings.HasSuffix(c.Want, " next"):
					c.Want = "in flight, " + c.Want
				}
				cells = append(cells, c)
			}
		}
	}
	return cells
}

func fields(line string) []string {
	f := strings.Split(strings.Trim(line, "| "), "|")
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	return f
}

// setup is how an item comes to stand as entry says.
func setup(entry string) (ops []Op[string]) {
	rest, inFlight := strings.CutPrefix(entry, "in flight")
	if inFlight {
		ops = append(ops, Op[string]{Verb: Enqueue, Item: "x"}, Op[string]{Verb: Dequeue})
		rest = strings.TrimSuffix(strings.TrimPrefix(rest, ", "), " next")
	}
	enqueue, dequeue := Op[string]{Verb: Enqueue, Item: "x"}, Op[string]{Verb: Dequeue}
	requeue := func(o RequeueOptions) []Op[string] {
		return []Op[string]{enqueue, dequeue, {Verb: Requeue, Item: "x", Options: o}}
	}
	switch kind, times, _ := strings.Cut(rest, " "); kind {
	case "", "none":
	case "ready":
		ops = append(ops, enqueue)
	case "background":
		ops = append(ops, Op[string]{Verb: Offer, Item: "x"})
	case "now":
		ops = append(ops, Op[string]{Verb: EnqueueNow, Item: "x"})
	case "recheck":
		ops = append(ops, requeue(RequeueOptions{Delay: parseDelay(times), Recheck: true})...)
	case "retry":
		notBefore, due, _ := strings.Cut(times, "–")
		ops = append(ops, requeue(RequeueOptions{Delay: parseDelay(due), MinDelay: parseDelay(notBefore)})...)
	case "within":
		ops = append(ops, Op[string]{Verb: EnqueueWithin, Item: "x", Options: RequeueOptions{Delay: parseDelay(times)}})
	case "held":
		ops = append(ops, Op[string]{Verb: EnqueueAfter, Item: "x", Options: RequeueOptions{Delay: parseDelay(times)}})
	default:
		panic(fmt.Sprintf("model: unknown column %q", entry))
	}
	return ops
}

// Words says in the words of the table how an item waits that is due in due, and
// that an event does not start before notBefore, which is 0 if it does so at once.
func Words(due, notBefore time.Duration, recheck bool) string {
	text := func(d time.Duration) string {
		if d%time.Hour == 0 {
			return fmt.Sprintf("%dh", d/time.Hour)
		}
		return d.String()
	}
	switch {
	case recheck:
		return "recheck " + text(due)
	case notBefore <= 0:
		return "within " + text(due)
	case notBefore == due:
		return "held " + text(due)
	}
	return fmt.Sprintf("retry %s–%s", text(notBefore), text(due))
}

func parseOp(s string) Op[string] {
	words := strings.Fields(s)
	o := Op[string]{Item: "x"}
	for o.Verb = range Close + 1 {
		if o.Verb.String() == words[0] {
			break
		}
	}
	if o.Verb.String() != words[0] {
		panic(fmt.Sprintf("model: unknown row %q", s))
	}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		switch words[0] {
		case "MinDelay":
			words = words[1:]
			o.Options.MinDelay = parseDelay(words[0])
		case "Recheck":
			o.Options.Recheck = true
		case "Err":
			o.Options.Err = errRun
		case "Aborted":
			o.Options.Aborted = true
		case "Reason":
			o.Options.Reason = errRun
		case "Done":
			o.Options.Done = true
		default:
			o.Options.Delay = parseDelay(words[0])
		}
	}
	return o
}

func parseDelay(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic("model: " + err.Error())
	}
	return d
}
