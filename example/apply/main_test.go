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

// apply returns when all buckets are ready or refused, or when ctx is done, and says
// which are not ready and why.
func TestApply(t *testing.T) {
	const two = `{"a": {"region": "eu-west"}, "b": {"region": "us-east"}}`
	for _, test := range []struct {
		name, text string
		build      time.Duration
		want       string // "" means success
		ready      int
	}{
		{"success", two, time.Second, "", 2},
		{"refusal", `{"a": {"region": "eu-west"}, "b": {"region": "atlantis"}}`, time.Second, `item b: 400: region "atlantis" does not exist`, 1},
		{"timeout", two, time.Hour, "2 of 2 items are left", 0},
		{"bad file", "{", 0, "buckets.json: unexpected end of JSON input", 0},
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
				err := apply(ctx, fake, file)
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("apply = %v, want %q in it", err, test.want)
				}
				all, _ := fake.List(t.Context())
				ready := 0
				for _, a := range all {
					if a.State == cloud.Ready {
						ready++
					}
				}
				if ready != test.ready {
					t.Errorf("%d buckets are ready, want %d", ready, test.ready)
				}
			})
		})
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
			loop := &reconcile.Reconciler[string]{Reconcile: newBuckets(fake, want, each).reconcile, Workers: joined}
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
