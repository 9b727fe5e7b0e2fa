// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package flags reads the flags of a program that has no other arguments.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// Parse reads the flags and calls check. If one of them finds an error, or the
// help is asked for, it prints the usage and the flags; what is wrong is the last
// line, which does not scroll off. It returns [flag.ErrHelp] for the help.
func Parse(f *flag.FlagSet, usage string, args []string, check func() error, stderr io.Writer) error {
	f.SetOutput(io.Discard) // it would print what is wrong first
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("argument %q is not understood; there are only flags", f.Arg(0))
	}
	if err == nil {
		err = check()
	}
	if err == nil {
		return nil
	}
	fmt.Fprint(stderr, usage)
	f.SetOutput(stderr)
	f.PrintDefaults()
	if !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stderr, "\n%v\n", err)
	}
	return err
}
