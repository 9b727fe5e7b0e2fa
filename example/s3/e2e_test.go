// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/reconkernel/reconcile/example/s3/internal/programtest"
)

// Without -watch it ends, however often it would recheck.
func TestEndsAmidLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("-desired", desiredFile(t, many(50)), "-recheck", "1ns").WantEnd(0, "50 of 50 buckets in sync")
}

// Each change by another client is found and corrected.
func TestDriftByAnotherClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	p := w.run("-desired", desiredFile(t, everything), "-watch", "-recheck", "50ms", "-poll", "200ms")
	p.line("full in sync", "bare in sync")

	w.Must(w.Hand.SuspendVersioning(ctx, "full"))
	p.line("full turn versioning on")
	w.tag("full", map[string]string{"reconcile-owner": "example", "team": "product"})
	p.line("full set tags keep=10 years team=finance")
	w.Must(w.Hand.SetBucketPolicy(ctx, "full", ""))
	p.line("full set the policy")
	w.Must(w.Hand.SetBucketPolicy(ctx, "bare", `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bare/*"}]}`))
	p.line("bare remove the policy")
	w.put("full", marker("format"), "arrow")
	p.line("full write marker format")
	w.Must(w.Hand.RemoveObject(ctx, "full", marker("README"), minio.RemoveObjectOptions{}))
	p.line("full write marker README")
	w.put("full", marker("more"), "of it")
	p.line("full remove marker more")
	p.line("full in sync") // not amid that run when it is told to end
	w.put("full", "data/1", "theirs")
	w.Must(w.Hand.RemoveBucket(ctx, "bare"))
	p.line("bare create")
	p.line("bare in sync")

	p.interrupt()
	p.WantEnd(0, "2 of 2 buckets in sync")
	with := full
	with.Objects = map[string]string{"data/1": "theirs"}
	for key, text := range full.Objects {
		with.Objects[key] = text
	}
	w.wantContents("full", with)
	w.wantContents("bare", bare)
}

// A hand on the disk below the gateway leaves the ETags as they were.
func TestDriftInTheFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run("-desired", desiredFile(t, everything), "-watch", "-recheck", "50ms", "-poll", "200ms")
	p.line("full in sync", "bare in sync")
	w.Must(os.WriteFile(w.path("full", marker("format")), []byte("PARQUET"), 0o644)) // as long as before
	p.line("full write marker format")
	p.line("full in sync")
	w.Must(os.Remove(w.path("full", marker("README"))))
	p.line("full write marker README")
	p.line("full in sync")
	w.Must(os.Rename(w.path("full"), filepath.Join(w.Dir, "gone"))) // at once, so that nothing is made in it
	p.line("full create")
	p.line("full in sync")
	replacement := filepath.Join(w.Dir, "replacement") // in the bucket it would be a marker, and removed
	w.Must(os.WriteFile(replacement, []byte("csv"), 0o644))
	w.Must(os.Rename(replacement, w.path("full", marker("format")))) // which leaves no ETag at all
	p.line("full write marker format")
	p.line("full in sync")
	p.interrupt()
	p.WantEnd(0, "2 of 2 buckets in sync")
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
			[]string{w.Gateway.URL + " refuses the keys", "AWS_ACCESS_KEY_ID", "No user exists"},
		},
		{
			[]string{"AWS_ACCESS_KEY_ID=" + w.Gateway.AccessKey, "AWS_SECRET_ACCESS_KEY=secret-secret"},
			[]string{w.Gateway.URL + " refuses the keys", "signature"},
		},
	} {
		for _, args := range [][]string{nil, {"-watch"}, {"-plan"}} {
			p := execute(t, test.env, append([]string{"-desired", file, "-endpoint", w.Gateway.URL}, args...)...)
			p.WantEnd(1, test.want...)
		}
	}
	w.wantBuckets()
}

// Nobody answers: each bucket is tried a few times, then it is said.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	keys := []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}
	args := []string{"-endpoint", "http://" + programtest.Address(t), "-desired", desiredFile(t, "buckets: [{name: bare}]")}
	execute(t, keys, append(args, "-retries", "1")...).WantEnd(1, "0 of 1 bucket in sync", "bare: ", "connection refused", "what is there besides is not known")
	execute(t, keys, append(args, "-plan")...).WantEnd(1, "listing the buckets: ", "connection refused")
}

// The gateway is killed with -9 as it works, and comes back.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, many(150))
	p := w.run("-desired", file, "-watch", "-recheck", "1s")
	for _, steps := range []int{10, 50} {
		p.read(steps, "create")
		back := w.kill()
		p.read(1, "connection refused")
		back()
	}
	inSync := map[string]bool{}
	note := func(line string) {
		fields := strings.Fields(line)
		if delete(inSync, fields[0]); strings.Join(fields[1:], " ") == "in sync" {
			inSync[fields[0]] = true
		}
	}
	for line := range strings.Lines(p.Printed()) {
		note(line)
	}
	for len(inSync) < 150 {
		note(p.line("bucket-"))
	}
	p.interrupt()
	p.WantEnd(0, "of 150 buckets in sync")
	w.run("-desired", file).WantEnd(0, "150 of 150 buckets in sync")
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
		p.read(seen, "bucket-")
		p.Signal(syscall.SIGKILL)
		if code := p.End(); code != -1 {
			t.Fatalf("the killed program has exit code %d:\n%s", code, p.Printed())
		}
	}
	w.run("-desired", file).WantEnd(0, "120 of 120 buckets in sync")
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
		p.WantEnd(1,
			`it exists and is not ours: it bears no tag reconcile-owner; to hand it over, set that tag to "example"`,
			`it exists and is not ours: its tag reconcile-owner is "them"`)
	}
	w.wantSnapshot(before) // which has no tags
	w.wantContents("inhabited", contents{Objects: map[string]string{"data": "theirs"}})
	w.wantContents("tagged", contents{Tags: map[string]string{"team": "product"}})

	// Handed over, it is ours.
	w.tag("foreign", map[string]string{"reconcile-owner": "example"})
	rewrite(t, file, `buckets: [{name: foreign, markers: {README: ours}}]`)
	w.run("-desired", file).WantEnd(0, "1 of 1 bucket in sync")
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
	p := execute(t, nil, "-desired", file, "-state", dir, "-watch", "-recheck", "50ms")
	var url string
	var pid int
	line := p.line("versitygw at")
	if _, err := fmt.Sscanf(line, "versitygw at %s (process %d)", &url, &pid); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	p.line("full in sync", "bare in sync")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.Line("versitygw has ended: signal: killed")
	if err := os.Rename(filepath.Join(dir, "buckets", "full"), filepath.Join(dir, "gone")); err != nil { // at once
		t.Fatal(err)
	}
	p.line("full create")
	p.line("full in sync")
	p.interrupt()
	p.WantEnd(0, "of 2 buckets in sync")

	// What it stored is there the next time.
	out := execute(t, nil, "-desired", file, "-state", dir).WantEnd(0, "2 of 2 buckets in sync")
	if strings.Contains(out, "create") {
		t.Errorf("it began anew:\n%s", out)
	}
	execute(t, nil, "-desired", file).WantEnd(0, "2 of 2 buckets in sync")
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
	p.line("soon in sync")
	p.interrupt()
	p.WantEnd(1, "interrupted", "1 of 2 buckets in sync")
}
