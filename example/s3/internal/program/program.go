// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package program is the skeleton of the programs in the folders around it: how
// they begin and end, their flags and their log.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main runs a program until it ends by itself, or Ctrl-C ends its context, and
// exits with the code that it returns. A second Ctrl-C ends it at once.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) (code int)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Start starts the work if [Parse] has returned nil, and returns the exit code:
// that of start, or 1 if it returns an error, which is printed; 2 if the flags
// are wrong, 0 for the help.
func Start(parsed error, stderr io.Writer, start func() (code int, err error)) int {
	switch {
	case errors.Is(parsed, flag.ErrHelp):
		return 0
	case parsed != nil:
		return 2
	}
	code, err := start()
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return code
}

// Parse reads the flags and calls check with the names of those that are given.
// If one of them finds an error, or the help is asked for, it prints the usage
// and the flags; what is wrong is the last line, which does not scroll off. It
// returns [flag.ErrHelp] for the help.
func Parse(f *flag.FlagSet, usage string, args []string, check func(given map[string]bool) error, stderr io.Writer) error {
	f.SetOutput(io.Discard) // it would print what is wrong first
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("argument %q is not understood; there are only flags", f.Arg(0))
	}
	if err == nil {
		given := map[string]bool{}
		f.Visit(func(f *flag.Flag) { given[f.Name] = true })
		err = check(given)
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

// A Loop has the settings of a loop that a program has flags for.
type Loop struct {
	Workers int
	Retries int
	Poll    time.Duration
	Recheck time.Duration
}

// Flags adds the flags, with what is there as defaults. Item is a word for what
// the loop is about.
func (l *Loop) Flags(f *flag.FlagSet, item string) {
	f.IntVar(&l.Workers, "workers", l.Workers, "how many "+item+"s are reconciled at once")
	f.IntVar(&l.Retries, "retries", l.Retries, "how often in a row a failed "+item+" is tried again before it is given up")
	f.DurationVar(&l.Poll, "poll", l.Poll, "time between two listings")
	f.DurationVar(&l.Recheck, "recheck", l.Recheck, "time after which "+item+"s in sync are looked at again")
}

// Check says which flag is out of its range.
func (l Loop) Check() error {
	switch {
	case l.Workers < 1:
		return fmt.Errorf("-workers is %d, want 1 or more", l.Workers)
	case l.Retries < 0:
		return fmt.Errorf("-retries is %d, want 0 or more", l.Retries)
	case l.Poll <= 0:
		return fmt.Errorf("-poll is %v, want more than 0", l.Poll)
	case l.Recheck <= 0:
		return fmt.Errorf("-recheck is %v, want more than 0", l.Recheck)
	}
	return nil
}

// Count gives "1 try" and "2 tries".
func Count(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
