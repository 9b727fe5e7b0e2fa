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
	wishes, out := filepath.Join(dir, "wishes.json"), filepath.Join(dir, "out")
	synctest.Test(t, func(t *testing.T) {
		mkdir(t, out)
		if run(t.Context(), wishes, out) == nil {
			t.Error("run without wishes returned nil, want an error")
		}
		write(t, wishes, `{"hello.txt": "Hello.", "news.txt": "None."}`)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, wishes, out) }()

		after(t, time.Second, out, map[string]string{"hello.txt": "Hello.", "news.txt": "None."})

		// Another hand.
		write(t, filepath.Join(out, "news.txt"), "Fake.")
		remove(t, filepath.Join(out, "hello.txt"))
		write(t, filepath.Join(out, "more.txt"), "More.")
		after(t, 4*time.Second, out, map[string]string{"hello.txt": "Hello.", "news.txt": "None."})

		// Another wish, and a slip on the way: the last good version stays in
		// force, and what another hand does meanwhile is mended.
		write(t, wishes, `{"hello.txt": "Good morn`)
		remove(t, filepath.Join(out, "hello.txt"))
		write(t, filepath.Join(out, "more.txt"), "More.")
		after(t, 4*time.Second, out, map[string]string{"hello.txt": "Hello.", "news.txt": "None."})
		write(t, wishes, "null") // is no wish for an empty folder
		after(t, 4*time.Second, out, map[string]string{"hello.txt": "Hello.", "news.txt": "None."})
		write(t, wishes, `{"hello.txt": "Good morning."}`)
		after(t, time.Minute, out, map[string]string{"hello.txt": "Good morning."})

		// What cannot be done for a while. A folder of that name is in the way.
		mkdir(t, filepath.Join(out, "news.txt"))
		write(t, wishes, `{"news.txt": "Some."}`)
		after(t, 10*time.Second, out, map[string]string{})
		remove(t, filepath.Join(out, "news.txt"))
		after(t, 5*time.Minute, out, map[string]string{"news.txt": "Some."})

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
