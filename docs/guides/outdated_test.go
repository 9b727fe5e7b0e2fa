// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// The program about UntilChanged, in events-and-observations.md.

// sleep stands for work that takes long and obeys its context.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func TestOutdatedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		var image atomic.Pointer[string]
		want := func(s string) { image.Store(&s) }
		wanted := func(string) string { return *image.Load() }
		want("debian-12")
		copyTo := func(ctx context.Context, disk, image string) error {
			happened.note("copy of %s begins", image)
			return sleep(ctx, time.Hour)
		}
		r := &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, disk string) error {
				ctx, stop := reconcile.UntilChanged(ctx)
				defer stop()
				image := wanted(disk) // looked up after UntilChanged
				return copyTo(ctx, disk, image)
			},
			OnResult: func(r reconcile.Result[string]) { happened.note("%s: %v", r.Outcome, r.Err) },
			Logger:   quiet,
		}
		time.AfterFunc(10*time.Minute, func() {
			want("debian-13")
			q.Enqueue("disk")
		})
		q.Enqueue("disk")
		run(t, r, 2*time.Hour)
		happened.check(t, `
0s      copy of debian-12 begins
10m0s   requeued: reconcile: item was enqueued again
10m0s   copy of debian-13 begins
1h10m0s succeeded: <nil>
`)
	})
}
