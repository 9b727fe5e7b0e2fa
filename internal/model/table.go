// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed table.md
var tables string

// Cell is one cell of the state table.
type Cell struct {
	Operation, Entry string // its row and its column
	Closed           bool   // of the table of the closed queue
	Setup            []Op[string]
	Op               Op[string]
	Want             string // as Describe says it
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
	switch kind, delay, _ := strings.Cut(rest, " "); kind {
	case "", "none":
	case "ready":
		ops = append(ops, Op[string]{Verb: Enqueue, Item: "x"})
	case "offered":
		ops = append(ops, Op[string]{Verb: Offer, Item: "x"})
	case "now":
		ops = append(ops, Op[string]{Verb: EnqueueNow, Item: "x"})
	case "within":
		ops = append(ops, Op[string]{Verb: EnqueueWithin, Item: "x", Wait: Wait{Delay: parseDelay(delay)}})
	case "held":
		ops = append(ops, Op[string]{Verb: EnqueueAfter, Item: "x", Wait: Wait{Delay: parseDelay(delay)}})
	default:
		panic(fmt.Sprintf("model: unknown column %q", entry))
	}
	return ops
}

func parseOp(s string) Op[string] {
	words := strings.Fields(s)
	o := Op[string]{Item: "x"}
	for o.Verb = range Advance {
		if o.Verb.String() == words[0] {
			break
		}
	}
	if o.Verb.String() != words[0] {
		panic(fmt.Sprintf("model: unknown row %q", s))
	}
	if len(words) > 1 {
		o.Wait.Delay = parseDelay(words[1])
	}
	o.Wait.Hold = len(words) > 2 && words[2] == "Hold"
	return o
}

func parseDelay(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic("model: " + err.Error())
	}
	return d
}
