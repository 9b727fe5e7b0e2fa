// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/example/s3/local"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-h", 0, "-endpoint URL"},
		{"-colour", 2, "not defined: -colour"},
		{"stray", 2, `argument "stray": there are only flags`},
		{"-plan -watch", 2, "-plan ends by itself, -watch and -http do not; want one of them"},
		{"-endpoint http://x -state y", 2, "-state is for the gateway that is started without -endpoint"},
		{"-endpoint=", 2, "-endpoint is empty, want a URL"},
		{"-region=", 2, "-region is empty, want a name"},
		{"-desired=", 2, "-desired is empty, want a file"},
		{"-owner=a,b", 2, `-owner is "a,b", want 1 to 100 letters`},
		{"-workers 0", 2, "-workers is 0, want 1 or more"},
		{"-retries -1", 2, "-retries is -1, want 0 or more"},
		{"-poll 0s", 2, "-poll is 0s, want 1ms or more"},
		{"-recheck -1s", 2, "-recheck is -1s, want 1ms or more"},
		{"-max-deleted 0", 2, "-max-deleted is 0, want more than 0, and 1 at most"},
		{"-endpoint nowhere", 1, `the endpoint is "nowhere", want a URL as https://s3.eu-central-1.amazonaws.com`},
		{"-endpoint http://127.0.0.1:1/path", 1, "want a URL"},
		{"-endpoint ftp://127.0.0.1", 1, "want a URL"},
	} {
		execute(t, []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}, strings.Fields(test.args)...).wantEnd(test.code, test.want)
	}
}

// Without the gateway, and where its source is not, it says what to run.
func TestGatewayMissing(t *testing.T) {
	t.Parallel()
	p := executeIn(t, t.TempDir(), []string{"XDG_CACHE_HOME=" + t.TempDir(), "HOME=" + t.TempDir()}, "-desired", desiredFile(t, everything))
	p.wantEnd(1, "versitygw "+local.Version+" is not built yet; run example/s3/gateway/build.sh")
}
