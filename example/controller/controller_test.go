// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
	"github.com/reconkernel/reconcile/example/controller"
)

var small = cloud.Spec{Region: "us-east", Size: "small"}

// TestRefusedWrites checks that only an answer to the request itself is final, and that no
// answer to a write pauses the other assets.
func TestRefusedWrites(t *testing.T) {
	for code, terminal := range map[int]bool{400: true, 401: false, 403: false, 409: false, 422: true, 429: false, 500: false, 503: false} {
		refusal := &cloud.Error{Code: code}
		c := &controller.Controller{Cloud: &cloud.Fake{Refuse: func(op string, _ cloud.ID) error {
			if op != "get" {
				return refusal
			}
			return nil
		}}}
		set := c.Set(reconcile.NewQueue[cloud.ID]())
		for i := range 10 {
			var err error
			if i < 5 {
				err = set.Ensure(t.Context(), bucket("a"), small)
			} else {
				err = set.Delete(t.Context(), bucket("a"), cloud.Asset{})
			}
			if !errors.Is(err, refusal) || errors.Is(err, reconcile.ErrTerminal) != terminal {
				t.Errorf("a write that is answered with %d gives %v, want Terminal: %t", code, err, terminal)
			}
			if pause := c.Pause(err); pause != 0 {
				t.Errorf("a write that is answered with %d asks for a pause of %v", code, pause)
			}
		}
	}
}

// TestRefusedReads checks that the fifth answer in a row that concerns all assets pauses,
// for a minute at most, and that a read that succeeds begins a new row.
func TestRefusedReads(t *testing.T) {
	for _, test := range []struct {
		answer cloud.Error
		want   time.Duration
	}{
		{cloud.Error{Code: 401}, time.Minute},
		{cloud.Error{Code: 403}, time.Minute},
		{cloud.Error{Code: 422}, 0},
		{cloud.Error{Code: 429}, 10 * time.Second},
		{cloud.Error{Code: 429, RetryAfter: 7 * time.Second}, 7 * time.Second},
		{cloud.Error{Code: 500}, 0},
		{cloud.Error{Code: 503}, 10 * time.Second},
		{cloud.Error{Code: 503, RetryAfter: 24 * time.Hour}, time.Minute},
	} {
		for _, op := range []string{"get", "list"} {
			synctest.Test(t, func(t *testing.T) {
				refused := true
				c := &controller.Controller{Cloud: &cloud.Fake{Refuse: func(o string, _ cloud.ID) error {
					if o == op && refused {
						return &test.answer
					}
					return nil
				}}}
				set := c.Set(reconcile.NewQueue[cloud.ID]())
				read := func() {
					if op == "get" {
						_ = set.Ensure(t.Context(), bucket("a"), small) // refused, or created
					} else {
						_, _ = set.Actual(t.Context())
					}
				}
				for i := 1; i <= 12; i++ {
					refused = i != 6
					read()
					want := time.Duration(0)
					if i == 5 || i >= 11 {
						want = test.want
					}
					if got := c.Pause(&test.answer); got != want {
						t.Errorf("%d, %s %d of 12: the pause is %v, want %v", test.answer.Code, op, i, got, want)
					}
				}
			})
		}
	}
}

// TestRefusedPages checks that a page that fails four times does not make the listing
// fail, that one that fails longer does so within a Period of five seconds, and that the
// first page is left to the Set.
func TestRefusedPages(t *testing.T) {
	for _, test := range []struct {
		from, to int // the calls that are refused
		calls    int
		took     time.Duration
		complete bool
	}{
		{1, 1, 1, 0, false},
		{2, 5, 7, 4 * time.Second, true},
		{2, 99, 6, 4 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			fake := &cloud.Fake{PageSize: 1}
			for _, name := range []string{"a", "b", "c"} {
				if _, err := fake.Create(t.Context(), bucket(name), small); err != nil {
					t.Fatal(err)
				}
			}
			fake.Refuse = func(string, cloud.ID) error {
				calls++
				if test.from <= calls && calls <= test.to {
					return &cloud.Error{Code: 500}
				}
				return nil
			}
			c := &controller.Controller{Cloud: fake}
			began := time.Now()
			all, err := c.Set(reconcile.NewQueue[cloud.ID]()).Actual(t.Context())
			if complete := err == nil && len(all) == 3; complete != test.complete || err != nil && all != nil {
				t.Errorf("calls %d to %d are refused, and Actual returned %v, %v", test.from, test.to, all, err)
			}
			if took := time.Since(began); calls != test.calls || took != test.took {
				t.Errorf("calls %d to %d are refused, and it took %d calls and %v, want %d and %v", test.from, test.to, calls, took, test.calls, test.took)
			}
		})
	}
}
