// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fed_test

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/example/s3/internal/fed"
)

func TestRunFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"", 1, "the program has run"},
		{"-h", 0, "-endpoint URL"},
		{"-colour", 2, "not defined: -colour"},
		{"stray", 2, `argument "stray" is not understood; there are only flags`},
		{"-owner=", 2, "-owner is empty, want a name"},
		{"-poll 0s", 2, "-poll is 0s, want more than 0"},
		{"-recheck -1s", 2, "-recheck is -1s, want more than 0"},
	} {
		var o fed.Options
		var errs strings.Builder
		f := flag.NewFlagSet("test", flag.ContinueOnError)
		o.Flags(f)
		code := o.Run(f, strings.Fields(test.args), &errs, func() error { return errors.New("the program has run") })
		if code != test.code || !strings.Contains(errs.String(), test.want) {
			t.Errorf("with %q the exit code is %d and standard error\n%s\nwant %d and %q", test.args, code, &errs, test.code, test.want)
		}
	}
}

// Without a gateway to start, Open says what is wrong with the endpoint.
func TestOpen(t *testing.T) {
	o := fed.Options{Endpoint: "nowhere"}
	if _, _, err := o.Open(t.Context(), &strings.Builder{}); err == nil || !strings.Contains(err.Error(), `the endpoint is "nowhere", want a URL`) {
		t.Errorf("Open returns %v", err)
	}
}
