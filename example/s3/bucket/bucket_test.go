// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/reconciletest"
)

func TestWishes(t *testing.T) {
	var w Wishes
	set := func(all map[string]Wish, want ...string) {
		t.Helper()
		if got := w.Set(all); !slices.Equal(got, want) {
			t.Errorf("Set(%v) says that %q changed, want %q", all, got, want)
		}
	}
	set(map[string]Wish{"a": {}, "b": {Versioning: true}}, "a", "b")
	set(map[string]Wish{"a": {}, "b": {Versioning: true}})
	set(map[string]Wish{"a": {Tags: map[string]string{"x": "y"}}, "c": {}}, "a", "b", "c")
	if names, err := w.Names(t.Context()); err != nil || !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("there are the names %q, %v, want a and c", names, err)
	}
	if wish, ok, err := w.Get(t.Context(), "a"); !ok || err != nil || wish.Tags["x"] != "y" {
		t.Errorf("the wish for a is %v, %v, %v", wish, ok, err)
	}
	if _, ok, _ := w.Get(t.Context(), "b"); ok {
		t.Error("there is a wish for b, which has left")
	}
}

// What is not known is not taken for not wished: nothing is asked of the store.
func TestWishUnknown(t *testing.T) {
	unknown := errors.New("no answer")
	c := &Controller{Wish: func(context.Context, string) (Wish, bool, error) { return Wish{}, false, unknown }}
	if err := c.Reconcile(t.Context(), "abc"); !errors.Is(err, unknown) {
		t.Errorf("Reconcile returns %v", err)
	}
	if _, err := c.Plan(t.Context(), "abc"); !errors.Is(err, unknown) {
		t.Errorf("Plan returns %v", err)
	}
}

// A name that no bucket can have is forgotten when nobody wishes for it any more,
// and nothing is asked of the store.
func TestImpossibleName(t *testing.T) {
	c := &Controller{Owner: "us", Wish: func(context.Context, string) (Wish, bool, error) { return Wish{}, false, nil }}
	for _, name := range []string{"a", "UPPER", "127.0.0.1"} {
		if err := c.Reconcile(t.Context(), name); err != nil {
			t.Errorf("Reconcile(%q) returns %v", name, err)
		}
	}
}

// Without an owner, all buckets without a tag would be ours.
func TestNoOwner(t *testing.T) {
	c := &Controller{Wish: func(context.Context, string) (Wish, bool, error) { return Wish{}, false, nil }}
	if err := c.Reconcile(t.Context(), "abc"); !errors.Is(err, reconcile.ErrTerminal) {
		t.Errorf("Reconcile returns %v, want an error that is final", err)
	}
	if _, err := c.Plan(t.Context(), "abc"); !errors.Is(err, reconcile.ErrTerminal) {
		t.Errorf("Plan returns %v, want an error that is final", err)
	}
}

func TestSamePolicy(t *testing.T) {
	const policy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["b","a"],"Resource":"r"}]}`
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"", "", true},
		{"", policy, false},
		{policy, "", false},
		{policy, policy, true},
		{policy, `{"Statement": {"Action":["a","b"],"Effect":"Allow","Principal":{"AWS":["*"]},"Resource":["r"]}, "Version":"2012-10-17"}`, true},
		{policy, `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":["b","a"],"Resource":"r"}]}`, false},
		{policy, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"me"},"Action":["b","a"],"Resource":"r"}]}`, false},
		{policy, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["b","a","c"],"Resource":"r"}]}`, false},
		{policy, `no JSON`, false},
		{`{"Statement":[{"Sid":"1"},{"Sid":"2"}]}`, `{"Statement":[{"Sid":"2"},{"Sid":"1"}]}`, false},
	} {
		if got := samePolicy(test.a, test.b); got != test.want {
			t.Errorf("samePolicy(%s, %s) = %v, want %v", test.a, test.b, got, test.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		header string
		want   time.Duration
		ok     bool
	}{
		{"", 0, false},
		{"soon", 0, false},
		{"-1", 0, false},
		{"0", 0, true},
		{"7", 7 * time.Second, true},
		{"99999999999", time.Hour, true},
		{now.Add(time.Minute).Format(http.TimeFormat), time.Minute, true},
		{now.Add(-time.Minute).Format(http.TimeFormat), 0, true},
		{now.Add(100 * time.Hour).Format(http.TimeFormat), time.Hour, true},
	} {
		if got, ok := retryAfter(test.header, now); got != test.want || ok != test.ok {
			t.Errorf("retryAfter(%q) = %v, %v, want %v, %v", test.header, got, ok, test.want, test.ok)
		}
	}
}

// What follows each answer of the store.
func TestVerdict(t *testing.T) {
	answer := func(status int, code string) error {
		return fmt.Errorf("reading the tags: %w", minio.ErrorResponse{StatusCode: status, Code: code})
	}
	const retry, terminal, planned = "retry", "terminal", "planned"
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("no connection"), retry},
		{&Throttled{After: time.Minute}, planned},
		{answer(500, "InternalError"), retry},
		{answer(503, "SlowDown"), retry},
		{answer(400, "InvalidTag"), terminal},
		{answer(400, "RequestTimeout"), retry},
		{answer(400, "ExpiredToken"), retry},
		{answer(403, "AccessDenied"), terminal},
		{answer(403, "SignatureDoesNotMatch"), retry},
		{answer(404, "NoSuchBucket"), retry},
		{answer(405, "MethodNotAllowed"), terminal},
		{answer(409, "BucketAlreadyExists"), terminal},
		{answer(409, "BucketAlreadyOwnedByYou"), retry},
		{answer(409, "BucketNotEmpty"), retry},
		{answer(409, "OperationAborted"), retry},
		{answer(412, "PreconditionFailed"), retry},
		{answer(501, "NotImplemented"), terminal},
	} {
		err := verdict(test.err)
		got := retry
		var plan reconcile.RequeueError
		switch {
		case errors.As(err, &plan):
			got = planned
			if plan.Delay != time.Minute || !plan.Hold {
				t.Errorf("%v is planned as %+v, want a hold of a minute", test.err, plan)
			}
		case errors.Is(err, reconcile.ErrTerminal):
			got = terminal
		}
		if got != test.want || !errors.Is(err, test.err) && got != planned {
			t.Errorf("the verdict on %v is %s (%v), want %s", test.err, got, err, test.want)
		}
	}
}

