// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile/example/cloud"
)

func key(name string) cloud.ID    { return cloud.ID{Kind: cloud.Key, Name: name} }
func bucket(name string) cloud.ID { return cloud.ID{Kind: cloud.Bucket, Name: name} }

// The file with all assets that the tests desire, if they say nothing else.
var fourteen = func() specs {
	all, err := parse("assets.json", shipped)
	if err != nil {
		panic(err)
	}
	return all
}()

// bad is a cloud in which two of ten calls fail.
func bad() *cloud.Fake {
	return &cloud.Fake{Seed: 1, Latency: 10 * time.Millisecond, Build: 700 * time.Millisecond, Faults: 0.2}
}

// create creates assets in a cloud that never fails, keys first, and waits for them.
func create(t *testing.T, fake *cloud.Fake, all specs) {
	t.Helper()
	for _, kind := range []string{cloud.Key, cloud.Bucket} {
		for id, spec := range all {
			if id.Kind == kind {
				if _, err := fake.Create(t.Context(), id, spec); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(2*fake.Build + time.Second)
	}
}

// wantAssets checks that exactly these assets exist, and are ready.
func wantAssets(t *testing.T, fake *cloud.Fake, want specs) {
	t.Helper()
	all, err := fake.List(t.Context())
	for err != nil {
		all, err = fake.List(t.Context())
	}
	got := specs{}
	for _, a := range all {
		if got[a.ID] = a.Spec; a.State != cloud.Ready {
			t.Errorf("%s is %s, want %s", a.ID, a.State, cloud.Ready)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cloud differs from the file (-want +got):\n%s", diff)
	}
}

// inTime returns a context that ends after an hour.
func inTime(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// watch runs the program with -watch until the test ends, or stop is called.
func watch(t *testing.T, o options, fake *cloud.Fake) (out *strings.Builder, stop func()) {
	t.Helper()
	o.watch = true
	out = new(strings.Builder)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx, o, fake, out); err != nil {
			t.Errorf("run = %v, want nil", err)
		}
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return out, stop
}

// file writes a file of assets, as an editor does that replaces it.
func file(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o666), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// The main job: from nothing, from what a process before left half done, and from what
// others have changed.
func TestFromNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, out := bad(), new(strings.Builder)
		if err := run(inTime(t), options{}, fake, out); err != nil {
			t.Error(err)
		}
		if !strings.Contains(out.String(), "14 of 14 assets in sync") {
			t.Errorf("the output is\n%s", out)
		}
		wantAssets(t, fake, fourteen)
	})
}

func TestFromHalfBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &cloud.Fake{Build: time.Minute}
		create(t, fake, specs{key("finance"): fourteen[key("finance")]})
		if _, err := fake.Create(t.Context(), bucket("ledger"), fourteen[bucket("ledger")]); err != nil {
			t.Fatal(err)
		}
		if err := run(inTime(t), options{}, fake, io.Discard); err != nil {
			t.Error(err)
		}
		wantAssets(t, fake, fourteen)
	})
}

func TestFromDrifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := bad()
		fake.Faults = 0
		drifted := maps.Clone(fourteen)
		drifted[key("finance")] = cloud.Spec{Region: "eu-west", Team: "other"}
		drifted[bucket("invoices")] = cloud.Spec{Region: "eu-west", Size: "small", Key: "research"}
		delete(drifted, bucket("models"))
		// Too much: a key, and a bucket that must be deleted before the key can be.
		drifted[key("old")] = cloud.Spec{Region: "us-east"}
		drifted[bucket("old")] = cloud.Spec{Region: "us-east", Key: "old"}
		// Without faults: a deletion that fails after the work is not shown.
		create(t, fake, drifted)
		out := new(strings.Builder)
		if err := run(inTime(t), options{}, fake, out); err != nil {
			t.Error(err)
		}
		for _, id := range []cloud.ID{key("old"), bucket("old")} {
			if !strings.Contains(out.String(), fmt.Sprintf("%-22s deleted\n", id)) {
				t.Errorf("%s is not shown as deleted:\n%s", id, out)
			}
		}
		wantAssets(t, fake, fourteen)
	})
}

func TestSurplusIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := new(cloud.Fake)
		all := maps.Clone(fourteen)
		all[bucket("old")] = cloud.Spec{Region: "us-east"}
		create(t, fake, all)
		fake.Latency = 8 * time.Second
		if err := run(inTime(t), options{}, fake, io.Discard); err != nil {
			t.Error(err)
		}
		wantAssets(t, fake, fourteen)
	})
}

// What the cloud refuses is not retried, nor is what depends on it; the rest is done.
func TestRefusedAssetsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &cloud.Fake{Build: time.Second}
		moved := cloud.Spec{Region: "us-east"}
		create(t, fake, specs{bucket("moved"): moved})
		path := filepath.Join(t.TempDir(), "assets.json")
		file(t, path, `{
			"key/good": {"region": "us-east"},
			"key/far": {"region": "mars"},
			"bucket/locked": {"region": "us-east", "key": "far"},
			"bucket/moved": {"region": "eu-west"},
			"bucket/fine": {"region": "us-east", "key": "good"}
		}`)
		out := new(strings.Builder)
		err := run(inTime(t), options{assets: path}, fake, out)
		for _, want := range []string{
			`key/far: 400: region "mars" does not exist`,
			`bucket/locked: it depends on key/far, which failed: 400: region "mars" does not exist`,
			`bucket/moved: 422: the region cannot be changed from us-east to eu-west`,
		} {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("the error lacks %q; it is\n%v", want, err)
			}
		}
		if !strings.Contains(out.String(), "2 of 5 assets in sync") {
			t.Errorf("the output is\n%s", out)
		}
		wantAssets(t, fake, specs{key("good"): {Region: "us-east"}, bucket("fine"): {Region: "us-east", Key: "good"}, bucket("moved"): moved})
	})
}

// An asset that was rejected is retried with a listing of the desired state, and so
// are those that depend on it.
func TestRejectedAssetsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Bool
		fake := &cloud.Fake{Build: time.Second, Refuse: func(op string, id cloud.ID) error {
			if op == "create" && id == key("finance") && !open.Load() {
				return &cloud.Error{Code: 403, Message: "forbidden"}
			}
			return nil
		}}
		out, stop := watch(t, options{}, fake)
		time.Sleep(3 * time.Minute) // the key is given up after two at the latest, as its delays are random
		open.Store(true)
		time.Sleep(6 * time.Minute)
		stop()
		if n := strings.Count(out.String(), "it depends on key/finance"); n < 4 {
			t.Errorf("%d times a bucket is shown as rejected with its key, want each of four:\n%s", n, out)
		}
		wantAssets(t, fake, fourteen)
	})
}

// What another client changes is corrected: at once by an event, and if there are none
// by the next listing or recheck, or when there are events again.
func TestDriftIsCorrected(t *testing.T) {
	const always = time.Hour
	down := func(until time.Duration, ops ...string) func(string, cloud.ID) error {
		var begun time.Time // when it was called first, in the bubble
		var once sync.Once
		return func(op string, _ cloud.ID) error {
			once.Do(func() { begun = time.Now() })
			if time.Since(begun) < until && slices.Contains(ops, op) {
				return errors.New(op + ": down")
			}
			return nil
		}
	}
	for _, test := range []struct {
		name    string
		refuse  func(string, cloud.ID) error
		correct time.Duration // after the change
	}{
		{"by an event", nil, 0},
		{"by a listing", down(always, "events"), 33 * time.Second},
		{"by a recheck", down(always, "events", "list"), 60 * time.Second},
		{"after a reconnect", down(70*time.Second, "events"), 10 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &cloud.Fake{Refuse: test.refuse}
				_, stop := watch(t, options{}, fake)
				time.Sleep(68 * time.Second) // all have been ensured, and listed in the last 6 seconds
				another := fourteen[bucket("models")]
				another.Team = "another"
				a, err := fake.Get(t.Context(), bucket("models"))
				if err := errors.Join(err, fake.Update(t.Context(), a.ID, another, a.Version), fake.Delete(t.Context(), bucket("ledger"))); err != nil {
					t.Fatal(err)
				}
				if test.correct > 0 {
					synctest.Wait() // an event would correct it at this instant
					if a, err = fake.Get(t.Context(), a.ID); a.Spec != another {
						t.Errorf("without an event the bucket is %+v, %v", a, err)
					}
				}
				time.Sleep(test.correct)
				synctest.Wait()
				stop()
				fake.Refuse = nil
				wantAssets(t, fake, fourteen)
			})
		})
	}
}

