// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package main

import (
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
	w.run("-desired", file).wantEnd(0, "all desired buckets are in sync buckets=2")
	w.wantBuckets("bare", "full")
	w.wantContents("full", full)
	w.wantContents("bare", bare)

	// From there on there is nothing to do: one run of each bucket finds that.
	out := w.run("-desired", file, "-log", "debug").wantEnd(0, "all desired buckets are in sync buckets=2")
	runs, changes := 0, 0
	for line := range strings.Lines(out) {
		switch {
		case itemOf(line) != "" && strings.Contains(line, " run succeeded "):
			runs++
		case itemOf(line) != "" && strings.Contains(line, " INFO "):
			changes++
		}
	}
	if runs != 2 || changes != 0 {
		t.Errorf("the second time there are %d runs and %d changes, want 2 and 0:\n%s", runs, changes, out)
	}
	w.run("-desired", file, "-plan").wantEnd(0, "2 buckets desired, 0 to report")
}
