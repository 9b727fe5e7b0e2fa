// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A proxy stands between the program and the gateway. It calls hand for each
// request; if that returns true, it has answered. The signatures stay good, as
// the proxy passes on the host that was asked for.
func (w *world) proxy(hand func(rw http.ResponseWriter, r *http.Request, pass http.Handler) bool) string {
	w.t.Helper()
	target, err := url.Parse(w.Gateway.URL)
	w.Must(err)
	pass := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !hand(rw, r, pass) {
			pass.ServeHTTP(rw, r)
		}
	}))
	w.t.Cleanup(server.Close)
	return server.URL
}

// creates reports whether a request creates a bucket.
func creates(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.RawQuery == "" && strings.Count(strings.Trim(r.URL.Path, "/"), "/") == 0
}

// A store that says when to come back is asked again then and not before, not
// even for an event.
func TestThrottled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var asked []time.Time // for the bucket "busy"
	url := w.proxy(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !strings.HasPrefix(r.URL.Path, "/busy") {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, time.Now())
		if len(asked) > 2 {
			return false
		}
		rw.Header().Set("Retry-After", "2")
		rw.WriteHeader(map[int]int{1: http.StatusServiceUnavailable, 2: http.StatusTooManyRequests}[len(asked)])
		return true
	})
	file := desiredFile(t, "buckets: [{name: busy}, {name: idle}]")
	p := w.runAt(url, "-desired", file, "-watch", "-poll", "100ms")
	p.line("busy busy: the store asks to come back in 2s (503 Service Unavailable)", "idle in sync")
	rewrite(t, file, "buckets: [{name: busy, versioning: true}, {name: idle}]")
	p.line(file+" is in force, 1 bucket changed", "busy busy: the store asks to come back in 2s (429 Too Many Requests)", "busy in sync")
	p.interrupt()
	p.WantEnd(0, "2 of 2 buckets in sync")
	mu.Lock()
	defer mu.Unlock()
	for i := range 2 {
		if pause := asked[i+1].Sub(asked[i]); pause < 2*time.Second {
			t.Errorf("the store was asked again after %v, want 2s or more", pause)
		}
	}
}

// Some stores answer 200 to the creation of a bucket that exists. If another
// hand made it a moment before, it is not ours, and nothing of it is touched.
func TestMadeMeanwhile(t *testing.T) {
	t.Parallel()
	const untagged = "it bears no tag reconcile-owner"
	for _, test := range []struct {
		want  string
		there contents
	}{
		{`its tag reconcile-owner is "them"`, contents{Tags: map[string]string{"reconcile-owner": "them", "team": "product"}}},
		{untagged, contents{Objects: map[string]string{"data": "theirs"}}},
		{untagged, contents{Tags: map[string]string{"team": "product"}}},
	} {
		w := newWorld(t)
		url := w.proxy(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if !creates(r) {
				return false
			}
			w.make("bare", test.there.Tags)
			for key, text := range test.there.Objects {
				w.put("bare", key, text)
			}
			return true // 200
		})
		w.runAt(url, "-desired", desiredFile(t, "buckets: [{name: bare}]")).WantEnd(1, "bare                     rejected: create: it exists and is not ours: "+test.want)
		w.wantContents("bare", test.there)
	}
}

// Another client changes a marker between our read and our write. The store
// rejects the write, because of its ETag, and the next run corrects the marker
// then.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, there := range []bool{false, true} {
		w := newWorld(t)
		file := desiredFile(t, everything)
		if there {
			w.run("-desired", file).WantEnd(0)
			w.put("full", marker("README"), "drift")
		}
		var once sync.Once
		var between string // at the time of our rejected write
		url := w.proxy(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) (answered bool) {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, marker("README")) {
				once.Do(func() {
					w.put("full", marker("README"), "another client")
					pass.ServeHTTP(rw, r)
					between = w.read("full").Objects[marker("README")]
					answered = true
				})
			}
			return answered
		})
		w.runAt(url, "-desired", file).WantEnd(0, "2 of 2 buckets in sync", "full                     retrying: another client has changed it meanwhile: write marker README")
		if between != "another client" {
			t.Errorf("there was %q after our step, which ought to have been rejected", between)
		}
		w.wantContents("full", full)
	}
}

