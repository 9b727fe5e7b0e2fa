// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/reconkernel/reconcile"
)

// An unknown desired state does not count as not desired: no request is sent to the store.
func TestUnknownDesiredState(t *testing.T) {
	unknown := errors.New("no answer")
	c := &Controller{Desired: func(context.Context, string) (Spec, bool, error) { return Spec{}, false, unknown }}
	if err := c.Reconcile(t.Context(), "abc"); !errors.Is(err, unknown) {
		t.Errorf("Reconcile returns %v", err)
	}
	if _, err := c.Plan(t.Context(), "abc"); !errors.Is(err, unknown) {
		t.Errorf("Plan returns %v", err)
	}
}

// A name that no bucket can have is forgotten when it is no longer desired,
// and nothing is asked of the store.
func TestImpossibleName(t *testing.T) {
	c := &Controller{Owner: "us", Desired: func(context.Context, string) (Spec, bool, error) { return Spec{}, false, nil }}
	for _, name := range []string{"a", "UPPER", "127.0.0.1"} {
		if err := c.Reconcile(t.Context(), name); err != nil {
			t.Errorf("Reconcile(%q) returns %v", name, err)
		}
	}
}

// Without an owner, all buckets without a tag would be ours.
func TestNoOwner(t *testing.T) {
	c := &Controller{Desired: func(context.Context, string) (Spec, bool, error) { return Spec{}, false, nil }}
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
		{"0", 0, false},
		{"7", 7 * time.Second, true},
		{"99999999999", time.Hour, true},
		{now.Add(time.Minute).Format(http.TimeFormat), time.Minute, true},
		{now.Add(-time.Minute).Format(http.TimeFormat), 0, false},
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
			if plan.Delay != time.Minute || plan.MinDelay != time.Minute {
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
