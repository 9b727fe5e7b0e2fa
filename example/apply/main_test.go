// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/example/internal/programtest"
	"github.com/reconkernel/reconcile/explore"
)

// The tests run the program as a process: the test binary, told to be it.
func TestMain(m *testing.M) {
	if os.Getenv("BE_APPLY") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func start(t *testing.T, text string, args ...string) *programtest.Program {
	t.Helper()
	file := filepath.Join(t.TempDir(), "buckets.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], append(args, file)...)
	cmd.Env = append(os.Environ(), "BE_APPLY=1")
	return programtest.Start(t, time.Minute, cmd)
}

// startCloud starts a cloud in which a creation takes that long.
func startCloud(t *testing.T, build time.Duration) (url string) {
	t.Helper()
	url, stop, err := fakecloud.New(fakecloud.Config{Build: build, Seed: 1}).Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return url
}

const two = `{"a": {"region": "eu-west", "size": "small"}, "b": {"region": "us-east", "size": "large"}}`

// It ends well only when all is there, though a creation takes a while.
func TestWorldThatTakesTime(t *testing.T) {
	url := startCloud(t, 300*time.Millisecond)
	start(t, two, "-cloud", url).WantEnd(0)
	c := &cloud.Client{URL: url, Tenant: "apply"}
	for _, name := range []string{"a", "b"} {
		there, err := c.Get(t.Context(), cloud.ID{Kind: cloud.Bucket, Name: name})
		if err != nil || there.State != cloud.Ready {
			t.Errorf("after exit code 0, bucket %s is %q, %v, want %q", name, there.State, err, cloud.Ready)
		}
	}
	start(t, two, "-cloud", url).WantEnd(0) // nothing to do
}

// What cannot be is said, and the rest is there.
func TestWorldThatRefuses(t *testing.T) {
	url := startCloud(t, time.Millisecond)
	p := start(t, `{"a": {"region": "eu-west", "size": "small"}, "b": {"region": "atlantis", "size": "small"}}`, "-cloud", url)
	p.WantEnd(1, "item b: ", "atlantis")
	there, err := (&cloud.Client{URL: url, Tenant: "apply"}).Get(t.Context(), cloud.ID{Kind: cloud.Bucket, Name: "a"})
	if err != nil || there.State != cloud.Ready {
		t.Errorf("bucket a is %q, %v, want %q", there.State, err, cloud.Ready)
	}
}

// silent is a cloud that never answers. It tells when it was asked.
func silent(t *testing.T) (url string, asked <-chan struct{}) {
	t.Helper()
	calls := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return server.URL, calls
}

func TestWorldThatNeverAnswers(t *testing.T) {
	url, _ := silent(t)
	start(t, two, "-cloud", url, "-timeout", "300ms").WantEnd(1, "2 of 2 items are left", "deadline exceeded")
}

func TestSignal(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		url, asked := silent(t)
		p := start(t, two, "-cloud", url)
		<-asked
		p.Signal(signal)
		p.WantEnd(1, "2 of 2 items are left")
	}
}

// What the buckets are asked for is joined: 200 of them, each of which takes a second
// to be made, are described by a fiftieth of the calls that it takes one by one.
func TestCallsAreJoined(t *testing.T) {
	calls := map[int]int{} // by how many are joined
	for _, each := range []int{1, joined} {
		synctest.Test(t, func(t *testing.T) {
			server := fakecloud.New(fakecloud.Config{Build: time.Second, Seed: 1})
			var described atomic.Int64
			client := &cloud.Client{URL: "http://cloud", Tenant: "apply", HTTP: &http.Client{
				Transport: explore.Transport(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						described.Add(1)
					}
					server.Handler().ServeHTTP(w, r)
				})),
			}}
			want, names := map[string]cloud.Spec{}, []string{}
			for i := range 200 {
				names = append(names, fmt.Sprint("b", i))
				want[names[i]] = cloud.Spec{Region: "eu-west", Size: "small"}
			}
			loop := &reconcile.Reconciler[string]{Reconcile: newBuckets(client, want, each).reconcile, Workers: joined}
			if err := loop.Apply(t.Context(), names...); err != nil {
				t.Error(err)
			}
			calls[each] = int(described.Load())
			if there := server.Assets("apply"); len(there) != len(want) {
				t.Errorf("%d buckets are there, want %d", len(there), len(want))
			}
		})
	}
	t.Logf("calls to describe: %d one by one, %d joined", calls[1], calls[joined])
	if calls[1] < 2000 || calls[joined] > calls[1]/50 {
		t.Errorf("it takes %d calls to describe one by one, and %d joined; want a fiftieth", calls[1], calls[joined])
	}
}

func TestFileThatCannotBeRead(t *testing.T) {
	start(t, "{", "-cloud", "http://127.0.0.1:1").WantEnd(1, "buckets.json: ")
	start(t, two, "-cloud", "http://127.0.0.1:1", "-timeout", "1s", "missing").WantEnd(1, "missing: no such file")
}