// A bucket that waits for its key is created at the instant at which the key is ready.
func TestDependantsRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards creations
		creations := map[time.Time]bool{}
		fake := &cloud.Fake{Build: 777 * time.Millisecond}
		fake.Refuse = func(op string, id cloud.ID) error {
			if op == "create" && id == bucket("ledger") {
				mu.Lock()
				defer mu.Unlock()
				creations[time.Now()] = true
			}
			return nil
		}
		_, stop := watch(t, options{}, fake)
		for event := range fake.Events(t.Context()) {
			if event == (cloud.Event{Asset: key("finance"), What: "ready"}) {
				break
			}
		}
		ready := time.Now()
		synctest.Wait()
		stop()
		if !creations[ready] {
			t.Errorf("the key is ready at %v, and the creations of the bucket are at %v", ready, creations)
		}
	})
}

// While the cloud is down for an hour, few calls are made, and six minutes after it all
// is in sync.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		var calls atomic.Int64
		fake := &cloud.Fake{Build: time.Second, Refuse: func(string, cloud.ID) error {
			calls.Add(1)
			if down.Load() {
				return &cloud.Error{Code: 503, Message: "unavailable"}
			}
			return nil
		}}
		_, stop := watch(t, options{}, fake)
		time.Sleep(time.Minute)
		if err := errors.Join(fake.Delete(t.Context(), bucket("models")), fake.Delete(t.Context(), bucket("ledger"))); err != nil {
			t.Fatal(err)
		}
		calls.Store(0)
		down.Store(true)
		time.Sleep(time.Hour)
		if n := calls.Load(); n > 1500 { // a run each ten seconds, the listing and the stream of events
			t.Errorf("%d calls in an outage of an hour, want 1,500 at most", n)
		}
		down.Store(false)
		time.Sleep(6 * time.Minute)
		stop()
		wantAssets(t, fake, fourteen)
	})
}

// A cloud that asks to wait is not called for the asset sooner, although an event comes,
// but after a minute at the latest: an answer that is wrong does not stop the asset for a
// year.
func TestRetryAfterIsKept(t *testing.T) {
	for asks, want := range map[time.Duration]time.Duration{7 * time.Second: 7 * time.Second, 365 * 24 * time.Hour: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			fake := &cloud.Fake{}
			create(t, fake, specs{key("k"): {Region: "us-east"}})
			begun := time.Now()
			var got []time.Duration // runs of the key
			asked := true
			fake.Refuse = func(op string, id cloud.ID) error {
				if op == "get" {
					got = append(got, time.Since(begun))
					if asked {
						asked = false
						time.AfterFunc(time.Second, func() { _ = fake.Delete(t.Context(), id) }) // an event
						return &cloud.Error{Code: 429, RetryAfter: asks, Message: "slow down"}
					}
				}
				return nil
			}
			path := filepath.Join(t.TempDir(), "assets.json")
			file(t, path, `{"key/k": {"region": "us-east", "team": "t"}}`)
			time.Sleep(2 * time.Second) // so that the file has settled
			out, stop := watch(t, options{assets: path}, fake)
			time.Sleep(want + 13*time.Second)
			stop()
			if len(got) < 2 || got[1]-got[0] != want {
				t.Errorf("asked to wait for %v, the key is read at %v, want the second time %v after the first", asks, got, want)
			}
			if !strings.Contains(out.String(), "throttled") || strings.Contains(out.String(), "retrying") {
				t.Errorf("the run counts as a failure:\n%s", out)
			}
		})
	}
}

