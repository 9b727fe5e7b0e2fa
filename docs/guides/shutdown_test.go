// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// addStream is text of docs/production.md.
func addStream(group *reconcile.Group, stream func(context.Context) error) {
	group.Add("stream", reconcile.RunFunc(func(ctx context.Context) error {
		err := stream(ctx)
		if ctx.Err() != nil {
			return nil // whatever it returns at shutdown
		}
		return err
	}))
}

// A member that returns an error of its library at shutdown did not fail. Before the
// shutdown it did.
func TestMemberWithAnErrorOfItsOwnAtShutdown(t *testing.T) {
	errClosed := errors.New("http: Server closed")
	for lasts, want := range map[time.Duration]error{time.Second: errClosed, time.Hour: nil} {
		synctest.Test(t, func(t *testing.T) {
			stream := func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-time.After(lasts):
				}
				return errClosed
			}
			group := &reconcile.Group{Logger: quiet}
			addStream(group, stream)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := group.Run(ctx); !errors.Is(err, want) {
				t.Errorf("Run = %v after %v, want %v", err, lasts, want)
			}
		})
	}
}
