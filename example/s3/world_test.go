// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/tags"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/internal/programtest"
	"github.com/reconkernel/reconcile/example/s3/internal/s3test"
	"github.com/reconkernel/reconcile/example/s3/local"
)

// The tests run the program as a user does: as a process, against a real
// gateway that is another one, started with a folder of the test.

// asProgram in the environment makes the test binary the program itself.
const asProgram = "RECONCILE_S3_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// A world is that of s3test, in which the program is a process.
type world struct {
	*s3test.World
	t *testing.T
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{s3test.New(t), t}
}

// kill kills the gateway with -9. It stays away until back is called.
func (w *world) kill() (back func()) {
	w.t.Helper()
	pid := w.Gateway.PID()
	if pid == 0 {
		w.t.Fatal("the gateway does not run")
	}
	back = w.Away()
	w.Must(syscall.Kill(pid, syscall.SIGKILL))
	return back
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

// A process is the program at work.
type process struct {
	*programtest.Program
	t *testing.T
}

// run starts the program on the gateway of the world.
func (w *world) run(args ...string) *process {
	w.t.Helper()
	return w.runAt(w.Gateway.URL, args...)
}

// runAt starts it on what answers at that URL, with the keys of the gateway.
func (w *world) runAt(url string, args ...string) *process {
	w.t.Helper()
	return execute(w.t, w.keys(), append([]string{"-endpoint", url}, args...)...)
}

func (w *world) keys() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + w.Gateway.AccessKey, "AWS_SECRET_ACCESS_KEY=" + w.Gateway.SecretKey}
}

// execute starts the program with these variables in its environment, and
// without those of the tester's own account.
func execute(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	if _, err := local.Binary(); err != nil {
		t.Fatal(err) // the program would build it, which is nothing for a test
	}
	return executeIn(t, "", env, args...)
}

// executeIn does so in a folder; "" is that of the test.
func executeIn(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") }),
		append(env, asProgram+"=yes", "AWS_SHARED_CREDENTIALS_FILE="+filepath.Join(t.TempDir(), "none"))...)
	return &process{programtest.Start(t, s3test.Patience, cmd), t}
}

// line waits for lines that begin so, in any order. Spaces count as one.
func (p *process) line(begin ...string) (last string) {
	p.t.Helper()
	missing := slices.Clone(begin)
	p.Until(fmt.Sprintf("lines that begin with %q", begin), func(line string) bool {
		last = strings.Join(strings.Fields(line), " ")
		missing = slices.DeleteFunc(missing, func(begin string) bool { return strings.HasPrefix(last, begin) })
		return len(missing) == 0
	})
	return last
}

// read waits for n lines with that text.
func (p *process) read(n int, text string) {
	p.t.Helper()
	p.Until(fmt.Sprintf("%d lines with %q", n, text), func(line string) bool {
		if strings.Contains(line, text) {
			n--
		}
		return n == 0
	})
}

// interrupt presses Ctrl-C.
func (p *process) interrupt() {
	p.t.Helper()
	p.Signal(os.Interrupt)
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
	set, err := w.Hand.GetBucketTagging(ctx, name)
	switch {
	case err == nil:
		l.Tags = set.ToMap()
	case minio.ToErrorResponse(err).Code != "NoSuchTagSet":
		w.t.Fatalf("%s: %v", name, err)
	}
	versioning, err := w.Hand.GetBucketVersioning(ctx, name)
	w.Must(err)
	l.Versioning = versioning.Status
	policy, err := w.Hand.GetBucketPolicy(ctx, name)
	w.Must(err)
	l.Policy = policy != ""
	for object := range w.Hand.ListObjects(ctx, name, minio.ListObjectsOptions{Recursive: true}) {
		w.Must(object.Err)
		o, err := w.Hand.GetObject(ctx, name, object.Key, minio.GetObjectOptions{})
		w.Must(err)
		text, err := io.ReadAll(o)
		w.Must(err)
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
	if got := w.Buckets(); !slices.Equal(got, names) {
		w.t.Errorf("there are the buckets %q, want %q", got, names)
	}
}

// make makes a bucket by another client, with these tags if there are any.
func (w *world) make(name string, set map[string]string) {
	w.t.Helper()
	w.Must(w.Hand.MakeBucket(w.t.Context(), name, minio.MakeBucketOptions{}))
	if len(set) > 0 {
		w.tag(name, set)
	}
}

func (w *world) tag(name string, set map[string]string) {
	w.t.Helper()
	all, err := tags.NewTags(set, false)
	w.Must(err)
	w.Must(w.Hand.SetBucketTagging(w.t.Context(), name, all))
}

func (w *world) put(name, key, text string) {
	w.t.Helper()
	_, err := w.Hand.PutObject(w.t.Context(), name, key, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{})
	w.Must(err)
}

// path returns where something of a bucket is on disk.
func (w *world) path(name string, more ...string) string {
	return filepath.Join(append([]string{w.Gateway.Buckets, name}, more...)...)
}

func marker(name string) string { return bucket.MarkerPrefix + name }
