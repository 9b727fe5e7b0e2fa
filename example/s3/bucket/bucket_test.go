// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reconkernel/reconcile"
)

// Without an owner, all buckets without a tag would be ours. No request is sent: there is no
// Store.
func TestNoOwner(t *testing.T) {
	c := &Controller{}
	_, errList := c.list(t.Context())
	_, errPlan := c.Plan(t.Context(), "abc", Spec{}, true)
	for name, err := range map[string]error{
		"list": errList, "Plan": errPlan, "ensure": c.ensure(t.Context(), "abc", Spec{}), "delete": c.delete(t.Context(), "abc", nil),
	} {
		if !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("%s returns %v, want an error that is final", name, err)
		}
	}
}

// Only buckets that have our tag are listed. A bucket that does not answer may be ours: the
// listing is not complete then.
func TestList(t *testing.T) {
	for _, test := range []struct {
		bucket, tag string
		status      int
		want        string
	}{
		{"abc", "us", 200, "map[abc:map[]] <nil>"},
		{"abc", "them", 200, "map[] <nil>"},
		{"abc", "", 404, "map[] <nil>"},
		{"abc", "", 403, "map[] <nil>"},
		{"a", "us", 200, "map[] <nil>"},
		{"127.0.0.1", "us", 200, "map[] <nil>"},
		{"UPPER", "us", 200, "map[] <nil>"},
		{"abc", "us", 500, "map[] item abc: reading the tags: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := storeOf(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					fmt.Fprintf(w, "<ListAllMyBucketsResult><Buckets><Bucket><Name>%s</Name></Bucket></Buckets></ListAllMyBucketsResult>", test.bucket)
					return
				}
				w.WriteHeader(test.status)
				if test.status == 200 {
					fmt.Fprintf(w, "<Tagging><TagSet><Tag><Key>%s</Key><Value>%s</Value></Tag></TagSet></Tagging>", OwnerTag, test.tag)
				}
			})
			c := &Controller{Store: s, Owner: "us"}
			got, err := c.list(t.Context())
			if text := fmt.Sprint(got, err); !strings.HasPrefix(text, test.want) {
				t.Errorf("%+v: list returns %s", test, text)
			}
		})
	}
}

// A bucket may be another one by the time it is deleted: then it is not ours.
func TestDeleteAsksForTheOwner(t *testing.T) {
	for _, owner := range []string{"them", "us"} {
		deleted := false
		s := storeOf(t, func(w http.ResponseWriter, r *http.Request) {
			deleted = deleted || r.Method == http.MethodDelete
			if r.URL.Query().Has("versions") {
				fmt.Fprint(w, "<ListVersionsResult></ListVersionsResult>")
				return
			}
			fmt.Fprintf(w, "<Tagging><TagSet><Tag><Key>%s</Key><Value>%s</Value></Tag></TagSet></Tagging>", OwnerTag, owner)
		})
		c := &Controller{Store: s, Owner: "us", Purge: true}
		if err := c.delete(t.Context(), "abc", nil); err != nil || deleted != (owner == "us") {
			t.Errorf("a bucket of %s: deleted %v, %v", owner, deleted, err)
		}
	}
}

// Each listing tries to delete a surplus bucket. The object that is in the way is logged once,
// and again after the bucket was desired.
func TestKeptIsLoggedOnce(t *testing.T) {
	object := ""
	s := storeOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("versions") {
			fmt.Fprintf(w, "<ListVersionsResult><Version><Key>%s</Key></Version></ListVersionsResult>", object)
			return
		}
		fmt.Fprintf(w, "<Tagging><TagSet><Tag><Key>%s</Key><Value>us</Value></Tag></TagSet></Tagging>", OwnerTag)
	})
	c := &Controller{Store: s, Owner: "us"}
	var lines strings.Builder
	try := func(run func(ctx context.Context) error) {
		r := reconcile.Reconciler[string]{
			Logger:    slog.New(slog.NewTextHandler(&lines, nil)),
			Reconcile: func(ctx context.Context, _ string) error { return run(ctx) },
			Retry:     func(error, int) (time.Duration, bool) { return 0, false },
		}
		_ = r.Apply(t.Context(), "abc")
	}
	for _, object = range []string{"data", "data", "more"} {
		try(func(ctx context.Context) error { return c.delete(ctx, "abc", nil) })
	}
	try(func(ctx context.Context) error { _ = c.ensure(ctx, "abc", Spec{}); return nil })
	try(func(ctx context.Context) error { return c.delete(ctx, "abc", nil) })
	if got := strings.Count(lines.String(), "kept: it is not empty, there is "); got != 3 {
		t.Errorf("%d lines, want one each for data, more, and more:\n%s", got, &lines)
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
		{"0", 0, false},
		{"7", 7 * time.Second, true},
		{"99999999999", time.Minute, true},
		{now.Add(50 * time.Second).Format(http.TimeFormat), 50 * time.Second, true},
		{now.Add(-time.Minute).Format(http.TimeFormat), 0, false},
		{now.Add(100 * time.Hour).Format(http.TimeFormat), time.Minute, true},
	} {
		if got, ok := retryAfter(test.header, now); got != test.want || ok != test.ok {
			t.Errorf("retryAfter(%q) = %v, %v, want %v, %v", test.header, got, ok, test.want, test.ok)
		}
	}
}

// The gate pauses after five refused reads in a row, and not after one.
func TestPause(t *testing.T) {
	status, after := 0, ""
	s := storeOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(status)
	})
	for i, test := range []struct {
		read   bool
		status int
		after  string
		want   time.Duration
	}{
		{true, 429, "7", 0},
		{true, 503, "7", 0},
		{true, 429, "", 0},
		{true, 429, "7", 0},
		{true, 404, "", 0},
		{true, 429, "7", 0},
		{true, 429, "7", 0},
		{true, 429, "7", 0},
		{true, 429, "7", 0},
		{false, 429, "7", 0},
		{true, 429, "7", 7 * time.Second},
		{true, 503, "", 10 * time.Second},
		{true, 500, "", 0},
		{false, 503, "7", 0},
		{true, 429, "7", 0},
	} {
		status, after = test.status, test.after
		var err error
		if test.read {
			_, _, err = s.owner(t.Context(), "abc")
		} else {
			err = s.setPolicy(t.Context(), "abc", "{}")
		}
		if got := s.Pause(classify(err)); got != test.want {
			t.Errorf("request %d, %+v: the gate pauses for %v, want %v (%v)", i+1, test, got, test.want, err)
		}
	}
}

// storeOf returns a Store that answers as h does.
func storeOf(t *testing.T, h http.HandlerFunc) *Store {
	t.Helper()
	s, err := Open("https://s3.example.org", "us-east-1", credentials.NewStaticV4("key", "secret", ""), handler(h))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type handler http.HandlerFunc

func (h handler) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// What follows each answer of the store.
func TestClassify(t *testing.T) {
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
		err := classify(test.err)
		got := retry
		var plan reconcile.RequeueError
		switch {
		case errors.As(err, &plan):
			got = planned
			if plan.Delay != time.Minute || plan.MinDelay != time.Minute {
				t.Errorf("%v is planned as %+v, want a hold of a minute", test.err, plan)
			}
		case errors.Is(err, reconcile.ErrTerminal):
			got = terminal
		}
		if got != test.want || !errors.Is(err, test.err) && got != planned {
			t.Errorf("%v is classified as %s (%v), want %s", test.err, got, err, test.want)
		}
	}
}
