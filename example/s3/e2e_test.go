// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"
)

// Each change by another client is found and corrected.
func TestDriftByAnotherClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	p := w.run("-desired", desiredFile(t, everything), "-watch", "-recheck", "50ms", "-poll", "200ms")
	p.logs("full in sync", "bare in sync")

	w.must(w.client.SuspendVersioning(ctx, "full"))
	p.logs("full turn versioning on")
	w.tag("full", map[string]string{"reconcile-owner": "example", "team": "product"})
	p.logs("full set tags keep=10 years team=finance")
	w.must(w.client.SetBucketPolicy(ctx, "full", ""))
	p.logs("full set the policy")
	w.must(w.client.SetBucketPolicy(ctx, "bare", `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bare/*"}]}`))
	p.logs("bare remove the policy")
	w.put("full", marker("format"), "arrow")
	p.logs("full write marker format")
	w.must(w.client.RemoveObject(ctx, "full", marker("README"), minio.RemoveObjectOptions{}))
	p.logs("full write marker README")
	w.put("full", marker("more"), "of it")
	p.logs("full remove marker more")
	p.logs("full in sync") // not amid that run when it is told to end
	w.put("full", "data/1", "theirs")
	w.must(w.client.RemoveBucket(ctx, "bare"))
	p.logs("bare create")
	p.logs("bare in sync")

	p.signal(os.Interrupt)
	p.wantEnd(0)
	with := full
	with.Objects = map[string]string{"data/1": "theirs"}
	maps.Copy(with.Objects, full.Objects)
	w.wantContents("full", with)
	w.wantContents("bare", bare)
}

// A hand on the disk below the gateway leaves the ETags as they were.
func TestDriftInTheFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run("-desired", desiredFile(t, everything), "-watch", "-recheck", "50ms", "-poll", "200ms")
	p.logs("full in sync", "bare in sync")
	w.must(os.WriteFile(w.path("full", marker("format")), []byte("PARQUET"), 0o644)) // as long as before
	p.logs("full write marker format")
	p.logs("full in sync")
	w.must(os.Remove(w.path("full", marker("README"))))
	p.logs("full write marker README")
	p.logs("full in sync")
	w.must(os.Rename(w.path("full"), filepath.Join(w.dir, "gone"))) // at once, so that nothing is made in it
	p.logs("full create")
	p.logs("full in sync")
	replacement := filepath.Join(w.dir, "replacement") // in the bucket it would be a marker, and removed
	w.must(os.WriteFile(replacement, []byte("csv"), 0o644))
	w.must(os.Rename(replacement, w.path("full", marker("format")))) // which leaves no ETag at all
	p.logs("full write marker format")
	p.logs("full in sync")
	p.signal(os.Interrupt)
	p.wantEnd(0)
	w.wantContents("full", full)
}

func TestWrongKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, everything)
	for _, test := range []struct{ env, want []string }{
		{nil, []string{"there are no keys for the store: set AWS_ACCESS_KEY_ID"}},
		{[]string{"AWS_ACCESS_KEY_ID=example"}, []string{"there are no keys for the store"}},
		{
			[]string{"AWS_ACCESS_KEY_ID=nobody", "AWS_SECRET_ACCESS_KEY=secret-secret"},
			[]string{w.gateway.URL + " refuses the keys", "AWS_ACCESS_KEY_ID", "No user exists"},
		},
		{
			[]string{"AWS_ACCESS_KEY_ID=" + w.gateway.AccessKey, "AWS_SECRET_ACCESS_KEY=secret-secret"},
			[]string{w.gateway.URL + " refuses the keys", "signature"},
		},
	} {
		for _, args := range [][]string{nil, {"-watch"}, {"-plan"}} {
			p := execute(t, test.env, append([]string{"-desired", file, "-endpoint", w.gateway.URL}, args...)...)
			p.wantEnd(1, test.want...)
		}
	}
	w.wantBuckets()
}

// Nobody answers.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	keys := []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}
	args := []string{"-endpoint", "http://" + address(t), "-desired", desiredFile(t, "buckets: [{name: bare}]")}
	execute(t, keys, args...).wantEnd(1, "listing the buckets: ", "connection refused")
	execute(t, keys, append(args, "-plan")...).wantEnd(1, "listing the buckets: ", "connection refused")
}

// The gateway is killed with -9 as it works, and comes back.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, many(150))
	p := w.run("-desired", file, "-watch", "-poll", "1s", "-recheck", "1s", "-log", "debug")
	for _, steps := range []int{10, 50} {
		p.count(steps, "INFO create")
		w.gateway.Kill()
		p.count(1, "connection refused")
		w.must(w.gateway.Start(t.Context()))
	}
	inSync := map[string]bool{}
	note := func(line string) {
		switch item := itemOf(line); {
		case strings.Contains(line, " run failed, "):
			delete(inSync, item)
		case item != "" && strings.Contains(line, " run succeeded "):
			inSync[item] = true
		}
	}
	for line := range strings.Lines(p.read.String()) {
		note(line)
	}
	for len(inSync) < 150 {
		note(p.line("item=bucket-"))
	}
	p.signal(os.Interrupt)
	p.wantEnd(0)
	w.run("-desired", file).wantEnd(0, "all desired buckets are in sync buckets=150")
	w.wantMany(150)
}

