// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package program_test

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/example/s3/internal/program"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ args, begin, end string }{
		{"", "", ""},
		{"-h", "Usage: x\n  -n N\n", "how many\n"},
		{"-m", "Usage: x\n  -n N\n", "\n\nflag provided but not defined: -m\n"},
		{"-n x", "Usage: x\n  -n N\n", "\n\ninvalid value \"x\" for flag -n: parse error\n"},
		{"x", "Usage: x\n  -n N\n", "\n\nargument \"x\" is not understood; there are only flags\n"},
		{"-n 1", "Usage: x\n  -n N\n", "\n\nnot 1\n"},
	} {
		f := flag.NewFlagSet("x", flag.ContinueOnError)
		n := f.Int("n", 0, "`N`, how many")
		check := func(given map[string]bool) error {
			if given["n"] && *n == 1 {
				return errors.New("not 1")
			}
			return nil
		}
		var out strings.Builder
		err := program.Parse(f, "Usage: x\n", strings.Fields(test.args), check, &out)
		if got := out.String(); !strings.HasPrefix(got, test.begin) || !strings.HasSuffix(got, test.end) || (err == nil) != (got == "") {
			t.Errorf("%q: %v, and it prints\n%s\nwant first\n%sand last %q", test.args, err, got, test.begin, test.end)
		}
		if errors.Is(err, flag.ErrHelp) != (test.args == "-h") {
			t.Errorf("%q: %v", test.args, err)
		}
	}
}
