// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log/slog"

	"github.com/reconkernel/reconcile/example/internal/quiet"
)

// newLogger returns the logger of the loop. Unless it is asked for more, it
// leaves out the outcome of each run, which the view shows.
func newLogger(o options, out io.Writer) *slog.Logger {
	var h slog.Handler = slog.NewTextHandler(out, &slog.HandlerOptions{Level: o.level, ReplaceAttr: shortTime(out)})
	if !o.verbose {
		h = quiet.Outcomes(h)
	}
	return slog.New(h)
}

// shortTime leaves the date out, and all of it in the table, which has its own.
func shortTime(out io.Writer) func([]string, slog.Attr) slog.Attr {
	_, table := out.(*view)
	return func(_ []string, a slog.Attr) slog.Attr {
		if a.Key != slog.TimeKey || a.Value.Kind() != slog.KindTime {
			return a
		}
		if table {
			return slog.Attr{}
		}
		return slog.String(a.Key, a.Value.Time().Format("15:04:05.000"))
	}
}
