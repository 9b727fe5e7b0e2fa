// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package supervise_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

// minutes is a policy that tells from a delay how many failures it was told.
func minutes(_ error, failures int) (time.Duration, bool) {
	return time.Duration(failures) * time.Minute, true
}

// A badHandler is a slog.Handler that ends badly.
type badHandler struct {
	slog.Handler
	end func()
}

func (h badHandler) Handle(context.Context, slog.Record) error { h.end(); return nil }

func (h badHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
