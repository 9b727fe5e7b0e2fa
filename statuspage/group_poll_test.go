// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
	"github.com/reconkernel/reconcile/tracker"
)

// TestPoll has polls, ten seconds apart, that succeed and fail in turn.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := &statuspage.Group{}
		page := statuspage.New(group)
		var err error
		poller := reconcile.Poller[string]{GetItems: statuspage.Poll(group, "buckets", func(ctx context.Context) ([]string, error) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err == nil {
				panic("at the disco")
			}
			if err.Error() == "well" {
				return []string{"a"}, nil
			}
			return []string{"b"}, err
		})}
		check := func(want string, shown ...string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if got := members(t, page); got != want {
				t.Errorf("the polls are %s, want %s", got, want)
			}
			text := body(t, get(t, page, "/"), http.StatusOK)
			for _, want := range shown {
				if !strings.Contains(text, want) {
					t.Errorf("the page lacks %s:\n%s", want, text)
				}
			}
		}
		poll := func(ctx context.Context, with string) (items []string, failure any) {
			defer func() {
				if p := recover(); p != nil {
					failure = p
				}
			}()
			if err = errors.New(with); with == "panic" {
				err = nil
			}
			items, e := poller.GetItems(ctx)
			return items, e
		}
		check("buckets: not started, 0")
		poll(t.Context(), "no name")
		check("buckets: failed, 1, 10s, no name, 1 in a row", "<bdi>no name</bdi> (1 in a row, none succeeded)")
		if items, failure := poll(t.Context(), "well"); len(items) != 1 || items[0] != "a" || failure != nil {
			t.Errorf("the poll gives %v, %v", items, failure)
		}
		check("buckets: succeeded, 2, 10s, no name", `<span class="phase succeeded">succeeded</span>`, "buckets failed: no name (it runs again)")
		if items, failure := poll(t.Context(), "no access"); len(items) != 1 || items[0] != "b" || failure != err {
			t.Errorf("the poll gives %v, %v", items, failure)
		}
		check("buckets: failed, 3, 10s, no access, 1 in a row, succeeded 20s ago")
		poll(t.Context(), "")
		check("buckets: failed, 4, 20s, 2 in a row, succeeded 30s ago", `<p class="alert">buckets failed: </p>`)
		if _, failure := poll(t.Context(), "panic"); failure != "at the disco" {
			t.Errorf("the panic comes out as %v", failure)
		}
		check("buckets: failed, 5, 30s, panic or runtime.Goexit; the log says where, 3 in a row, succeeded 40s ago",
			"says where</bdi> (3 in a row, last success 40 s ago)")
		late, cancelLate := context.WithTimeout(t.Context(), -1)
		defer cancelLate()
		poll(late, "well")
		check("buckets: failed, 6, 40s, context deadline exceeded, 4 in a row, succeeded 50s ago")
		poll(t.Context(), "well")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		poll(ended, "well")
		check("buckets: succeeded, 7, 10s, context deadline exceeded")
	})
}

// TestPollOfNil checks that Poll returns nil for nil, so that the Poller reports the
// missing function.
func TestPollOfNil(t *testing.T) {
	group := &statuspage.Group{}
	var none func(context.Context) (map[string]int, error)
	if statuspage.Poll(group, "none", none) != nil {
		t.Error("a list that is missing is there")
	}
	_ = tracker.FromMap(statuspage.Poll(group, "files", func(context.Context) (map[string]int, error) { return nil, nil }))
}