// The file is looked at once a second, what two looks have found is used, and
// only what changes is enqueued.
func TestFileFeed(t *testing.T) {
	const gone = "gone" // no such file
	path := filepath.Join(t.TempDir(), "wishes.yaml")
	write := func(text string) {
		t.Helper()
		err := os.WriteFile(path, []byte(text), 0o666)
		if text == gone {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	reconciletest.Run(t, func(t *testing.T, k *reconciletest.Kit[string]) {
		wishes := &Wishes{}
		f := &File{Path: path, Wishes: wishes, Told: func(changed int, err error) {
			k.Note(fmt.Sprintf("told, changes: %d, bad: %v", changed, err != nil))
		}}
		const start = "buckets: [{name: one}, {name: two}]"
		write(start)
		if changed, err := f.Load(t.Context()); err != nil || !slices.Equal(changed, []string{"one", "two"}) {
			t.Fatalf("Load returns %q, %v", changed, err)
		}
		noted := reconcile.Filter(k.Queue, func(name string) bool {
			k.Note("enqueue " + name)
			return false
		})
		k.Go(reconcile.Feed(noted, f.Feed))
		look := func(text string, want ...string) { // Load took the first second, each look takes one
			t.Helper()
			write(text)
			k.Advance(time.Second)
			k.Want(want...)
		}
		look(start)
		look("buckets: [{name: two}, {name: one}] # the same")
		look("buckets: [{name: two}, {name: one}] # the same")
		const versioning = "buckets: [{name: one, versioning: true}, {name: two}]"
		look(versioning)
		look(versioning, "6s enqueue one", "6s told, changes: 1, bad: false")
		look(versioning)
		// Half of a file may be a good one.
		look("buckets:\n- {name: one, versioning: true}\n")
		look("buckets:\n- {name: one, versioning: true}\n- {name: two}\n")
		const four = "buckets:\n- {name: one, versioning: true}\n- {name: two}\n- {name: four}\n"
		look(four)
		look(four, "11s enqueue four", "11s told, changes: 1, bad: false")
		// And it may be a bad one, or none at all.
		look("buckets: [{name: ")
		look(versioning)
		look(versioning, "14s enqueue four", "14s told, changes: 1, bad: false")
		look("buckets: [{name: ")
		look("buckets: [{name: ", "16s told, changes: 0, bad: true")
		look("buckets: [{name: ")
		look("buckets: [{name: ONE}]")
		look("buckets: [{name: ONE}]", "19s told, changes: 0, bad: true")
		look("")
		look("", "21s told, changes: 0, bad: true")
		look(gone, "22s told, changes: 0, bad: true")
		look("")
		look("", "24s told, changes: 0, bad: true")
		look(versioning)
		look(versioning, "26s told, changes: 0, bad: false")
		look("buckets: [{name: two}, {name: three-3}]")
		look("buckets: [{name: two}, {name: three-3}]", "28s enqueue one", "28s enqueue three-3", "28s told, changes: 2, bad: false")
		if names, _ := wishes.Names(t.Context()); !slices.Equal(names, []string{"three-3", "two"}) {
			t.Errorf("in the end there are wishes for %q", names)
		}
	})
}

// A file that has just been changed is looked at until it stays as it is; any
// other is used at once.
func TestFileLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wishes.yaml")
	synctest.Test(t, func(t *testing.T) {
		write := func(text string, age time.Duration) {
			t.Helper()
			then := time.Now().Add(-age)
			if err := errors.Join(os.WriteFile(path, []byte(text), 0o666), os.Chtimes(path, then, then)); err != nil {
				t.Fatal(err)
			}
		}
		load := func(took time.Duration, want ...string) {
			t.Helper()
			wishes, began := &Wishes{}, time.Now()
			f := &File{Path: path, Wishes: wishes}
			if _, err := f.Load(t.Context()); err != nil {
				t.Error(err)
			}
			if got := time.Since(began); got != took {
				t.Errorf("Load returns after %v, want %v", got, took)
			}
			if names, _ := wishes.Names(t.Context()); !slices.Equal(names, want) {
				t.Errorf("there are wishes for %q, want %q", names, want)
			}
		}
		const half, whole = "buckets:\n- name: one\n", "buckets:\n- name: one\n- name: two\n"
		write(whole, time.Second)
		load(0, "one", "two")
		write(whole, 999*time.Millisecond)
		load(time.Second, "one", "two")
		write(half, 0)
		time.AfterFunc(500*time.Millisecond, func() { write(whole, 0) })
		load(2*time.Second, "one", "two")
		write(half, -time.Hour) // by a clock that is ahead
		load(time.Second, "one")

		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		cancel(stopped)
		write(half, 0)
		if _, err := (&File{Path: path, Wishes: &Wishes{}}).Load(ctx); !errors.Is(err, stopped) {
			t.Errorf("Load with a context that is done returns %v, want its cause", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := (&File{Path: path, Wishes: &Wishes{}}).Load(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Load of a file that is not there returns %v", err)
		}
	})
}
