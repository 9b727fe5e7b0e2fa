// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package supervise_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

func runBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func within(d, low, high time.Duration) bool { return low < d && d <= high }

var (
	errBoom = record.ErrBoom
	errEnd  = record.ErrEnd
)

// panicsHere is found in the stack of what it calls.
func panicsHere(end func()) error {
	end()
	return nil
}

func failuresAs(name string) func() error {
	return func() error { return panicsHere(record.Failures[name]) }
}

func isPanic(err error) bool {
	var p *reconcile.PanicError
	return errors.As(err, &p) && strings.Contains(string(p.Stack), "panicsHere")
}

type badTree struct{ end func() }

func (badTree) Error() string { return "bad" }

func (e badTree) Unwrap() error { e.end(); return nil }

// minutes is a policy that tells from a delay how many failures it was told.
func minutes(_ error, failures int) (time.Duration, bool) {
	return time.Duration(failures) * time.Minute, true
}

type badMessage struct{ end func() }

func (e badMessage) Error() string { e.end(); return "" }

// A badHandler is a slog.Handler that ends badly.
type badHandler struct {
	slog.Handler
	end func()
}

func (h badHandler) Handle(context.Context, slog.Record) error { h.end(); return nil }

func (h badHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
