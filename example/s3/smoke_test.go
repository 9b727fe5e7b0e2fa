// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// everything desires a bucket with all settings, and a bare one.
const everything = `
buckets:
  - name: full
    versioning: true
    tags: {team: finance, keep: "10 years"}
    policy:
      Version: "2012-10-17"
      Statement:
        - {Effect: Allow, Principal: "*", Action: ["s3:GetObject"], Resource: "arn:aws:s3:::full/*"}
    markers: {README: "Ask finance.\n", format: parquet}
  - name: bare
`

var full = contents{
	Tags:       map[string]string{"reconcile-owner": "example", "team": "finance", "keep": "10 years"},
	Versioning: "Enabled",
	Policy:     true,
	Objects:    map[string]string{marker("README"): "Ask finance.\n", marker("format"): "parquet"},
}

var bare = contents{Tags: map[string]string{"reconcile-owner": "example"}}

func TestSmoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, everything)
	w.run("-desired", file).WantEnd(0, "2 of 2 buckets in sync")
	w.wantBuckets("bare", "full")
	w.wantContents("full", full)
	w.wantContents("bare", bare)

	// And from there on there is nothing to do. A bucket is run because it is desired
	// for, and again for each of the two polls that finds it after that.
	out := w.run("-desired", file, "-poll", "1h").WantEnd(0, "2 of 2 buckets in sync")
	if n := reconciles(t, out); n < 2 || n > 6 {
		t.Errorf("the second time there are %d reconciles of 2 buckets, want 1 to 3 of each:\n%s", n, out)
	}
	for _, step := range []string{"create", "set", "turn", "write", "remove"} {
		if strings.Contains(out, step) {
			t.Errorf("the second time there is something to %s:\n%s", step, out)
		}
	}
	w.run("-desired", file, "-plan").WantEnd(0, "2 buckets desired, 0 to report")
}

// reconciles returns how many runs a program says that it has had.
func reconciles(t *testing.T, out string) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^(\d+) reconciles?, `).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("it does not say how many reconciles there were:\n%s", out)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
