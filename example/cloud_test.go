// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

// The tests of this file ask the simulated cloud itself.

var plainSpec = cloud.Spec{Region: "us-east"}

// inCloud lets a test play with a cloud, as the tenant "me".
func inCloud(t *testing.T, config fakecloud.Config, play func(t *testing.T, w *world, c *cloud.Client)) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(config)
		defer w.close()
		c, done := w.client("me")
		defer done()
		play(t, w, c)
	})
}

func wantStatus(t *testing.T, what string, err error, want int) {
	t.Helper()
	got := 200
	if answer := new(cloud.Error); errors.As(err, &answer) {
		got = answer.Status
	} else if err != nil {
		got = 0
	}
	if got != want {
		t.Errorf("%s: status %d (%v), want %d", what, got, err, want)
	}
}

// An asset from its creation, which takes a while, to its end.
func TestCloudLife(t *testing.T) {
	inCloud(t, fakecloud.Config{Seed: 1, Build: time.Minute}, func(t *testing.T, _ *world, c *cloud.Client) {
		ctx, k := t.Context(), key("k")
		op, err := c.Create(ctx, k, plainSpec)
		wantStatus(t, "create", err, 200)
		a, err := c.Get(ctx, k)
		if err != nil || a.State != cloud.Creating || a.Operation != op {
			t.Errorf("after its creation began it is %+v, %v; want it creating by %s", a, err, op)
		}
		if o, err := c.Operation(ctx, op); err != nil || o.Done || o.Asset != k {
			t.Errorf("the operation is %+v, %v; want it running for %s", o, err, k)
		}
		wantStatus(t, "update before it is ready", c.Update(ctx, k, plainSpec, a.Version), 412)
		withKey := cloud.Spec{Region: "us-east", Key: "k"}
		_, err = c.Create(ctx, bucket("b"), withKey)
		var answer *cloud.Error
		if !errors.As(err, &answer) || !slices.Equal(answer.Blocking, []cloud.ID{k}) || answer.Final() {
			t.Errorf("a bucket whose key is not ready: %v, want the key to block it", err)
		}
		time.Sleep(2 * time.Minute)
		if o, err := c.Operation(ctx, op); err != nil || !o.Done || o.Error != "" {
			t.Errorf("the operation is %+v, %v; want it done", o, err)
		}
		changed := cloud.Spec{Region: "us-east", Labels: map[string]string{"a": "b"}}
		wantStatus(t, "update with an old version", c.Update(ctx, k, changed, a.Version), 412)
		if a, err = c.Get(ctx, k); err != nil || a.State != cloud.Ready {
			t.Errorf("it is %+v, %v; want it ready", a, err)
		}
		wantStatus(t, "update", c.Update(ctx, k, changed, a.Version), 200)
		if a, _ = c.Get(ctx, k); !same(a.Spec, changed) {
			t.Errorf("after the update it is %+v", a)
		}
		wantStatus(t, "update of the region", c.Update(ctx, k, cloud.Spec{Region: "us-west"}, a.Version), 422)
		wantStatus(t, "create the bucket", build(ctx, c, bucket("b"), withKey), 200)
		if err := c.Delete(ctx, k); !errors.As(err, &answer) || !slices.Equal(answer.Blocking, []cloud.ID{bucket("b")}) {
			t.Errorf("delete a key in use: %v, want the bucket to block it", err)
		}

		you := *c
		you.Tenant = "you"
		_, err = you.Create(ctx, k, plainSpec)
		wantStatus(t, "create what another tenant has", err, 409)
		wantStatus(t, "delete what another tenant has", you.Delete(ctx, bucket("b")), 200) // for you it is not there
		if list, err := you.List(ctx, cloud.Bucket); err != nil || len(list) != 0 {
			t.Errorf("you see %v, %v; want nothing", list, err)
		}
		if list, err := c.List(ctx, cloud.Bucket); err != nil || len(list) != 1 {
			t.Errorf("I see %v, %v; want my bucket", list, err)
		}
		wantStatus(t, "delete the bucket", c.Delete(ctx, bucket("b")), 200)
		wantStatus(t, "delete the key", c.Delete(ctx, k), 200)
		_, err = c.Operation(ctx, op)
		wantStatus(t, "operation after the end", err, 404)
		_, err = c.List(ctx, "disk")
		wantStatus(t, "list another kind", err, 404)
	})
}

// Half of the faults are 429 with Retry-After, half 500; and as many creations fail
// in the background, and say why.
func TestCloudFaults(t *testing.T) {
	inCloud(t, fakecloud.Config{Seed: 1, Faults: 0.4, Latency: 10 * time.Millisecond}, func(t *testing.T, _ *world, c *cloud.Client) {
		const n = 2000
		counts := map[int]int{}
		for i := range n {
			_, err := c.Create(t.Context(), bucket(fmt.Sprint("b", i)), plainSpec)
			answer := &cloud.Error{Status: 200}
			errors.As(err, &answer)
			counts[answer.Status]++
			if answer.Final() || answer.Status == 429 && answer.RetryAfter != time.Second {
				t.Fatalf("%v is final, or says to come back in %v", answer, answer.RetryAfter)
			}
		}
		for status, want := range map[int]int{200: n * 6 / 10, 429: n * 2 / 10, 500: n * 2 / 10} {
			if got := counts[status]; got < want*8/10 || got > want*12/10 {
				t.Errorf("%d of %d answers have status %d, want about %d", got, n, status, want)
			}
		}
		synctest.Wait()
		list, err := c.List(t.Context(), cloud.Bucket)
		for err != nil {
			list, err = c.List(t.Context(), cloud.Bucket)
		}
		failed := 0
		for _, a := range list {
			if a.State == cloud.Failed {
				failed++
			}
		}
		if part := float64(failed) / float64(len(list)); part < 0.3 || part > 0.5 {
			t.Errorf("%d of %d creations failed, want about 0.4 of them", failed, len(list))
		}
	})
}

func TestCloudEvents(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(quick)
		c, done := w.client("me")
		defer done()
		var got []string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e, err := range c.Events(context.Background()) {
				if err != nil {
					e.What = err.Error()
				}
				got = append(got, e.What+" "+e.Asset.Name)
			}
		}()
		time.Sleep(10 * time.Minute) // the stream survives a silence
		w.other("you", func(ctx context.Context, c *cloud.Client) error { return build(ctx, c, key("yours"), plainSpec) })
		w.other("me", func(ctx context.Context, c *cloud.Client) error {
			err := build(ctx, c, key("k"), plainSpec)
			a, errGet := c.Get(ctx, key("k"))
			return errors.Join(err, errGet, c.Update(ctx, key("k"), plainSpec, a.Version), c.Delete(ctx, key("k")))
		})
		w.close()
		<-ended
		if want := []string{"hello ", "ready k", "changed k", "deleted k"}; len(got) != 5 || !slices.Equal(got[:4], want) {
			t.Errorf("the events are %q, want %q and the end of the stream", got, want)
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

func TestCloudFlags(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that it ends if it begins to serve
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-h", 0, "-addr ADDRESS"},
		{"-faults 2", 2, "-faults is 2, want 0 to 0.9"},
		{"-addr nowhere:x", 1, "listen tcp"},
	} {
		var errs strings.Builder
		if code := fakecloud.Main(ctx, strings.Fields(test.args), io.Discard, &errs); code != test.code || !strings.Contains(errs.String(), test.want) {
			t.Errorf("with %q the exit code is %d and standard error\n%s\nwant %d and %q", test.args, code, &errs, test.code, test.want)
		}
	}
}
