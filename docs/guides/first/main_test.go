// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestFirst does what the guide does, and looks after each step.
func TestFirst(t *testing.T) {
	dir := t.TempDir()
	desired, out := filepath.Join(dir, "desired.json"), filepath.Join(dir, "out")
	synctest.Test(t, func(t *testing.T) {
		mkdir(t, out)
		write(t, filepath.Join(out, "more.txt"), "More.")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, desired, out) }()
		both := map[string]string{"hello.txt": "Hello.", "news.txt": "None."}
		all := map[string]string{"hello.txt": "Hello.", "news.txt": "None.", "more.txt": "More."}
		after(t, time.Minute, out, map[string]string{"more.txt": "More."}) // there is no file yet
		write(t, desired, `{"hello.txt": "Hello.", "news.txt": "None."}`)
		after(t, 5*time.Second, out, all)
		after(t, 15*time.Second, out, both)

		// Another client.
		write(t, filepath.Join(out, "news.txt"), "Fake.")
		remove(t, filepath.Join(out, "hello.txt"))
		write(t, filepath.Join(out, "more.txt"), "More.")
		after(t, 4*time.Second, out, all)
		after(t, 10*time.Second, out, both)

		// A mistake in the file: the last valid version counts, and drift is corrected.
		for _, text := range []string{`{"hello.txt": "Good morn`, "null"} {
			write(t, desired, text)
			remove(t, filepath.Join(out, "hello.txt"))
			after(t, time.Minute, out, both)
		}

		// Everything would be deleted: nothing is.
		write(t, desired, "{}")
		after(t, time.Hour, out, both)
		write(t, desired, `{"hello.txt": "Good morning."}`)
		after(t, time.Minute, out, map[string]string{"hello.txt": "Good morning."})

		// What cannot be done for a while: a folder has the name of a file.
		mkdir(t, filepath.Join(out, "news.txt"))
		write(t, desired, `{"hello.txt": "Good morning.", "news.txt": "Some."}`)
		after(t, time.Minute, out, map[string]string{"hello.txt": "Good morning."})
		remove(t, filepath.Join(out, "news.txt"))
		after(t, 5*time.Minute, out, map[string]string{"hello.txt": "Good morning.", "news.txt": "Some."})

		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// after lets d pass and compares the files of a folder.
func after(t *testing.T, d time.Duration, dir string, want map[string]string) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, e := range entries {
		if e.Type().IsRegular() {
			data, err := fs.ReadFile(os.DirFS(dir), e.Name())
			if err != nil {
				t.Fatal(err)
			}
			got[e.Name()] = string(data)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
}

// write makes a file that nobody is writing any more: it is a second old.
func write(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o644))
	then := time.Now().Add(-time.Second)
	check(t, os.Chtimes(path, then, then))
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	check(t, os.Mkdir(path, 0o755))
}

func remove(t *testing.T, path string) {
	t.Helper()
	check(t, os.Remove(path))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