// A store that forgets what it was told does not make the program turn in
// circles.
func TestForgetfulStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.proxy(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		return r.Method == http.MethodPut && r.URL.Query().Has("versioning") // 200
	})
	w.runAt(url, "-desired", desiredFile(t, everything), "-retries", "2").WantEnd(1, "1 of 2 buckets in sync",
		"full: after turn versioning on there is still to do: turn versioning on")
}

// A store that leaves out the tags of a creation needs a second request for them.
// The program is killed with -9 between the two. What it leaves is marked by the
// next one that desires it; no other controller touches or removes it.
func TestKilledBetweenCreationAndTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	created, dead := make(chan struct{}), make(chan struct{})
	var once sync.Once
	url := w.proxy(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if creates(r) {
			w.make(strings.Trim(r.URL.Path, "/"), nil)
			return true
		}
		if r.Method == http.MethodPut && r.URL.Query().Has("tagging") {
			once.Do(func() {
				close(created)
				<-dead
				panic(http.ErrAbortHandler)
			})
		}
		return false
	})
	desired, empty := desiredFile(t, "buckets: [{name: bare}]"), desiredFile(t, "buckets: []")
	p := w.runAt(url, "-desired", desired)
	<-created
	p.Signal(syscall.SIGKILL)
	p.End()
	close(dead)
	w.wantContents("bare", contents{})

	w.runAt(url, "-desired", empty, "-purge").WantEnd(0, "0 of 0 buckets in sync")
	w.wantContents("bare", contents{})
	w.runAt(url, "-desired", desired, "-owner", "them", "-plan").WantEnd(0, "mark as ours")
	w.runAt(url, "-desired", desired).WantEnd(0, "bare                     mark as ours, it is empty and bears no tags")
	w.wantContents("bare", bare)
	w.runAt(url, "-desired", empty).WantEnd(0, "bare                     remove")
	w.wantBuckets()
}

// Buckets of the account that are in another region, or that may not be looked
// at, are not changed here, unless one is desired.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"moved", "signed", "denied"} {
		w.make(name, nil)
	}
	url := w.proxy(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		status, code := 0, ""
		switch name, _, _ := strings.Cut(r.URL.Path[1:], "/"); name {
		case "moved":
			status, code = http.StatusMovedPermanently, "PermanentRedirect"
		case "signed":
			status, code = http.StatusBadRequest, "AuthorizationHeaderMalformed"
		case "denied":
			status, code = http.StatusForbidden, "AccessDenied"
		default:
			return false
		}
		rw.WriteHeader(status)
		fmt.Fprintf(rw, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
		return true
	})
	file := desiredFile(t, "buckets: [{name: bare}]")
	for _, args := range [][]string{{"-plan"}, {}, {"-purge"}} {
		out := w.runAt(url, append(args, "-desired", file)...).WantEnd(0)
		for _, name := range []string{"moved", "signed", "denied"} {
			if strings.Contains(out, name) {
				t.Errorf("it tells of %s:\n%s", name, out)
			}
		}
	}
	rewrite(t, file, "buckets: [{name: bare}, {name: moved}, {name: denied}]")
	w.runAt(url, "-desired", file).WantEnd(1, "1 of 3 buckets in sync",
		"moved: reading the tags: no (PermanentRedirect)", "denied: reading the tags: no (AccessDenied)")
}

// A bucket that another client removes is missed by the poll of what is there, long
// before the next recheck.
func TestVanished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	listed := make(chan struct{}, 1000) // told of each list that was answered
	url := w.proxy(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) bool {
		if r.URL.Path != "/" {
			return false
		}
		pass.ServeHTTP(rw, r)
		listed <- struct{}{}
		return true
	})
	p := w.runAt(url, "-desired", desiredFile(t, "buckets: [{name: bare}]"), "-watch", "-poll", "3s", "-recheck", "1h")
	p.line("bare in sync")
	for len(listed) > 0 {
		<-listed
	}
	<-listed // it may have begun before
	<-listed // this one has the bucket in it
	w.Must(w.Hand.RemoveBucket(t.Context(), "bare"))
	p.line("bare create")
	p.line("bare in sync")
	p.interrupt()
	p.WantEnd(0, "1 of 1 bucket in sync")
}
