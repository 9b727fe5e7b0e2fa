// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

// After a 429 nothing is asked about the asset before Retry-After is over, even
// if there is an event about it.
func TestRetryAfterIsKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.arrange("example", func(ctx context.Context, c *cloud.Client) error {
			return build(ctx, c, key("k"), cloud.Spec{Region: "us-east"})
		})
		w.open(quick)
		w.note("GET /v1/keys/k")
		w.Fail("GET /v1/keys/k", 1, &cloud.Error{Status: 429, RetryAfter: 7 * time.Second, Message: "slowly"})
		file := wishPath(t)
		wish(t, file, oneKey)
		p := w.play("-assets", file)
		w.Advance(time.Second)
		w.other("example", func(ctx context.Context, c *cloud.Client) error {
			a, err := c.Get(ctx, key("k"))
			return errors.Join(err, c.Update(ctx, key("k"), a.Spec, a.Version))
		})
		p.wantEnd(t, 0, "throttled", "1 of 1 asset in sync after 7.0s")
		w.Want("0s call GET /v1/keys/k: 429: slowly", "7s call GET /v1/keys/k")
		w.close()
	})
}

// A bucket waits for its key and goes on at once when that is ready; a key that
// is not wanted waits for its bucket.
func TestOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(quick)
		client, done := w.client("example")
		defer done()
		var mu sync.Mutex // guards told
		var told []string
		w.Go(reconcile.RunFunc(func(ctx context.Context) error {
			for event, err := range client.Events(ctx) {
				if err == nil {
					mu.Lock()
					told = append(told, event.What+" "+event.Asset.String())
					mu.Unlock()
				}
			}
			return nil
		}))
		// The order is what counts. The times depend on whether the program has its
		// stream of events before the key is ready.
		mustTell := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("the cloud told of %q, want %q", told, want)
			}
			told = nil
		}
		mustTell("hello /")
		file := wishPath(t)
		wish(t, file, keyAndBucket)
		w.play("-assets", file).wantEnd(t, 0)
		mustTell("ready key/k", "ready bucket/a")
		wish(t, file, `{}`)
		w.answer(func(r *http.Request, pass http.RoundTripper) (*http.Response, error) {
			if r.Method == "DELETE" && r.URL.Path == "/v1/buckets/a" {
				time.Sleep(100 * time.Millisecond) // the key has to wait for it
			}
			return pass.RoundTrip(r)
		})
		w.play("-assets", file).wantEnd(t, 0, "0 of 0 assets in sync after 0.1s", "removed 2")
		mustTell("deleted bucket/a", "deleted key/k")
		w.close()
	})
}

// What a run depends on is known before it looks: here the key gets ready while
// the answer that it is not is still under way, and the bucket does not wait for
// its patience to end.
func TestNoEventIsMissedOnTheWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(fakecloud.Config{Seed: 1, Build: 2 * time.Second})
		w.note("POST /v1/buckets")
		var asked atomic.Bool
		w.answer(func(r *http.Request, pass http.RoundTripper) (*http.Response, error) {
			resp, err := pass.RoundTrip(r)
			if r.Method == "POST" && r.URL.Path == "/v1/buckets" && !asked.Swap(true) {
				time.Sleep(5 * time.Second)
			}
			return resp, err
		})
		file := wishPath(t)
		wish(t, file, keyAndBucket)
		w.play("-assets", file).wantEnd(t, 0, "2 of 2 assets in sync")
		w.Want("0s call POST /v1/buckets", "5s call POST /v1/buckets")
		w.close()
	})
}
