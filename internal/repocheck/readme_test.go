// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A diskCloud makes disks, which takes it a while.
type diskCloud struct {
	readyAt time.Time
	asked   []time.Duration // when, since the first time
	first   time.Time
}

// attach is the reconcile function that the README tests.
func (c *diskCloud) attach(_ context.Context, disk string) error {
	if c.first.IsZero() {
		c.first = time.Now()
	}
	c.asked = append(c.asked, time.Since(c.first))
	if time.Now().Before(c.readyAt) {
		return fmt.Errorf("%s is being made: %w", disk, reconcile.RequeueWithin(10*time.Second))
	}
	return nil
}

func TestAttachWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &diskCloud{readyAt: time.Now().Add(25 * time.Second)}
		q := reconcile.NewQueue[string]()
		q.Enqueue("disk-1")

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // which takes no time
		defer cancel()
		r := reconcile.Reconciler[string]{Queue: q, Reconcile: cloud.attach}
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}

		want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 30 * time.Second}
		if !slices.Equal(cloud.asked, want) {
			t.Errorf("asked at %v, want %v", cloud.asked, want)
		}
	})
}
