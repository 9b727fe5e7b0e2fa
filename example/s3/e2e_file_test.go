// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

// A bucket that left the file is removed if nothing but markers is in it, and if not too many
// did.
func TestLeftTheFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, `
buckets:
  - {name: stays}
  - {name: vacant}
  - {name: marked, versioning: true, markers: {README: "1"}}
  - {name: used}
  - {name: history, versioning: true}
`)
	p := w.run("-desired", file, "-watch", "-poll", "200ms", "-recheck", "50ms", "-max-deleted", "1")
	p.logs("stays in sync", "vacant in sync", "marked in sync", "used in sync", "history in sync")
	w.put("used", "data", "1")
	w.put("history", "data", "1")
	w.must(w.client.RemoveObject(t.Context(), "history", "data", minio.RemoveObjectOptions{})) // a version stays
	w.put("marked", marker("README"), "2")                                                     // and so does one here
	p.logs("marked write marker README")

	rewrite(t, file, "buckets: [{name: stays}]")
	p.logs("vacant remove", "marked remove", "used kept: it is not empty, there is data", "history kept: it is not empty, there is data")
	p.signal(os.Interrupt)
	p.wantEnd(0)
	w.wantBuckets("history", "stays", "used")

	const tooMany = "too many things would be deleted at once: 2, first [history used]"
	w.run("-desired", file, "-plan", "-purge").wantEnd(1, tooMany, "1 buckets desired, 0 to report")
	w.run("-desired", file, "-purge").wantEnd(1, tooMany)
	w.run("-desired", file, "-max-deleted", "1", "-plan").wantEnd(0, "used                     kept: it is not empty, there is data")
	w.run("-desired", file, "-max-deleted", "1", "-plan", "-purge").wantEnd(0, "used                     remove with all that is in it")
	w.wantBuckets("history", "stays", "used")
	w.run("-desired", file, "-max-deleted", "1", "-purge").wantEnd(0, "all desired buckets are in sync buckets=1")
	w.wantBuckets("stays")
}

// snapshot returns all that is on the disk of the gateway, with the times of its
// changes.
func (w *world) snapshot() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	w.must(filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		}
		all[path] = fmt.Sprint(info.ModTime().UnixNano(), " ", text)
		return nil
	}))
	return all
}

func (w *world) wantSnapshot(want map[string]string) {
	w.t.Helper()
	got := w.snapshot()
	for path, now := range got {
		if before, ok := want[path]; !ok || now != before {
			w.t.Errorf("%s has changed from %q to %q", path, before, now)
		}
	}
	for path := range want {
		if _, ok := got[path]; !ok {
			w.t.Errorf("%s is gone", path)
		}
	}
}

func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("-desired", desiredFile(t, everything+"  - name: old\n  - name: drifted\n    tags: {a: b}\n")).wantEnd(0)
	w.must(w.client.SuspendVersioning(t.Context(), "full"))
	w.put("full", marker("README"), "?")
	w.tag("drifted", map[string]string{"reconcile-owner": "example"})
	w.make("theirs", nil)
	before := w.snapshot()
	p := w.run("-plan", "-desired", desiredFile(t, everything+"  - name: new\n    versioning: true\n  - name: drifted\n    tags: {a: b}\n"))
	out := p.wantEnd(0)
	want := `drifted                  set tags a=b
full                     turn versioning on, write marker README
new                      create, turn versioning on
old                      remove
4 buckets desired, 4 to report; nothing was done
`
	if out != want {
		t.Errorf("the plan is\n%s\nwant\n%s", out, want)
	}
	w.wantSnapshot(before)
}

// A file that is edited while the program runs: broken, gone, then good.
func TestFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, everything)
	p := w.run("-desired", file, "-watch", "-poll", "200ms", "-recheck", "50ms")
	p.logs("full in sync", "bare in sync")

	rewrite(t, file, strings.Replace(everything, "tags:", "colour:", 1))
	p.line(file + `:5: unknown field \"colour\"; there are buckets, and in each name, versioning, tags, policy, markers`)
	w.must(w.client.SuspendVersioning(t.Context(), "full")) // the last valid version stays in force
	p.logs("full turn versioning on", "full in sync")
	w.must(os.Remove(file))
	p.line("no such file")
	w.must(w.client.SuspendVersioning(t.Context(), "full"))
	p.logs("full turn versioning on", "full in sync")
	rewrite(t, file, strings.Replace(everything, "team: finance", "team: product", 1))
	p.logs("full set tags keep=10 years team=product")
	p.logs("full in sync")
	p.signal(os.Interrupt)
	if out := p.wantEnd(0); strings.Contains(out, "remove") {
		t.Errorf("a broken file has removed something:\n%s", out)
	}
}

// A change of the file is listed long before the next poll. The page shows the buckets, and
// the deletions that are too many.
func TestPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, "buckets: [{name: one}, {name: two}]")
	p := w.run("-desired", file, "-http", "127.0.0.1:0", "-poll", "1h")
	_, url, _ := strings.Cut(p.line("page is served"), " url=")
	p.logs("one in sync", "two in sync")
	rewrite(t, file, "buckets: [{name: three}]")
	p.line("a new version is in force")
	p.line("listings rejected")
	p.logs("three in sync")
	resp, err := http.Get(strings.Fields(url)[0] + "/status.json")
	w.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	w.must(err)
	for _, want := range []string{`"buckets"`, `"store"`, "too many things would be deleted at once: 2, first [one two]"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	p.signal(os.Interrupt)
	p.wantEnd(0)
	w.wantBuckets("one", "three", "two")
}

func TestBadFileAtTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, "buckets:\n- name: Bad\n- name: bare\n- name: bare\n")
	w.run("-desired", file).wantEnd(1, file+`:2: bucket "Bad": its name is not valid`, file+`:4: bucket "bare": there is one of that name in line 3 already`)
	w.run("-desired", file+".none").wantEnd(1, "no such file")
	w.wantBuckets()
}
