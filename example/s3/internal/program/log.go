// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"io"
	"log/slog"
)

// Logger returns a logger. Unless it is asked for all, it leaves out what a
// program shows in another way: the records about the outcome of a run, except
// those with the stack of a panic.
func Logger(out io.Writer, all bool, options *slog.HandlerOptions) *slog.Logger {
	var h slog.Handler = slog.NewTextHandler(out, options)
	if !all {
		h = quiet{h}
	}
	return slog.New(h)
}

type quiet struct{ slog.Handler }

func (h quiet) Handle(ctx context.Context, r slog.Record) error {
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

func (h quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{h.Handler.WithAttrs(attrs)}
}

func (h quiet) WithGroup(name string) slog.Handler {
	return quiet{h.Handler.WithGroup(name)}
}
