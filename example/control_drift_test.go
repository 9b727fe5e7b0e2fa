// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// meddle alters a bucket and deletes another.
func meddle(ctx context.Context, c *cloud.Client) error {
	a, err := c.Get(ctx, bucket("b"))
	a.Labels = map[string]string{"by": "another"}
	return errors.Join(err, c.Update(ctx, bucket("b"), a.Spec, a.Version), c.Delete(ctx, bucket("a")))
}

// Changes by another hand are mended at once, because the events tell of them.
func TestDriftIsMendedAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(quick)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file)
		w.Advance(3 * time.Second)
		began := time.Now()
		w.other("example", meddle)
		w.Advance(0)
		if took := time.Since(began); took != 0 {
			t.Errorf("the other hand took %v, want no time", took)
		}
		p.cancel()
		p.wantEnd(t, 0, "3 of 3 assets in sync", "drift mended 2")
		w.close()
		w.wantExactly(mustParse(t, keyAndTwo))
	})
}

// Without the events, what was deleted or altered is found by the poll, and
// without that by the recheck.
func TestDriftIsMendedWithoutEvents(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		after time.Duration // not yet then, but twice as late
	}{
		{"poll", []string{"-poll", "10m", "-recheck", "24h"}, 7 * time.Minute},
		{"recheck", []string{"-poll", "24h", "-recheck", "10m"}, 7 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.open(quick)
				w.answer(func(r *http.Request, pass http.RoundTripper) (*http.Response, error) {
					if r.URL.Path == "/v1/events" {
						return nil, errors.New("no events in this test")
					}
					return pass.RoundTrip(r)
				})
				file := wishPath(t)
				wish(t, file, keyAndTwo)
				p := w.play(append(test.args, "-watch", "-assets", file)...)
				w.Advance(time.Minute)
				w.other("example", meddle)
				w.Advance(test.after)
				if out := p.out.String(); strings.Contains(out, "drift mended 1") || strings.Contains(out, "drift mended 2") {
					t.Errorf("after %v something was mended already:\n%s", test.after, out)
				}
				w.Advance(test.after)
				p.cancel()
				p.wantEnd(t, 0, "3 of 3 assets in sync", "drift mended 2")
				w.close()
				w.wantExactly(mustParse(t, keyAndTwo))
			})
		})
	}
}

// What happened while there was no stream of events is found as soon as there is
// one again, long before the next poll.
func TestDriftIsFoundAfterReconnect(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(quick)
		began := time.Now()
		w.answer(func(r *http.Request, pass http.RoundTripper) (*http.Response, error) {
			if r.URL.Path == "/v1/events" && time.Since(began) < 20*time.Second {
				return nil, errors.New("no events yet")
			}
			return pass.RoundTrip(r)
		})
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file, "-poll", "1h", "-recheck", "1h")
		w.Advance(10 * time.Second)
		w.other("example", func(ctx context.Context, c *cloud.Client) error { return c.Delete(ctx, bucket("a")) })
		w.Advance(20 * time.Second) // the back-off is 5s at most
		p.cancel()
		p.wantEnd(t, 0, "3 of 3 assets in sync after 30.0s", "drift mended 1")
		w.close()
		w.wantExactly(mustParse(t, keyAndTwo))
	})
}
