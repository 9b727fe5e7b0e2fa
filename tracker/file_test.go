// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package tracker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/tracker"
)

// words is a file of them, of which none may be "bad".
func words(path string) func(context.Context) ([]string, error) {
	return tracker.FromFile(path, func(text []byte) ([]string, error) {
		if strings.Contains(string(text), "bad") {
			return []string{"half"}, errors.New("there is a bad word")
		}
		return strings.Fields(string(text)), nil
	})
}

// put writes a file that is as old as this.
func put(t *testing.T, path, text string, age time.Duration) {
	t.Helper()
	then := time.Now().Add(-age)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o666), os.Chtimes(path, then, then)); err != nil {
		t.Fatal(err)
	}
}

func TestFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "words")
	synctest.Test(t, func(t *testing.T) {
		read := words(path)
		for i, step := range []struct {
			text string
			age  time.Duration
			want string // the words, how long it took and what is wrong
		}{
			{"gone", 0, "[] 0s stat words: no such file or directory"},
			{"bad", time.Hour, "[] 1s there is a bad word"},
			{"one two", time.Hour, "[one two] 1s <nil>"},
			{"one two", 0, "[one two] 0s <nil>"},              // written anew, and the same
			{"one", 999 * time.Millisecond, "[one] 1s <nil>"}, // half of a file may be a good one
			{"one two", -time.Hour, "[one two] 1s <nil>"},     // by a clock that is ahead
			{"bad", 0, "[one two] 1s there is a bad word"},    // the last good version stays
			{"bad", 0, "[one two] 0s there is a bad word"},    // and the error
			{"gone", 0, "[one two] 0s stat words: no such file or directory"},
			{"bad", time.Hour, "[one two] 0s there is a bad word"},
			{"", time.Hour, "[] 1s <nil>"},               // an empty file wants nothing
			{"one two", time.Hour, "[one two] 1s <nil>"}, // however old it says that it is
			{"", 0, "[] 1s <nil>"},
		} {
			if step.text != "gone" {
				put(t, path, step.text, step.age)
			} else if err := os.Remove(path); err != nil && i > 0 {
				t.Fatal(err)
			}
			began := time.Now()
			all, err := read(t.Context())
			if got := strings.ReplaceAll(fmt.Sprint(all, time.Since(began), " ", err), path, "words"); got != step.want {
				t.Errorf("step %d, with %q in the file: %s, want %s", i, step.text, got, step.want)
			}
		}
	})
}

// A file that is being written is not used. A call waits for it no longer than until its
// context ends.
func TestFromFileWaitsWhileTheFileIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "words")
	synctest.Test(t, func(t *testing.T) {
		put(t, path, "old", time.Hour)
		read := words(path)
		if _, err := read(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := range 10 {
				put(t, path, strings.Repeat("new ", i+1), 0)
				time.Sleep(700 * time.Millisecond)
			}
		}()
		time.Sleep(time.Millisecond)
		wantLate := func(limit time.Duration, why string) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got, err := read(ctx)
			if fmt.Sprint(got) != "[old]" || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), why) {
				t.Errorf("the function returned %v, %v; want [old] and that it %s", got, err, why)
			}
		}
		var first sync.WaitGroup
		first.Go(func() { wantLate(2*time.Second, "is still being written") })
		synctest.Wait()
		wantLate(time.Second, "is being read") // by that call
		first.Wait()
		got, err := read(t.Context())
		if len(got) != 10 || err != nil {
			t.Errorf("the function returned %v, %v, want what was written last", got, err)
		}
	})
}

// Only a regular file of a bounded size is read.
func TestFromFileRejectsWhatIsNoFile(t *testing.T) {
	folder := t.TempDir()
	huge := filepath.Join(folder, "huge") // of zeros that are nowhere on the disk
	if err := errors.Join(os.WriteFile(huge, nil, 0o666), os.Truncate(huge, 64<<20+1)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		folder: "it is a directory",
		huge:   "it has more than 67108864 bytes",
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := words(path)(t.Context())
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || time.Since(began) > 0 {
				t.Errorf("%s: after %v %v, want at once an error with the path and %q", path, time.Since(began), err, want)
			}
		})
	}
}

// A file with a version for each item is a listing.
func ExampleFromFile() {
	parse := func(text []byte) (map[string]string, error) {
		sizes := map[string]string{}
		for line := range strings.Lines(string(text)) {
			bucket, size, ok := strings.Cut(strings.TrimSpace(line), " ")
			if !ok {
				return nil, fmt.Errorf("desired.txt: %q: want a bucket and a size", line)
			}
			sizes[bucket] = size
		}
		return sizes, nil
	}
	list := tracker.FromMap(tracker.FromFile("testdata/desired.txt", parse))
	for entry, err := range list(context.Background()) {
		fmt.Println(entry.Item, entry.Version, err)
	}
	// Output:
	// logs small <nil>
	// photos large <nil>
}
