// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// The programs of apply-once.md.

var errNotThere = errors.New("not there")

// A lab is a world with virtual machines, each of which starts slowly.
type lab struct {
	ready map[string]time.Time
}

// start makes sure that a machine is there and is ready.
func (l *lab) start(_ context.Context, vm string) error {
	ready, ok := l.ready[vm]
	switch {
	case !ok:
		return errNotThere
	case time.Now().Before(ready):
		return fmt.Errorf("%s starts: %w", vm, reconcile.RequeueWithin(10*time.Second))
	}
	return nil
}

// apply starts machines, and returns once they are ready, or when it is known that
// they will not be.
func apply(ctx context.Context, l *lab, vms ...string) error {
	r := &reconcile.Reconciler[string]{
		Reconcile: l.start,
		Workers:   8,
		Retry:     reconcile.Backoff(time.Second, time.Minute).Limit(3),
		Logger:    quiet,
	}
	return r.Apply(ctx, vms...)
}

// It ends well when all is there, and not before; and says what cannot be, and why
// the rest is not there yet.
func TestApplyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := &lab{ready: map[string]time.Time{"slow": start.Add(25 * time.Second), "later": start.Add(time.Hour)}}
		if err := apply(t.Context(), l, "slow"); err != nil || time.Since(start) < 25*time.Second {
			t.Errorf("apply(slow) = %v after %v, want nil, and not before it is there after 25s", err, time.Since(start))
		}
		if err := apply(t.Context(), l, "slow", "none"); !errors.Is(err, errNotThere) {
			t.Errorf("apply(none) = %v, want %v", err, errNotThere)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 65*time.Second) // at no instant at which one is due
		defer cancel()
		err := apply(ctx, l, "slow", "later", "none")
		want := `
reconcile: 1 of 3 items are left: context deadline exceeded
item later is waiting: later starts: requeue within 10s
item none: not there
`
		if got := fmt.Sprint(err); got != strings.TrimSpace(want) {
			t.Errorf("apply(later) = %s, want %s", got, want)
		}
	})
}

// What the runs enqueue beside the items is waited for with a queue of one's own.
func TestApplyWithWhatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		queue := reconcile.NewQueue[string]()
		happened := newDiary()
		r := &reconcile.Reconciler[string]{Queue: queue, Reconcile: func(_ context.Context, item string) error {
			time.Sleep(time.Second)
			if item == "network" {
				queue.Enqueue("machine")
			}
			happened.note("%s", item)
			return nil
		}}
		run := func() error {
			done := make(chan error, 1)
			ctx, stop := context.WithCancel(ctx)
			go func() { done <- r.Run(ctx) }()
			err := queue.EnqueueAndWait(ctx, "network")
			err = errors.Join(err, queue.WaitIdle(ctx))
			stop()
			return errors.Join(err, <-done)
		}
		if err := run(); err != nil {
			t.Error(err)
		}
		happened.check(t, `
1s      network
2s      machine
`)
	})
}

// A readOnly lets nothing through that may change something, and says what that was.
type readOnly struct{ http.RoundTripper }

func (t readOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return t.RoundTripper.RoundTrip(r)
	}
	return nil, reconcile.Terminal(errors.New("dry run")) // no retry
}

// A handled is a server without a network.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// The function of the service, with another transport, says what it would do.
func TestApplyDryRun(t *testing.T) {
	changed := 0
	store := handled{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			changed++
		case r.URL.Path != "/buckets/logs":
			w.WriteHeader(http.StatusNotFound)
		}
	})}
	client := &http.Client{Transport: readOnly{store}}
	r := &reconcile.Reconciler[string]{
		Reconcile: func(ctx context.Context, bucket string) error {
			resp, err := client.Get("http://store/buckets/" + bucket)
			if err != nil || resp.StatusCode == http.StatusOK {
				return err
			}
			put, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://store/buckets/"+bucket, nil)
			if err != nil {
				return err
			}
			_, err = client.Do(put)
			return err
		},
		Logger: quiet,
	}
	err := r.Apply(t.Context(), "logs", "photos")
	want := `
item photos: Put "http://store/buckets/photos": dry run
`
	if got := fmt.Sprint(err); got != strings.TrimSpace(want) || changed > 0 {
		t.Errorf("Apply returned %s after %d changes, want none, and %s", got, changed, want)
	}
}
