// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

// The tests of this file ask the simulated cloud itself.

// Faults are 500; and as many creations fail in the background, and say why.
func TestCloudFaults(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(fakecloud.Config{Seed: 1, Faults: 0.4, Latency: 10 * time.Millisecond})
		c, done := w.client("me")
		defer done()
		const n = 2000
		counts := map[int]int{}
		for i := range n {
			_, err := c.Create(t.Context(), bucket(fmt.Sprint("b", i)), cloud.Spec{Region: "us-east"})
			answer := &cloud.Error{Status: 200}
			errors.As(err, &answer)
			counts[answer.Status]++
			if answer.Final() {
				t.Fatalf("%v is final", answer)
			}
		}
		for status, want := range map[int]int{200: n * 6 / 10, 500: n * 4 / 10} {
			if got := counts[status]; got < want*8/10 || got > want*12/10 {
				t.Errorf("%d of %d answers have status %d, want about %d", got, n, status, want)
			}
		}
		synctest.Wait()
		list, failed := w.cloud.Assets("me"), 0
		for _, a := range list {
			if a.State == cloud.Failed {
				failed++
			}
		}
		if part := float64(failed) / float64(len(list)); part < 0.3 || part > 0.5 {
			t.Errorf("%d of %d creations failed, want about 0.4 of them", failed, len(list))
		}
		w.close()
	})
}

// An update for an old version is refused, and a stream survives a silence.
func TestCloudHabits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(quick)
		defer w.close()
		c, done := w.client("me")
		defer done()
		var broken error
		w.Go(reconcile.RunFunc(func(ctx context.Context) error {
			for _, err := range c.Events(ctx) {
				if ctx.Err() == nil {
					broken = err
				}
			}
			return nil
		}))
		spec := cloud.Spec{Region: "us-east"}
		if err := build(t.Context(), c, key("k"), spec); err != nil {
			t.Fatal(err)
		}
		var answer *cloud.Error
		if err := c.Update(t.Context(), key("k"), spec, 0); !errors.As(err, &answer) || answer.Status != 412 {
			t.Errorf("an update for an old version gives %v, want 412", err)
		}
		w.Advance(10 * time.Minute)
		if broken != nil {
			t.Errorf("the stream ended with %v", broken)
		}
	})
}

// A stream on which nothing comes any more is dead.
func TestSilentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "data: {\"what\": \"hello\"}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})}
		ended := make(chan error)
		go func() { ended <- server.Serve(l) }()
		defer func() {
			server.Close()
			<-ended
		}()
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) }
		c := &cloud.Client{URL: "http://cloud", Tenant: "me", HTTP: &http.Client{Transport: &http.Transport{DialContext: dial}}}
		began := time.Now()
		var last error
		for _, err := range c.Events(t.Context()) {
			last = err
		}
		if took := time.Since(began); took != 30*time.Second || last == nil || !strings.Contains(last.Error(), "nothing came for 30s") {
			t.Errorf("after %v the stream ended with %v, want 30s and the silence", took, last)
		}
	})
}

// A cloud with a rate takes a second's worth at once, and then says when to come back.
func TestCloudRate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(fakecloud.Config{Seed: 1, Rate: 10})
		c, done := w.client("me")
		defer done()
		for _, want := range []int{10, 0, 5} {
			taken := 0
			for range 15 {
				_, err := c.List(t.Context(), cloud.Bucket)
				answer := new(cloud.Error)
				if err == nil {
					taken++
				} else if !errors.As(err, &answer) || answer.Status != 429 || answer.RetryAfter != time.Second {
					t.Errorf("List = %v, want 429 and a second to wait", err)
				}
			}
			if taken != want {
				t.Errorf("%d of 15 requests are taken, want %d", taken, want)
			}
			if want == 0 {
				time.Sleep(time.Second / 2)
			}
		}
		w.close()
	})
}
