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
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A proxy stands between the program and the gateway. It calls hand for each
// request; if that returns true, it has answered. The signatures stay good, as
// the proxy passes on the host that was asked for.
func (w *world) proxy(hand func(rw http.ResponseWriter, r *http.Request, pass http.Handler) bool) string {
	w.t.Helper()
	target, err := url.Parse(w.gateway.URL)
	w.must(err)
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

// A store that says when to come back for a bucket is asked again then and not before, not
// even for an event or a poll. Other buckets do not wait for that.
func TestThrottled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const pause = 5 * time.Second
	var mu sync.Mutex
	created := map[string][]time.Time{} // when the creation of a bucket was asked for
	url := w.proxy(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if !creates(r) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		name := strings.Trim(r.URL.Path, "/")
		created[name] = append(created[name], time.Now())
		if n := len(created[name]); name != "busy" || n > 2 {
			return false
		}
		rw.Header().Set("Retry-After", "5")
		rw.WriteHeader(map[int]int{1: http.StatusServiceUnavailable, 2: http.StatusTooManyRequests}[len(created[name])])
		return true
	})
	file := desiredFile(t, "buckets: [{name: busy}, {name: idle}]")
	p := w.runAt(url, "-desired", file, "-watch", "-poll", "100ms", "-workers", "1", "-log", "debug")
	p.line("the store asks to come back in 5s (503 Service Unavailable)")
	rewrite(t, file, "buckets: [{name: busy, versioning: true}, {name: idle}]")
	p.line("a new version is in force")
	p.logs("busy in sync")
	p.signal(os.Interrupt)
	p.wantEnd(0, "(429 Too Many Requests)")
	mu.Lock()
	defer mu.Unlock()
	for i, at := range created["busy"][1:] {
		if waited := at.Sub(created["busy"][i]); waited < pause {
			t.Errorf("the store was asked again after %v, want %v or more", waited, pause)
		}
	}
	if waited := created["idle"][0].Sub(created["busy"][0]); waited >= pause {
		t.Errorf("another bucket was created %v after the answer, want at once", waited)
	}
}

// A store that refuses everything is asked by one run alone until it answers.
func TestRefusesAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refused atomic.Int64
	url := w.proxy(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.URL.Path == "/" || refused.Add(1) > 8 {
			return false
		}
		rw.Header().Set("Retry-After", "1")
		rw.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	p := w.runAt(url, "-desired", desiredFile(t, many(20)), "-workers", "1")
	p.wantEnd(0, "gate paused by the result of a run", "gate resumed", "all desired buckets are in sync buckets=20")
	w.wantMany(20)
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
		w.runAt(url, "-desired", desiredFile(t, "buckets: [{name: bare}]")).wantEnd(1, "item bare: create: it exists and is not ours: "+test.want)
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
			w.run("-desired", file).wantEnd(0)
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
		w.runAt(url, "-desired", file).wantEnd(0, "another client has changed it meanwhile: write marker README")
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
	w.runAt(url, "-desired", desiredFile(t, everything), "-retries", "2").wantEnd(1,
		"item full: after turn versioning on there is still to do: turn versioning on")
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
	p.signal(syscall.SIGKILL)
	p.end()
	close(dead)
	w.wantContents("bare", contents{})

	w.runAt(url, "-desired", empty, "-purge").wantEnd(0, "all desired buckets are in sync buckets=0")
	w.wantContents("bare", contents{})
	w.runAt(url, "-desired", desired, "-owner", "them", "-plan").wantEnd(0, "mark as ours")
	w.runAt(url, "-desired", desired).wantEnd(0, "INFO mark as ours, it is empty and bears no tags")
	w.wantContents("bare", bare)
	w.runAt(url, "-desired", empty, "-max-deleted", "1").wantEnd(0, "INFO remove item=bare")
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
		out := w.runAt(url, append(args, "-desired", file)...).wantEnd(0)
		for _, name := range []string{"moved", "signed", "denied"} {
			if strings.Contains(out, name) {
				t.Errorf("it tells of %s:\n%s", name, out)
			}
		}
	}
	rewrite(t, file, "buckets: [{name: bare}, {name: moved}, {name: denied}]")
	w.runAt(url, "-desired", file).wantEnd(1,
		"item moved: reading the tags: no (PermanentRedirect)", "item denied: reading the tags: no (AccessDenied)")
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
	p.logs("bare in sync")
	for len(listed) > 0 {
		<-listed
	}
	<-listed // it may have begun before
	<-listed // this one has the bucket in it
	w.must(w.client.RemoveBucket(t.Context(), "bare"))
	p.logs("bare create")
	p.logs("bare in sync")
	p.signal(os.Interrupt)
	p.wantEnd(0)
}
