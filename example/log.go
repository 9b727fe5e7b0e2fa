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
	replace := shortTime
	if _, ok := out.(*view); ok { // which has times of its own
		replace = func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		}
	}
	var h slog.Handler = slog.NewTextHandler(out, &slog.HandlerOptions{Level: o.level, ReplaceAttr: replace})
	if !o.verbose {
		h = quiet.Outcomes(h)
	}
	return slog.New(h)
}

// shortTime leaves the date out.
func shortTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().Format("15:04:05.000"))
	}
	return a
}
