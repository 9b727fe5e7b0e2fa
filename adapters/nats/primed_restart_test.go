// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
)

// TestPrimedWaitsForJetStream has no server with JetStream answer for a while, as while
// one restarts: Wait ends with that after ten seconds in a row, and not before.
func TestPrimedWaitsForJetStream(t *testing.T) {
	type step struct {
		at  time.Duration
		err error
	}
	none := jetstream.ErrJetStreamNotEnabled
	for what, test := range map[string]struct {
		steps []step
		ends  time.Duration // 0 if it waits on
	}{
		"for nine seconds":           {[]step{{0, none}, {9 * time.Second, none}}, 0},
		"for ten seconds":            {[]step{{0, none}, {5 * time.Second, none}, {10 * time.Second, none}}, 10 * time.Second},
		"twice":                      {[]step{{0, none}, {5 * time.Second, errors.New("other")}, {12 * time.Second, none}}, 0},
		"not for this account":       {[]step{{time.Second, jetstream.ErrJetStreamNotEnabledForAccount}}, time.Second},
		"without the permission":     {[]step{{time.Second, nats.ErrPermissionViolation}}, time.Second},
		"denied after a moment away": {[]step{{0, none}, {time.Second, nats.ErrPermissionViolation}}, time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var primed Primed
				begin := time.Now()
				f := Prime(&primed, func(ctx context.Context, _ reconcile.Enqueuer[string]) error {
					for _, s := range test.steps {
						time.Sleep(time.Until(begin.Add(s.at)))
						trouble(ctx, "bucket b", s.err)
					}
					<-ctx.Done()
					return nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				go f(ctx, nil)
				synctest.Wait()
				err := primed.Wait(ctx)
				waits := errors.Is(err, context.DeadlineExceeded)
				if took := time.Since(begin); err == nil || waits != (test.ends == 0) || !waits && took != test.ends {
					t.Errorf("Wait: %v after %v, want an end after %v", err, took, test.ends)
				}
				cancel()
			})
		})
	}
}
