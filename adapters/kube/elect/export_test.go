// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"time"

	"github.com/reconkernel/reconcile/internal/held"
)

// InTerm returns a context as a runner has it in a term whose lease was renewed at a
// time, in a process whose timers are late.
func InTerm(ctx context.Context, c Config, renewed time.Time) context.Context {
	t := newTerm(c)
	t.renewed = renewed
	return held.With(ctx, t)
}
