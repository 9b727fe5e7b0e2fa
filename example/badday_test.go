// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/tracker"
)

// The program lives through an hour in which the cloud answers 503 alone, and another
// hand removes assets: few calls, nothing given up, and all is in order soon after.
// On the hour before, a cloud that limits the rate refuses nothing.
func TestOutage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		config := slow
		config.Rate = 100
		w.open(config)
		var down atomic.Bool
		var calls, refused atomic.Int64
		w.answer(func(r *http.Request, pass http.RoundTripper) (*http.Response, error) {
			calls.Add(1)
			if down.Load() {
				return &http.Response{StatusCode: 503, Body: http.NoBody, Request: r}, nil
			}
			resp, err := pass.RoundTrip(r)
			if err == nil && resp.StatusCode == 429 {
				refused.Add(1)
			}
			return resp, err
		})
		p := w.play("-n", "300", "-watch", "-budget", "40", "-poll", "10m", "-recheck", "10m")
		time.Sleep(time.Hour)
		w.wantExactly(generate(300))
		if n := refused.Load(); n > 0 {
			t.Errorf("%d calls are refused on a normal day, want none", n)
		}

		calls.Store(0)
		down.Store(true)
		time.Sleep(time.Minute)
		w.other("example", func(ctx context.Context, c *cloud.Client) (err error) {
			for _, id := range generate(300).order[6:56] { // buckets: keys are in use
				err = errors.Join(err, c.Delete(ctx, id))
			}
			return err
		})
		time.Sleep(59 * time.Minute)
		if n := calls.Load(); n > 600 {
			t.Errorf("%d calls in an outage of an hour, want 600 at most", n)
		}
		down.Store(false)
		time.Sleep(3 * time.Minute)
		w.wantExactly(generate(300))
		p.cancel()
		p.wantEnd(t, 0)
		w.close()
	})
}

// What the board does not want is removed only if the file says so too: the board may
// have read it in a bad moment.
func TestWishIsLookedUpBeforeItIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakecloud.New(quick)
		client := &cloud.Client{URL: "http://cloud", Tenant: "example", HTTP: &http.Client{Transport: explore.Transport(nil, server.Handler())}}
		file := filepath.Join(t.TempDir(), "assets.json")
		queue := reconcile.NewQueue[cloud.ID]()
		c := &controller{cloud: client, board: newBoard(queue)}
		c.wish = lookUp(c.board, tracker.FromFile(file, func(text []byte) (assets, error) { return parse(file, text) }))
		key := cloud.ID{Kind: cloud.Key, Name: "k"}
		if _, err := client.Create(t.Context(), key, cloud.Spec{Region: "eu-west"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // until it is made
		for _, step := range []struct {
			text string
			left int
		}{
			{`{"keys": [{"name": "k", "region": "eu-west"}], "buckets": []}`, 1},
			{`{"keys": [{"name"`, 1}, // what is not known is not taken for not wanted
			{`{"keys": [], "buckets": []}`, 0},
		} {
			if err := os.WriteFile(file, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
			err := c.Reconcile(t.Context(), key)
			if there := server.Assets("example"); len(there) != step.left || err == nil {
				t.Errorf("the file says %s, and after a run that returns %v there are %v", step.text, err, there)
			}
		}
	})
}
