// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fakecloud_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

// What was answered is there after a restart, whatever was half written.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c, stop := start(t, fakecloud.Config{Dir: dir, Build: time.Minute})
		create(t, c, key("old"), plain)
		create(t, c, key("gone"), plain)
		if err := c.Delete(t.Context(), key("gone")); err != nil {
			t.Fatal(err)
		}
		op, err := c.Create(t.Context(), bucket("new"), cloud.Spec{Region: "us-west", Key: "old", Size: "large", Labels: map[string]string{"a": "b"}})
		if err != nil {
			t.Fatal(err)
		}
		before, err := c.Get(t.Context(), bucket("new"))
		if err != nil {
			t.Fatal(err)
		}
		stop()
		journal := filepath.Join(dir, "cloud.jsonl")
		data, err := os.ReadFile(journal)
		if err != nil {
			t.Fatal(err)
		}
		torn := append(slices.Clone(data), `{"id": "bucket/torn", "spec": {"reg`...)
		for name, text := range map[string][]byte{"as it was": data, "with half a line": torn} {
			if err := os.WriteFile(journal, text, 0o666); err != nil {
				t.Fatal(err)
			}
			c, stop = start(t, fakecloud.Config{Dir: dir, Build: time.Minute})
			after, err := c.Get(t.Context(), bucket("new"))
			if err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("%s: there is %+v, %v; want %+v", name, after, err, before)
			}
			time.Sleep(2 * time.Minute)
			if o, err := c.Operation(t.Context(), op); err != nil || !o.Done {
				t.Errorf("%s: two minutes later the operation is %+v, %v; want it done", name, o, err)
			}
			for id, want := range map[cloud.ID]int{key("old"): 200, key("gone"): 404, bucket("torn"): 404} {
				_, err := c.Get(t.Context(), id)
				wantStatus(t, name+": get "+id.String(), err, want)
			}
			next, err := c.Create(t.Context(), key("next"), plain)
			if err != nil || next == op {
				t.Errorf("%s: the next operation is %s, %v", name, next, err)
			}
			stop()
		}
	})
}

func TestBadState(t *testing.T) {
	dir := t.TempDir()
	journal := filepath.Join(dir, "cloud.jsonl")
	if err := os.WriteFile(journal, []byte("{}\n{\"id\": 12}\n{}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := fakecloud.Open(fakecloud.Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "cloud.jsonl:2: ") {
		t.Errorf("a bad journal gives %v, want an error with the line", err)
	}
	_, err = fakecloud.Open(fakecloud.Config{Dir: journal})
	if err == nil {
		t.Error("a file for a folder gives no error")
	}
}

// The journal does not grow for ever.
func TestJournalIsRewritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c, _ := start(t, fakecloud.Config{Dir: dir})
		create(t, c, key("k"), plain)
		for range 3000 {
			a, err := c.Get(t.Context(), key("k"))
			if err == nil {
				err = c.Update(t.Context(), key("k"), plain, a.Version)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(filepath.Join(dir, "cloud.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if size := info.Size(); size > 200_000 {
			t.Errorf("after 3000 updates of one key the journal has %d bytes, want fewer than 200000", size)
		}
		if a, err := c.Get(t.Context(), key("k")); err != nil || a.Version < 3000 {
			t.Errorf("in the end there is %+v, %v", a, err)
		}
	})
}

func TestFlagsOfMain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that it ends if it begins to serve
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"-h", 0, "-addr ADDRESS"},
		{"-colour", 2, "not defined: -colour"},
		{"stray", 2, `argument "stray" is not understood`},
		{"-faults 2", 2, "-faults is 2, want 0 to 0.9"},
		{"-addr nowhere:x", 1, "listen tcp"},
		{"-addr 127.0.0.1:0 -state /dev/null", 1, "state of the cloud"},
	} {
		var errs strings.Builder
		if code := fakecloud.Main(ctx, strings.Fields(test.args), io.Discard, &errs); code != test.code || !strings.Contains(errs.String(), test.want) {
			t.Errorf("with %q the exit code is %d and standard error\n%s\nwant %d and %q", test.args, code, &errs, test.code, test.want)
		}
	}
}
