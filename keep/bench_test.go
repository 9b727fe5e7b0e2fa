// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
)

// BenchmarkListing lists 100,000 things that are in sync, again and again. The functions
// return maps that exist already.
func BenchmarkListing(b *testing.B) {
	type thing struct {
		Size, Image string
		Disks       int
	}
	const n = 100_000
	desired, actual := map[string]thing{}, map[string]thing{}
	for i := range n {
		name := fmt.Sprintf("thing-%06d", i)
		desired[name], actual[name] = thing{"large", name, i}, thing{"large", name, i}
	}
	ended := make(chan struct{})
	lists := 0
	ctx, cancel := context.WithCancel(b.Context())
	s := &keep.Set[string, thing, thing]{
		Queue:   reconcile.NewQueue[string](),
		Period:  time.Millisecond,
		Actual:  func(context.Context) (map[string]thing, error) { return actual, nil },
		InSync:  func(desired, actual thing) bool { return desired == actual },
		Ensure:  func(context.Context, string, thing) error { return nil },
		Delete:  func(context.Context, string, thing) error { return nil },
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		Desired: nil,
	}
	s.Desired = func(context.Context) (map[string]thing, error) {
		if lists++; lists == b.N+2 {
			b.StopTimer()
			cancel()
		} else if lists == 2 {
			b.ReportAllocs()
			b.ResetTimer()
		}
		return desired, nil
	}
	go func() { defer close(ended); _ = s.Run(ctx) }()
	<-ended
}
