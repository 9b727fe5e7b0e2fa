// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package quiet keeps out of a log what a program shows in another way.
package quiet

import (
	"context"
	"log/slog"
)

// Outcomes passes on all but the records about the outcome of a run. Those with
// the stack of a panic are passed on too.
func Outcomes(h slog.Handler) slog.Handler { return outcomes{h} }

type outcomes struct{ slog.Handler }

func (h outcomes) Handle(ctx context.Context, r slog.Record) error {
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

func (h outcomes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return outcomes{h.Handler.WithAttrs(attrs)}
}

func (h outcomes) WithGroup(name string) slog.Handler {
	return outcomes{h.Handler.WithGroup(name)}
}
