// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
)

// newLogger returns the logger of all parts. Unless it is asked for more, it
// leaves out the outcome of each run, which the lines of the program tell.
func newLogger(o options, out io.Writer) *slog.Logger {
	var h slog.Handler = slog.NewTextHandler(out, &slog.HandlerOptions{Level: o.level})
	if !o.verbose {
		h = withoutOutcomes{h}
	}
	return slog.New(h)
}

// withoutOutcomes drops the records about the outcome of a run, but not those
// with the stack of a panic.
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