func (w *world) wantMany(n int) {
	w.t.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("bucket-%04d", i))
	}
	w.wantBuckets(names...)
	for i, name := range names {
		w.wantContents(name, contents{Tags: map[string]string{"reconcile-owner": "example", "number": fmt.Sprintf("n%d", i)}})
	}
}

// The controller is killed with -9 again and again as it works, and finds what
// it left.
func TestControllerKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, many(120))
	for _, seen := range []int{1, 10, 40, 80} {
		p := w.run("-desired", file, "-watch")
		p.count(seen, "bucket-")
		p.signal(syscall.SIGKILL)
		if code := p.end(); code != -1 {
			t.Fatalf("the killed program has exit code %d:\n%s", code, p.read.String())
		}
	}
	w.run("-desired", file).wantEnd(0, "all desired buckets are in sync buckets=120")
	w.wantMany(120)
}

// What is not ours is never touched: neither what is not desired nor what
// would be in the way.
func TestNotOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make("empty", nil)
	w.make("theirs", map[string]string{"reconcile-owner": "them", "team": "product"})
	w.make("inhabited", nil)
	w.put("inhabited", "data", "theirs")
	w.make("tagged", map[string]string{"team": "product"})
	w.make("foreign", map[string]string{"team": "product"})
	w.put("foreign", marker("README"), "theirs")
	w.make("claimed", map[string]string{"reconcile-owner": "them"})
	before := w.snapshot()

	file := desiredFile(t, `buckets: [{name: foreign, markers: {README: ours}}, {name: claimed, versioning: true}, {name: inhabited}, {name: tagged}]`)
	for _, args := range [][]string{{"-plan"}, nil, {"-purge"}} {
		p := w.run(append([]string{"-desired", file, "-retries", "1"}, args...)...)
		p.wantEnd(1,
			`it exists and is not ours: it bears no tag reconcile-owner; to hand it over, set that tag to "example"`,
			`it exists and is not ours: its tag reconcile-owner is "them"`)
	}
	w.wantSnapshot(before) // which has no tags
	w.wantContents("inhabited", contents{Objects: map[string]string{"data": "theirs"}})
	w.wantContents("tagged", contents{Tags: map[string]string{"team": "product"}})

	// Handed over, it is ours.
	w.tag("foreign", map[string]string{"reconcile-owner": "example"})
	rewrite(t, file, `buckets: [{name: foreign, markers: {README: ours}}]`)
	w.run("-desired", file).wantEnd(0, "all desired buckets are in sync buckets=1")
	w.wantContents("foreign", contents{
		Tags:    map[string]string{"reconcile-owner": "example"},
		Objects: map[string]string{marker("README"): "ours"},
	})
}

// Without an endpoint it starts a gateway of its own, which is gone when it is,
// and which it starts again when it dies.
func TestOwnGateway(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	file := desiredFile(t, everything)
	p := execute(t, nil, "-desired", file, "-state", dir, "-watch", "-poll", "200ms", "-recheck", "50ms")
	var url string
	var pid int
	_, attrs, _ := strings.Cut(p.line("versitygw runs"), "versitygw runs ")
	if _, err := fmt.Sscanf(attrs, "url=%s process=%d", &url, &pid); err != nil {
		t.Fatalf("%v in %q", err, attrs)
	}
	p.logs("full in sync", "bare in sync")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.line("versitygw has ended: signal: killed")
	if err := os.Rename(filepath.Join(dir, "buckets", "full"), filepath.Join(dir, "gone")); err != nil { // at once
		t.Fatal(err)
	}
	p.logs("full create")
	p.logs("full in sync")
	p.signal(os.Interrupt)
	p.wantEnd(0)

	// What it stored is there the next time.
	out := execute(t, nil, "-desired", file, "-state", dir).wantEnd(0, "all desired buckets are in sync")
	if strings.Contains(out, "create") {
		t.Errorf("it began anew:\n%s", out)
	}
	execute(t, nil, "-desired", file).wantEnd(0, "all desired buckets are in sync")
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	url := w.proxy(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if strings.HasPrefix(r.URL.Path, "/never") {
			<-r.Context().Done() // it is never answered
		}
		return false
	})
	p := w.runAt(url, "-desired", desiredFile(t, "buckets: [{name: soon}, {name: never}]"))
	p.logs("soon in sync")
	p.signal(os.Interrupt)
	p.wantEnd(1, "1 of 2 items", "never")
}
