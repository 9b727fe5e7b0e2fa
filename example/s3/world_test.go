// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"

	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/local"
	"github.com/reconkernel/reconcile/internal/servers"
)

// A world is a gateway, and another client of it. Its methods are for the goroutine of the
// test.
type world struct {
	t       *testing.T
	dir     string // of the gateway
	gateway *local.Gateway
	client  *minio.Client
}

// newWorld starts a gateway, which ends with the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	var err error
	w.gateway, err = local.New(w.dir, address(t))
	w.must(err)
	t.Cleanup(w.gateway.Kill)
	w.must(w.gateway.Start(t.Context()))
	keys := credentials.NewStaticV4(w.gateway.AccessKey, w.gateway.SecretKey, "")
	w.client, err = minio.New(strings.TrimPrefix(w.gateway.URL, "http://"), &minio.Options{Creds: keys, Region: "us-east-1"})
	w.must(err)
	return w
}

// address returns an address on loopback that programs can listen at one after the other,
// and that is theirs until the test ends: see [servers.HoldPort].
func address(t *testing.T) string {
	t.Helper()
	address, release, err := servers.HoldPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return address
}

// must ends the test if there is an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// desiredFile writes a file with the desired buckets and returns its path.
func desiredFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "desired.yaml")
	rewrite(t, path, text)
	return path
}

// rewrite replaces a file at once, so that nobody reads half of it.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// many returns a file with n desired buckets.
func many(n int) string {
	var b strings.Builder
	b.WriteString("buckets:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {name: bucket-%04d, tags: {number: n%d}}\n", i, i)
	}
	return b.String()
}

// run starts the program on the gateway of the world.
func (w *world) run(args ...string) *process {
	w.t.Helper()
	return w.runAt(w.gateway.URL, args...)
}

// runAt starts it on what answers at that URL, with the keys of the gateway.
func (w *world) runAt(url string, args ...string) *process {
	w.t.Helper()
	return execute(w.t, w.keys(), append([]string{"-endpoint", url}, args...)...)
}

func (w *world) keys() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + w.gateway.AccessKey, "AWS_SECRET_ACCESS_KEY=" + w.gateway.SecretKey}
}

// The contents of a bucket, with its settings.
type contents struct {
	Tags       map[string]string // with that of the owner
	Versioning string
	Policy     bool
	Objects    map[string]string // key to text
}

// read returns the contents of a bucket, as another client sees it.
func (w *world) read(name string) contents {
	w.t.Helper()
	ctx := w.t.Context()
	l := contents{Tags: map[string]string{}, Objects: map[string]string{}}
	set, err := w.client.GetBucketTagging(ctx, name)
	switch {
	case err == nil:
		l.Tags = set.ToMap()
	case minio.ToErrorResponse(err).Code != "NoSuchTagSet":
		w.t.Fatalf("%s: %v", name, err)
	}
	versioning, err := w.client.GetBucketVersioning(ctx, name)
	w.must(err)
	l.Versioning = versioning.Status
	policy, err := w.client.GetBucketPolicy(ctx, name)
	w.must(err)
	l.Policy = policy != ""
	for object := range w.client.ListObjects(ctx, name, minio.ListObjectsOptions{Recursive: true}) {
		w.must(object.Err)
		o, err := w.client.GetObject(ctx, name, object.Key, minio.GetObjectOptions{})
		w.must(err)
		text, err := io.ReadAll(o)
		w.must(err)
		l.Objects[object.Key] = string(text)
	}
	return l
}

func (w *world) wantContents(name string, want contents) {
	w.t.Helper()
	got := w.read(name)
	if !maps.Equal(got.Tags, want.Tags) || got.Versioning != want.Versioning || got.Policy != want.Policy || !maps.Equal(got.Objects, want.Objects) {
		w.t.Errorf("%s is\n%+v, want\n%+v", name, got, want)
	}
}

func (w *world) wantBuckets(names ...string) {
	w.t.Helper()
	all, err := w.client.ListBuckets(w.t.Context())
	w.must(err)
	var got []string
	for _, b := range all {
		got = append(got, b.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, names) {
		w.t.Errorf("there are the buckets %q, want %q", got, names)
	}
}

// make makes a bucket by another client, with these tags if there are any.
func (w *world) make(name string, set map[string]string) {
	w.t.Helper()
	w.must(w.client.MakeBucket(w.t.Context(), name, minio.MakeBucketOptions{}))
	if len(set) > 0 {
		w.tag(name, set)
	}
}

func (w *world) tag(name string, set map[string]string) {
	w.t.Helper()
	all, err := tags.NewTags(set, false)
	w.must(err)
	w.must(w.client.SetBucketTagging(w.t.Context(), name, all))
}

func (w *world) put(name, key, text string) {
	w.t.Helper()
	_, err := w.client.PutObject(w.t.Context(), name, key, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{})
	w.must(err)
}

// path returns where something of a bucket is on disk.
func (w *world) path(name string, more ...string) string {
	return filepath.Join(append([]string{w.gateway.Buckets, name}, more...)...)
}

func marker(name string) string { return bucket.MarkerPrefix + name }
