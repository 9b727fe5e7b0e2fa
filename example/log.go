// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
)

// newLogger returns the logger of the loop. Unless it is asked for more, it
// leaves out the outcome of each run, which the view shows.
func newLogger(o options, out io.Writer) *slog.Logger {
	var h slog.Handler = slog.NewTextHandler(out, &slog.HandlerOptions{Level: o.level, ReplaceAttr: shortTime})
	if !o.verbose {
		h = withoutOutcomes{h}
	}
	return slog.New(h)
}

// withoutOutcomes drops the lines about the outcome of a run, but not those with
// the stack of a panic.
type withoutOutcomes struct{ slog.Handler }

func (h withoutOutcomes) Handle(ctx context.Context, r slog.Record) error {
	outcome, stack := false, false
	r.Attrs(func(a slog.Attr) bool {
		outcome = outcome || a.Key == "outcome"
		stack = stack || a.Key == "stack"
		return true
	})
	if outcome && !stack {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h withoutOutcomes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutOutcomes{h.Handler.WithAttrs(attrs)}
}

func (h withoutOutcomes) WithGroup(name string) slog.Handler {
	return withoutOutcomes{h.Handler.WithGroup(name)}
}

// shortTime leaves the date out.
func shortTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().Format("15:04:05.000"))
	}
	return a
}
