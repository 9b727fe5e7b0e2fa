// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
)

// TestApply applies a file, and prints a plan of it, each with its exit code.
func TestApply(t *testing.T) {
	const two = `{"a": {"region": "eu-west"}, "b": {"region": "us-east"}}`
	for _, test := range []struct {
		name, text string
		exist      string // names of buckets at the start
		build      time.Duration
		want       string // what it prints as errors; "" means nothing
		code       int
		plan       string
		planCode   int
		ready      string
	}{
		{"success", two, "", time.Second, "", 0, "+ a\n+ b\n", 2, "a b"},
		{"nothing to do", two, "a b", time.Second, "", 0, "", 0, "a b"},
		{"a deletion", two, "a b c", time.Second, "", 0, "- c\n", 2, "a b"},
		{"an empty file", `{}`, "a b", time.Second, "too many things would be deleted at once: 2, first [a b]", 1, "keep: too many things would be deleted at once: 2, first [a b]\n", 2, "a b"},
		{"refusal", `{"a": {"region": "eu-west"}, "b": {"region": "atlantis"}}`, "", time.Second, `item b: 400: region "atlantis" does not exist`, 1, "+ a\n+ b\n", 2, "a"},
		{"timeout", two, "", time.Hour, "2 of 2 items are left", 1, "+ a\n+ b\n", 2, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "buckets.json")
				if err := os.WriteFile(file, []byte(test.text), 0o600); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				fake := &cloud.Fake{Build: test.build}
				for name := range strings.FieldsSeq(test.exist) {
					if _, err := fake.Create(ctx, cloud.ID{Kind: cloud.Bucket, Name: name}, cloud.Spec{Region: "eu-west"}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Second)
				set, err := newSet(fake, file, joined)
				if err != nil {
					t.Fatal(err)
				}
				var out, problems strings.Builder
				if code := apply(ctx, set, true, &out, &problems); code != test.planCode || out.String() != test.plan || problems.String() != "" {
					t.Errorf("-dry-run ends with %d and prints %q, %q; want %d, %q", code, &out, &problems, test.planCode, test.plan)
				}
				if code := apply(ctx, set, false, &out, &problems); code != test.code || !strings.Contains(problems.String(), test.want) || test.want == "" && problems.String() != "" {
					t.Errorf("apply ends with %d and prints %q; want %d, %q in it", code, &problems, test.code, test.want)
				}
				all, _ := fake.List(t.Context())
				var ready []string
				for _, a := range all {
					if a.State == cloud.Ready {
						ready = append(ready, a.ID.Name)
					}
				}
				if got := strings.Join(ready, " "); got != test.ready {
					t.Errorf("%q are ready, want %q", got, test.ready)
				}
			})
		})
	}
	file := filepath.Join(t.TempDir(), "buckets.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newSet(new(cloud.Fake), file, joined); !strings.Contains(fmt.Sprint(err), "buckets.json: unexpected end of JSON input") {
		t.Errorf("a file that is not valid: %v", err)
	}
}

// Descriptions are joined: 200 buckets, each of which takes a second to be created, are
// described by a fiftieth of the calls that it takes one by one.
func TestCallsAreJoined(t *testing.T) {
	calls := map[int]int{} // by how many are joined
	for _, each := range []int{1, joined} {
		synctest.Test(t, func(t *testing.T) {
			var described atomic.Int64
			fake := &cloud.Fake{Build: time.Second, Refuse: func(op string, _ cloud.ID) error {
				if op == "list" {
					described.Add(1)
				}
				return nil
			}}
			want, names := map[string]cloud.Spec{}, []string{}
			for i := range 200 {
				names = append(names, fmt.Sprint("b", i))
				want[names[i]] = cloud.Spec{Region: "eu-west"}
			}
			b := newBucketClient(fake, each)
			loop := &reconcile.Reconciler[string]{
				Workers:   joined,
				Reconcile: func(ctx context.Context, name string) error { return b.ensure(ctx, name, want[name]) },
			}
			if err := loop.Apply(t.Context(), names...); err != nil {
				t.Error(err)
			}
			calls[each] = int(described.Load())
		})
	}
	t.Logf("calls to describe: %d one by one, %d joined", calls[1], calls[joined])
	if calls[1] < 2000 || calls[joined] > calls[1]/50 {
		t.Errorf("it takes %d calls to describe one by one, and %d joined; want a fiftieth", calls[1], calls[joined])
	}
}
