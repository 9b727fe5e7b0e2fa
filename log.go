// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"log/slog"
)

// A runContext is what the context of a run has for runKey.
type runContext interface{ logger() *slog.Logger }

type runKey struct{}

// Logger returns the logger of the run that ctx belongs to: the logger of its
// Reconciler, with the reconciler's name, the item, and its failures in a row
// before this run. In the context of a member of a [Group], outside of the runs of
// that member, it returns the logger of the Group with the member's name, also if the
// Group itself is part of a run. Elsewhere it returns [slog.Default].
func Logger(ctx context.Context) *slog.Logger {
	run := ctx.Value(runKey{})
	if m, ok := ctx.Value(memberKey{}).(memberLog); ok && m.run == run {
		return m.logger.With(nameAttr("member", m.path)...)
	}
	if r, ok := run.(runContext); ok {
		return r.logger()
	}
	return slog.Default()
}

type memberKey struct{}

// A memberLog is what the context of a member has for memberKey.
type memberLog struct {
	logger *slog.Logger
	path   string // the member's name, after those of the Groups around its own
	run    any    // the run that the Group is part of; nil if it is part of none
}

// nameAttr returns the attribute of a name for a log line, and none if the name
// is empty.
func nameAttr(key, name string) []any {
	if name == "" {
		return nil
	}
	return []any{key, name}
}

// logGuarded writes a line. A handler that panics, or calls Goexit, costs no
// more than the line.
func logGuarded(logger *slog.Logger, level slog.Level, msg string, args ...any) {
	_ = guard(func() error {
		logger.Log(context.Background(), level, msg, args...)
		return nil
	})
}

func (l memberLog) write(level slog.Level, msg string, args ...any) {
	logGuarded(l.logger, level, msg, append(args, nameAttr("member", l.path)...)...)
}

// A failureLog counts failures in a row, and logs few of them: the first, and each by
// which their number has doubled.
type failureLog struct{ count int }

// add counts a failure and may log it, with the count.
func (l *failureLog) add(logger *slog.Logger, level slog.Level, msg string, err error, args ...any) {
	if l.count++; l.count&(l.count-1) != 0 {
		return
	}
	_ = guard(func() error { // The handler and the methods of err are code of the user.
		args = append(args, "failures", l.count, "err", err)
		if p := (*PanicError)(nil); errors.As(err, &p) {
			args = append(args, "stack", p.line())
		}
		logger.Log(context.Background(), level, msg, args...)
		return nil
	})
}
