// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log/slog"

	"github.com/reconkernel/reconcile/example/internal/quiet"
)

// newLogger returns the logger of all parts. Unless it is asked for more, it
// leaves out the outcome of each run, which the lines of the program tell.
func newLogger(o options, out io.Writer) *slog.Logger {
	var h slog.Handler = slog.NewTextHandler(out, &slog.HandlerOptions{Level: o.level})
	if !o.verbose {
		h = quiet.Outcomes(h)
	}
	return slog.New(h)
}