// A file that is not valid deletes nothing, and the last valid version stays in force.
func TestFileChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &cloud.Fake{Build: time.Second}
		path := filepath.Join(t.TempDir(), "assets.json")
		const valid = `{"key/k": {"region": "us-east"}, "bucket/a": {"region": "us-east", "key": "k"}}`
		file(t, path, valid)
		_, stop := watch(t, options{assets: path}, fake)
		two := specs{key("k"): {Region: "us-east"}, bucket("a"): {Region: "us-east", Key: "k"}}
		for _, step := range []struct {
			text string
			want specs
		}{
			{valid, two},
			{valid[:40], two},
			{`{"bucket/a": {"region": "us-east", "key": "k"}}`, two}, // the key is missing
			{`{"key/k": {"region": "us-east", "team": "t"}}`, specs{key("k"): {Region: "us-east", Team: "t"}}},
			{`{}`, specs{key("k"): {Region: "us-east", Team: "t"}}}, // rejected
		} {
			file(t, path, step.text)
			time.Sleep(10 * time.Second)
			if step.text == valid[:40] { // the last valid version counts
				if err := fake.Delete(t.Context(), bucket("a")); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Minute)
			t.Log(step.text)
			wantAssets(t, fake, step.want)
		}
		stop()
	})
}

// What leaves the file is deleted by the next listing, because the file is asked again.
func TestDeletionDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &cloud.Fake{}
		path := filepath.Join(t.TempDir(), "assets.json")
		file(t, path, `{"key/k": {"region": "us-east"}, "key/old": {"region": "us-east"}}`)
		_, stop := watch(t, options{assets: path}, fake)
		time.Sleep(time.Minute)
		file(t, path, `{"key/k": {"region": "us-east"}}`)
		time.Sleep(8 * time.Second) // a Period, its jitter, and a file that settles twice
		stop()
		wantAssets(t, fake, specs{key("k"): {Region: "us-east"}})
	})
}

// After an interrupt, runs that do not end have two seconds.
func TestInterrupt(t *testing.T) {
	for _, watch := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			interrupted := errors.New("interrupted")
			time.AfterFunc(5*time.Second, func() { cancel(interrupted) })
			begun := time.Now()
			hangs := func(op string, _ cloud.ID) error {
				if op == "get" {
					return cloud.ErrHangs
				}
				return nil
			}
			err := run(ctx, options{watch: watch}, &cloud.Fake{Refuse: hangs}, io.Discard)
			if took := time.Since(begun); took != 7*time.Second || errors.Is(err, interrupted) == watch {
				t.Errorf("with -watch=%t run = %v after %v", watch, err, took)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     `assets.json: EOF; want an object`,
		`null`:                                 `assets.json: want one object`,
		`{} {}`:                                `assets.json: want one object`,
		`{"bucket/a": {"colour": "red"}}`:      `unknown field "colour"`,
		`{"disk/a": {}, "bucket/": {}}`:        "asset \"bucket/\": want bucket/NAME or key/NAME\nassets.json: asset \"disk/a\"",
		`{"bucket/a": {"key": "k"}}`:           `asset "bucket/a": key "k" is not in the file`,
		`{"bucket/a": {"region": 5}}`:          `cannot unmarshal number`,
		`{"bucket/a": {"region": "eu-west"}},`: `assets.json: want one object, and nothing after it`,
	} {
		if _, err := parse("assets.json", []byte(text)); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("parse(%s) = %v, want %q in it", text, err, want)
		}
	}
}
