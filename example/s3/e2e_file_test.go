// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

// What left the file is removed if nothing but markers is in it.
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
	p := w.run("-desired", file, "-watch", "-poll", "200ms", "-recheck", "50ms")
	p.line("stays in sync", "vacant in sync", "marked in sync", "used in sync", "history in sync")
	w.put("used", "data", "1")
	w.put("history", "data", "1")
	w.Must(w.Hand.RemoveObject(t.Context(), "history", "data", minio.RemoveObjectOptions{})) // a version stays
	w.put("marked", marker("README"), "2")                                                   // and so does one here
	p.line("marked write marker README")

	rewrite(t, file, "buckets: [{name: stays}]")
	p.line("vacant remove", "marked remove", "used kept", "history kept")
	p.interrupt()
	p.WantEnd(0, "1 of 1 bucket in sync")
	w.wantBuckets("history", "stays", "used")

	w.run("-desired", file, "-plan").WantEnd(0, "used                     nothing: kept: it is not empty, there is data")
	w.run("-desired", file, "-plan", "-purge").WantEnd(0, "used                     remove with all that is in it")
	w.wantBuckets("history", "stays", "used")
	w.run("-desired", file, "-purge").WantEnd(0, "1 of 1 bucket in sync")
	w.wantBuckets("stays")
}

// snapshot returns all that is on the disk of the gateway, with the times of its
// changes.
func (w *world) snapshot() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	w.Must(filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
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
	w.run("-desired", desiredFile(t, everything+"  - name: old\n  - name: drifted\n    tags: {a: b}\n")).WantEnd(0)
	w.Must(w.Hand.SuspendVersioning(t.Context(), "full"))
	w.put("full", marker("README"), "?")
	w.tag("drifted", map[string]string{"reconcile-owner": "example"})
	w.make("theirs", nil)
	before := w.snapshot()
	p := w.run("-plan", "-desired", desiredFile(t, everything+"  - name: new\n    versioning: true\n  - name: drifted\n    tags: {a: b}\n"))
	out := p.WantEnd(0)
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
	p := w.run("-desired", file, "-watch")
	p.line("full in sync", "bare in sync")

	rewrite(t, file, strings.Replace(everything, "tags:", "colour:", 1))
	p.Line("is not used, the last good version stays in force")
	p.Line(file + `:5: unknown field "colour"; there are buckets, and in each name, versioning, tags, policy, markers`)
	w.Must(os.Remove(file))
	p.Line("no such file")
	rewrite(t, file, strings.Replace(everything, "team: finance", "team: product", 1))
	// The bucket is at work before it is said that the file is in force.
	p.line(file+" is in force, 1 bucket changed", "full set tags keep=10 years team=product", "full in sync")
	p.interrupt()
	if out := p.WantEnd(0, "2 of 2 buckets in sync"); strings.Contains(out, "remove") {
		t.Errorf("a broken file has removed something:\n%s", out)
	}
}

func TestBadFileAtTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := desiredFile(t, "buckets:\n- name: Bad\n- name: bare\n- name: bare\n")
	w.run("-desired", file).WantEnd(1, file+`:2: bucket "Bad": its name is not valid`, file+`:4: bucket "bare": there is one of that name in line 3 already`)
	w.run("-desired", file+".none").WantEnd(1, "no such file")
	w.wantBuckets()
}
