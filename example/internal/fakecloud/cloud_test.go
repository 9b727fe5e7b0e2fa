// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fakecloud_test

import (
	"context"
	"errors"
	"fmt"
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

// An asset from its creation, which takes a while, to its end.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, fakecloud.Config{Dir: t.TempDir(), Build: time.Minute})
		ctx := t.Context()
		k := key("k")
		_, err := c.Get(ctx, k)
		if !errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("before it is created: %v", err)
		}
		op, err := c.Create(ctx, k, plain)
		wantStatus(t, "create", err, 200)
		a, err := c.Get(ctx, k)
		wantStatus(t, "get", err, 200)
		if a.State != cloud.Creating || a.Operation != op {
			t.Errorf("after its creation began it is %+v, want it creating by %s", a, op)
		}
		if o, err := c.Operation(ctx, op); err != nil || o.Done || o.Asset != k {
			t.Errorf("the operation is %+v, %v; want it running for %s", o, err, k)
		}
		wantStatus(t, "update before it is ready", c.Update(ctx, k, plain, a.Version), 412)
		time.Sleep(2 * time.Minute)
		if o, err := c.Operation(ctx, op); err != nil || !o.Done || o.Error != "" {
			t.Errorf("the operation is %+v, %v; want it done", o, err)
		}
		old := a.Version
		if a, _ = c.Get(ctx, k); a.State != cloud.Ready || a.Version == old {
			t.Errorf("in the end it is %+v, want it ready with another version", a)
		}
		changed := plain
		changed.Labels = map[string]string{"a": "b"}
		wantStatus(t, "update with an old version", c.Update(ctx, k, changed, old), 412)
		wantStatus(t, "update", c.Update(ctx, k, changed, a.Version), 200)
		if a, _ = c.Get(ctx, k); a.Labels["a"] != "b" {
			t.Errorf("after the update it is %+v", a)
		}
		changed.Region = "us-west"
		wantStatus(t, "update of the region", c.Update(ctx, k, changed, a.Version), 422)
		wantStatus(t, "delete", c.Delete(ctx, k), 200)
		wantStatus(t, "delete again", c.Delete(ctx, k), 200)
		wantStatus(t, "update after the end", c.Update(ctx, k, plain, 0), 404)
		_, err = c.Operation(ctx, op)
		wantStatus(t, "operation after the end", err, 404)
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, fakecloud.Config{Dir: t.TempDir()})
		for _, test := range []struct {
			id     cloud.ID
			spec   cloud.Spec
			status int
			final  bool
		}{
			{bucket("Big"), plain, 400, true},
			{bucket("b"), cloud.Spec{Region: "mars-1"}, 400, true},
			{bucket("backup"), plain, 409, true}, // another tenant has it
			{bucket("b"), cloud.Spec{Region: "us-east", Key: "none"}, 409, false},
			{bucket("b"), cloud.Spec{Region: "us-east", Key: "master"}, 409, false}, // not ours
		} {
			_, err := c.Create(t.Context(), test.id, test.spec)
			wantStatus(t, fmt.Sprintf("create %s %v", test.id, test.spec), err, test.status)
			if answer := new(cloud.Error); errors.As(err, &answer) && answer.Final() != test.final {
				t.Errorf("create %s: Final of %v is %t, want %t", test.id, err, answer.Final(), test.final)
			}
		}
		_, err := c.Get(t.Context(), bucket("backup"))
		wantStatus(t, "get what another tenant has", err, 404)
		_, err = c.List(t.Context(), "disk")
		wantStatus(t, "list another kind", err, 404)
	})
}

func TestKeysAndBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, fakecloud.Config{Dir: t.TempDir(), Build: time.Minute})
		ctx := t.Context()
		_, err := c.Create(ctx, key("k"), plain)
		wantStatus(t, "create the key", err, 200)
		withKey := cloud.Spec{Region: "us-east", Key: "k"}
		var answer *cloud.Error
		if _, err = c.Create(ctx, bucket("b"), withKey); !errors.As(err, &answer) || !slices.Equal(answer.Blocking, []cloud.ID{key("k")}) {
			t.Errorf("a bucket whose key is not ready: %v, want the key to block it", err)
		}
		time.Sleep(2 * time.Minute)
		create(t, c, bucket("b"), withKey)
		if err := c.Delete(ctx, key("k")); !errors.As(err, &answer) || !slices.Equal(answer.Blocking, []cloud.ID{bucket("b")}) {
			t.Errorf("delete a key in use: %v, want the bucket to block it", err)
		}
		wantStatus(t, "delete the bucket", c.Delete(ctx, bucket("b")), 200)
		wantStatus(t, "delete the key", c.Delete(ctx, key("k")), 200)
	})
}

func TestTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, fakecloud.Config{Dir: t.TempDir()})
		you := *c
		you.Tenant = "you"
		create(t, c, bucket("b"), plain)
		_, err := you.Create(t.Context(), bucket("b"), plain)
		wantStatus(t, "create what I have", err, 409)
		_, err = you.Get(t.Context(), bucket("b"))
		wantStatus(t, "get what I have", err, 404)
		wantStatus(t, "delete what I have", you.Delete(t.Context(), bucket("b")), 200) // it is not there for you
		if list, err := you.List(t.Context(), cloud.Bucket); err != nil || len(list) != 0 {
			t.Errorf("you see %v, %v; want nothing", list, err)
		}
		if list, err := c.List(t.Context(), cloud.Bucket); err != nil || len(list) != 1 {
			t.Errorf("I see %v, %v; want my bucket", list, err)
		}
	})
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, fakecloud.Config{Dir: t.TempDir()})
		const n = 1200 // more than two pages
		for i := range n {
			if _, err := c.Create(t.Context(), key(fmt.Sprintf("k-%04d", i)), plain); err != nil {
				t.Fatal(err)
			}
		}
		list, err := c.List(t.Context(), cloud.Key)
		if err != nil || len(list) != n {
			t.Fatalf("the list has %d keys, %v; want %d", len(list), err, n)
		}
		for i, a := range list {
			if want := key(fmt.Sprintf("k-%04d", i)); a.ID != want {
				t.Fatalf("key %d of the list is %s, want %s", i, a.ID, want)
			}
		}
	})
}

// Half of the faults are 429 with Retry-After, half 500; a list gets over both.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, fakecloud.Config{Dir: t.TempDir(), Faults: 0.4, Latency: 10 * time.Millisecond})
		counts := map[int]int{}
		const n = 2000
		for range n {
			_, err := c.Get(t.Context(), key("k"))
			var answer *cloud.Error
			if !errors.As(err, &answer) {
				t.Fatalf("get: %v", err)
			}
			counts[answer.Status]++
			if answer.Status == 429 && answer.RetryAfter != time.Second {
				t.Fatalf("a 429 says %v, want 1s", answer.RetryAfter)
			}
			if answer.Status != 404 && answer.Final() {
				t.Fatalf("%v is final", err)
			}
		}
		for status, want := range map[int]int{404: n * 6 / 10, 429: n * 2 / 10, 500: n * 2 / 10} {
			if got := counts[status]; got < want*8/10 || got > want*12/10 {
				t.Errorf("%d of %d answers have status %d, want about %d", got, n, status, want)
			}
		}
		for range 20 {
			if _, err := c.List(t.Context(), cloud.Key); err != nil {
				t.Errorf("list: %v", err)
			}
		}
	})
}

// Some creations fail in the background, and say why.
func TestFailedCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c, stop := start(t, fakecloud.Config{Dir: dir, Build: time.Hour})
		for i := range 100 {
			if _, err := c.Create(t.Context(), bucket(fmt.Sprint("b", i)), plain); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		_, stop = start(t, fakecloud.Config{Dir: dir, Faults: 0.5, Build: time.Minute})
		time.Sleep(2 * time.Minute)
		stop()
		c, _ = start(t, fakecloud.Config{Dir: dir})
		list, err := c.List(t.Context(), cloud.Bucket)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, a := range list {
			o, err := c.Operation(t.Context(), a.Operation)
			if err != nil || !o.Done || (o.Error != "") != (a.State == cloud.Failed) {
				t.Errorf("%s is %s, its operation %+v, %v", a.ID, a.State, o, err)
			}
			if a.State == cloud.Failed {
				failed++
			}
		}
		if failed < 30 || failed > 70 {
			t.Errorf("%d of 100 creations failed, want about 50", failed)
		}
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := start(t, fakecloud.Config{Dir: t.TempDir()})
		var got []string
		var last error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e, err := range c.Events(context.Background()) {
				if err != nil {
					last = err
					continue
				}
				got = append(got, e.What+" "+e.Asset.Name)
			}
		}()
		synctest.Wait()
		time.Sleep(10 * time.Minute) // the stream survives a silence
		you := *c
		you.Tenant = "you"
		create(t, &you, key("yours"), plain)
		create(t, c, key("k"), plain)
		a, err := c.Get(t.Context(), key("k"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Update(t.Context(), key("k"), plain, a.Version), c.Delete(t.Context(), key("k"))); err != nil {
			t.Fatal(err)
		}
		stop()
		<-ended
		if want := []string{"hello ", "ready k", "changed k", "deleted k"}; !slices.Equal(got, want) {
			t.Errorf("the events are %q, want %q", got, want)
		}
		if last == nil || !strings.Contains(last.Error(), "closed by the cloud") {
			t.Errorf("the stream ended with %v", last)
		}
	})
}

// A stream on which nothing comes any more is dead.
func TestSilentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		release := make(chan struct{})
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "data: {\"what\": \"hello\"}\n\n")
			w.(http.Flusher).Flush()
			<-release
		})}
		ended := make(chan error)
		go func() { ended <- server.Serve(p) }()
		defer func() {
			close(release)
			server.Close()
			<-ended
		}()
		c := &cloud.Client{URL: "http://cloud", Tenant: "me", HTTP: &http.Client{Transport: &http.Transport{DialContext: p.dial}}}
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

// With chaos, another hand deletes and alters.
func TestChaos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, fakecloud.Config{Dir: t.TempDir(), Chaos: time.Second})
		var what []string
		go func() {
			for e, err := range c.Events(context.Background()) {
				if err == nil {
					what = append(what, e.What)
				}
			}
		}()
		synctest.Wait()
		for i := range 30 {
			create(t, c, bucket(fmt.Sprint("b", i)), plain)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, w := range []string{"hello", "ready", "changed", "deleted"} {
			if !slices.Contains(what, w) {
				t.Errorf("nothing of the kind %q has happened: %q", w, what)
			}
		}
	})
}
