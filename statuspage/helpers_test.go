// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import "log/slog"

var discard = slog.New(slog.DiscardHandler)
