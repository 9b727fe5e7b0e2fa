// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
)

// The programs of back-off.md.

func TestBackOffByError(t *testing.T) {
	errQuota := errors.New("quota exceeded")
	usual := reconcile.Backoff(time.Second, time.Minute)
	retry := func(err error, failures int) (time.Duration, bool) {
		if errors.Is(err, errQuota) {
			return time.Hour, true // a quota is not raised within a second
		}
		return usual(err, failures)
	}

	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		vms := &reconcile.Reconciler[string]{
			Queue: reconcile.NewQueue[string](), Logger: quiet, Retry: retry, HoldRetries: true, // the event after a minute waits too
			Reconcile: func(context.Context, string) error {
				happened.note("quota exceeded")
				return fmt.Errorf("make vm: %w", errQuota)
			},
		}
		for _, d := range []time.Duration{0, time.Minute} {
			time.AfterFunc(d, func() { vms.Queue.(*reconcile.Queue[string]).Enqueue("vm") })
		}
		run(t, vms, 90*time.Minute)
		happened.check(t, "\n0s      quota exceeded\n1h0m0s  quota exceeded\n")
	})
}

// A tooMany is the answer 429 of a service, with its Retry-After.
type tooMany struct{ after time.Duration }

func (e *tooMany) Error() string { return "429 Too Many Requests" }

func TestBackOffTooManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		busyUntil := time.Now().Add(30 * time.Second)
		ask := func(_ context.Context, vm string) error {
			if d := time.Until(busyUntil); d > 0 {
				happened.note("%s: 429", vm)
				return &tooMany{after: d}
			}
			happened.note("%s is made", vm)
			return nil
		}

		cloud := &gate.Gate{
			Every:    time.Second,
			MaxPause: time.Minute,
			Pause: func(err error) time.Duration {
				if busy := (*tooMany)(nil); errors.As(err, &busy) {
					return busy.after
				}
				return 0
			},
		}
		makeVM := func(ctx context.Context, vm string) error {
			err := ask(ctx, vm)
			if busy := (*tooMany)(nil); errors.As(err, &busy) {
				return fmt.Errorf("%w: %w", err, reconcile.RequeueAfter(min(busy.after, time.Minute))) // no failure
			}
			return err
		}

		q := reconcile.NewQueue[string]()
		for _, vm := range []string{"a", "b", "c"} {
			q.Enqueue(vm)
		}
		run(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: makeVM,
			Admit:     cloud.Admit,
			Logger:    quiet,
		}, time.Hour)
		happened.check(t, `
0s      a: 429
30s     b is made
31s     c is made
32s     a is made
`)
	})
}

// A limited client waits before each call, also before those of a listing.
type limited struct {
	http.RoundTripper
	wait func(context.Context) error // for example Wait of a rate.Limiter of golang.org/x/time/rate
}

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := l.wait(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	return l.RoundTripper.RoundTrip(r)
}

// TestBackOffLimitsCalls runs two items of two calls each, with one call a second.
func TestBackOffLimitsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		tick := time.NewTicker(time.Second)
		client := &http.Client{Transport: limited{
			handled{http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { happened.note("%s", r.URL.Path) })},
			func(context.Context) error { <-tick.C; return nil },
		}}
		r := &reconcile.Reconciler[string]{Logger: quiet, Reconcile: func(_ context.Context, vm string) error {
			_, err := client.Get("http://cloud/" + vm)
			if err == nil {
				_, err = client.Get("http://cloud/disks/" + vm)
			}
			return err
		}}
		if err := r.Apply(t.Context(), "a", "b"); err != nil {
			t.Error(err)
		}
		happened.check(t, `
1s      /a
2s      /disks/a
3s      /b
4s      /disks/b
`)
	})
}
