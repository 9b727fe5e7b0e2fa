// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// The programs about UntilChanged, in events-and-observations.md, and about
// EnqueueAndWait, in testing.md.

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

// apply makes machines once.
func apply(ctx context.Context, l *lab, vms ...string) error {
	q := reconcile.NewQueue[string]()
	r := &reconcile.Reconciler[string]{Queue: q, Reconcile: l.start, Logger: quiet, Retry: reconcile.DefaultRetry.Limit(3)}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	err := q.EnqueueAndWait(ctx, vms...)
	q.Close()
	return errors.Join(err, <-ended)
}

// It ends well when all is there, and not before; and says what cannot be.
func TestOneShot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := &lab{ready: map[string]time.Time{"slow": start.Add(25 * time.Second)}}
		if err := apply(t.Context(), l, "slow"); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < 25*time.Second {
			t.Errorf("it ended after %v, but the machine is there after 25s", took)
		}
		if err := apply(t.Context(), l, "slow", "none"); !errors.Is(err, errNotThere) {
			t.Errorf("apply(none) = %v, want %v", err, errNotThere)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := apply(ctx, &lab{ready: map[string]time.Time{"slow": time.Now().Add(25 * time.Second)}}, "slow"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("apply within 1s = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}
