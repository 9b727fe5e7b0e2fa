// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package program_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/example/internal/program"
	"github.com/reconkernel/reconcile/reconciletest"
)

// use returns a File that keeps in what is in force, and takes no text with "bad".
func use(path string, what *string) *program.File {
	return &program.File{Path: path, Use: func(text []byte) (int, error) {
		if strings.Contains(string(text), "bad") {
			return 0, errors.New(string(text))
		}
		was := strings.Fields(*what)
		*what = string(text)
		return len(strings.Fields(*what)) - len(was), nil
	}}
}

// The file is looked at once a second, and what two looks have found is used.
func TestFile(t *testing.T) {
	const gone = "gone" // no such file
	path := filepath.Join(t.TempDir(), "wishes")
	write := func(text string) {
		t.Helper()
		err := os.WriteFile(path, []byte(text), 0o666)
		if text == gone {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	reconciletest.Run(t, func(t *testing.T, k *reconciletest.Kit[string]) {
		var inForce string
		f := use(path, &inForce)
		f.Told = func(changed int, err error) { k.Note(fmt.Sprintf("%d changes, bad: %v", changed, err != nil)) }
		write("one")
		if err := f.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.Go(f)
		for _, look := range []struct{ text, inForce, told string }{ // Load took the first second, each look takes one
			{"one", "one", ""},
			{" one", "one", ""},
			{" one", " one", ""}, // nothing that counts has changed
			{"one two three", " one", ""},
			{"one two three", "one two three", "6s 2 changes, bad: false"},
			{"one", "one two three", ""}, // half of a file may be a good one
			{"one two three four", "one two three", ""},
			{"one two three four", "one two three four", "9s 1 changes, bad: false"},
			{"bad", "one two three four", ""}, // it is still being written
			{"one two three four", "one two three four", ""},
			{"bad", "one two three four", ""},
			{"bad", "one two three four", "13s 0 changes, bad: true"},
			{"bad", "one two three four", ""},
			{gone, "one two three four", "15s 0 changes, bad: true"},
			{"one two three four", "one two three four", ""},
			{"one two three four", "one two three four", "17s 0 changes, bad: false"},
			{gone, "one two three four", "18s 0 changes, bad: true"},
			{"one two three four", "one two three four", ""},
			{"one two three four", "one two three four", "20s 0 changes, bad: false"},
		} {
			write(look.text)
			k.Advance(time.Second)
			if inForce != look.inForce {
				t.Errorf("with %q in the file, %q is in force, want %q", look.text, inForce, look.inForce)
			}
			if look.told == "" {
				k.Want()
			} else {
				k.Want(look.told)
			}
		}
	})
}

// A file that has just been changed is looked at until it stays as it is; any
// other is used at once.
func TestFileLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wishes")
	synctest.Test(t, func(t *testing.T) {
		write := func(text string, age time.Duration) {
			t.Helper()
			then := time.Now().Add(-age)
			if err := errors.Join(os.WriteFile(path, []byte(text), 0o666), os.Chtimes(path, then, then)); err != nil {
				t.Fatal(err)
			}
		}
		load := func(took time.Duration, want string) {
			t.Helper()
			began, got := time.Now(), ""
			if err := use(path, &got).Load(t.Context()); err != nil || got != want || time.Since(began) != took {
				t.Errorf("Load returns %v after %v with %q, want %v and %q", err, time.Since(began), got, took, want)
			}
		}
		write("whole", time.Second)
		load(0, "whole")
		write("whole", 999*time.Millisecond)
		load(time.Second, "whole")
		write("half", 0)
		time.AfterFunc(500*time.Millisecond, func() { write("whole", 0) })
		load(2*time.Second, "whole")
		write("half", -time.Hour) // by a clock that is ahead
		load(time.Second, "half")

		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		cancel(stopped)
		write("half", 0)
		if err := use(path, new(string)).Load(ctx); !errors.Is(err, stopped) {
			t.Errorf("Load with a context that is done returns %v, want its cause", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := use(path, new(string)).Load(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Load of a file that is not there returns %v", err)
		}
	})
}
