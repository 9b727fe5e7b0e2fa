// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"log/slog"
)

type loggerKey struct{}

// Logger returns the logger of ctx. In a run it is the logger of the Reconciler, with the
// item and its failures in a row before this run. In a context of [WithLogger] it is the
// logger given there. Of several, the innermost counts. Elsewhere it is [slog.Default].
func Logger(ctx context.Context) *slog.Logger {
	if l, _ := ctx.Value(loggerKey{}).(*slog.Logger); l != nil {
		return l
	}
	return slog.Default()
}

// WithLogger returns a context whose [Logger] is l; slog.Default() if l is nil.
func WithLogger(ctx context.Context, l *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, l)
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
