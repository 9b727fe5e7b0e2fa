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
// Without events, what was deleted or altered is found by the poll, and without that
// by the recheck; what happened while there was no stream of events, as soon as there
// is one again.
func TestDriftIsMended(t *testing.T) {
	const never = 1000 * time.Hour
	for _, test := range []struct {
		name   string
		args   []string
		events time.Duration // from then on there are events
		notYet time.Duration // after the change
		mended time.Duration // after that
	}{
		{"by an event", nil, 0, 0, 0},
		{"by a poll", []string{"-poll", "10m", "-recheck", "24h"}, never, 7 * time.Minute, 7 * time.Minute},
		{"by a recheck", []string{"-poll", "24h", "-recheck", "10m"}, never, 7 * time.Minute, 7 * time.Minute},
		{"after a reconnect", []string{"-poll", "1h", "-recheck", "1h"}, 20 * time.Second, 9 * time.Second, 10 * time.Second}, // the back-off is 5s at most
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.open(quick)
				began := time.Now()
				w.answer(func(r *http.Request, pass http.RoundTripper) (*http.Response, error) {
					if r.URL.Path == "/v1/events" && time.Since(began) < test.events {
						return nil, errors.New("no events yet")
					}
					return pass.RoundTrip(r)
				})
				file := wishPath(t)
				wish(t, file, keyAndTwo)
				p := w.play(append(test.args, "-watch", "-assets", file)...)
				w.Advance(10 * time.Second)
				w.other("example", meddle)
				if test.notYet > 0 {
					w.Advance(test.notYet)
					if out := p.out.String(); strings.Contains(out, "drift mended 1") || strings.Contains(out, "drift mended 2") {
						t.Errorf("after %v something was mended already:\n%s", test.notYet, out)
					}
				}
				w.Advance(test.mended)
				p.cancel()
				p.wantEnd(t, 0, "3 of 3 assets in sync", "drift mended 2")
				w.close()
				w.wantExactly(mustParse(t, keyAndTwo))
			})
		})
	}
}
