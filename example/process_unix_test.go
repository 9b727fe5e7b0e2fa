// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/example/internal/program"
	"github.com/reconkernel/reconcile/example/internal/programtest"
)

// The tests of this file run the programs as a user does: as processes, on
// files and on loopback.

// be names the program that the test binary is to be.
const be = "RECONCILE_EXAMPLE_BE"

func TestMain(m *testing.M) {
	switch os.Getenv(be) {
	case "example":
		main()
	case "cloud":
		program.Main(fakecloud.Main)
	}
	os.Exit(m.Run())
}

func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), be+"="+name)
	return cmd
}

// patience bounds the wait for anything that a program is to do.
const patience = 90 * time.Second

func execute(t *testing.T, name string, args ...string) *programtest.Program {
	t.Helper()
	return programtest.Start(t, patience, command(name, args...))
}

// lines waits for lines with these texts, in any order: workers are not told to take
// turns.
func lines(p *programtest.Program, texts ...string) {
	p.Until(fmt.Sprintf("the lines %q", texts), func(line string) bool {
		texts = slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(line, text) })
		return len(texts) == 0
	})
}

// stateOf returns what the cloud in a folder holds for the tenant.
func stateOf(t *testing.T, dir string) (all map[cloud.ID]cloud.Asset) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		w.dir = dir
		all = w.there("example")
	})
	return all
}

// Killed again and again as it works, the program finds what it left and goes on.
func TestProcessKill9(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"-n", "60", "-state", dir, "-build", "200ms"}
	for _, seen := range []int{0, 1, 10, 20} {
		p := execute(t, "example", append(args, "-watch")...) // so it has not ended before it is killed
		p.Line("cloud at")
		for range seen {
			p.Line("in sync")
		}
		p.Signal(syscall.SIGKILL)
		if code, _ := p.End(); code != -1 {
			t.Fatalf("the killed program has exit code %d", code)
		}
	}
	execute(t, "example", args...).WantEnd(0, "60 of 60 assets in sync")
	got := stateOf(t, dir)
	for id, spec := range generate(60).specs {
		if a := got[id]; a.State != cloud.Ready || !same(a.Spec, spec) {
			t.Errorf("%s is %+v, want it ready as %+v", id, a, spec)
		}
		delete(got, id)
	}
	if len(got) > 0 {
		t.Errorf("too much is there: %v", got)
	}
}

func TestProcessInterrupt(t *testing.T) {
	// All assets are there but one, which takes an hour: however late the signal comes,
	// there is something left to do.
	dir := filepath.Join(t.TempDir(), "state")
	inWorld(t, func(t *testing.T, w *world) {
		w.dir = dir
		w.arrange("example", func(ctx context.Context, c *cloud.Client) error {
			most := mustParse(t, string(shipped))
			most.order = most.order[:len(most.order)-1]
			return buildAll(ctx, c, most)
		})
	})
	for _, test := range []struct {
		args []string
		wait string
		code int
		text string
	}{
		{[]string{"-watch", "-chaos", "-build", "1h", "-state", dir}, "in sync", 0, "ending in order"},
		{[]string{"-build", "1h"}, "creating", 1, "\ninterrupted\n"},
	} {
		p := execute(t, "example", test.args...)
		p.Line(test.wait)
		began := time.Now()
		p.Signal(os.Interrupt)
		p.WantEnd(test.code, test.text, "assets in sync after")
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("with %v the end took %v", test.args, took)
		}
	}
}

// A file that is edited while the program runs: broken, then good.
func TestProcessFile(t *testing.T) {
	file := wishPath(t)
	wish(t, file, keyAndTwo)
	p := execute(t, "example", "-watch", "-assets", file, "-build", "50ms", "-faults", "0")
	p.Line("bucket/a               in sync")
	wish(t, file, brokenFile)
	p.Error(`wishes.json:3: bucket/a: unknown field "colour"; there are`)
	wish(t, file, keyAndOne)
	lines(p, "is in force, 2 assets changed", "bucket/b               removed")
	p.Signal(os.Interrupt)
	p.WantEnd(0)
}

// Two programs share a cloud that is a third, and outlive its sudden end.
func TestProcessOwnCloud(t *testing.T) {
	dir := t.TempDir()
	address := programtest.Address(t)
	url := "http://" + address
	c := execute(t, "cloud", "-addr", address, "-state", dir, "-build", "50ms", "-faults", "0")
	c.Line(url)
	wishes := func(name string) string {
		file := wishPath(t)
		wish(t, file, fmt.Sprintf(`{"buckets": [{"name": "%s", "region": "us-east"}, {"name": "shared", "region": "us-east"}]}`, name))
		return file
	}
	first := execute(t, "example", "-cloud", url, "-watch", "-poll", "1s", "-assets", wishes("a"))
	lines(first, "bucket/shared          in sync", "bucket/a               in sync")
	execute(t, "example", "-cloud", url, "-tenant", "you", "-assets", wishes("b")).
		WantEnd(1, `  bucket/shared: 409: the name "shared" is taken by another tenant`)

	c.Signal(syscall.SIGKILL)
	c.End()
	first.Error("connection refused")
	c = execute(t, "cloud", "-addr", address, "-state", dir, "-build", "50ms", "-faults", "0")
	c.Line(url)
	other := &cloud.Client{URL: url, Tenant: "example"}
	if err := other.Delete(t.Context(), bucket("a")); err != nil {
		t.Fatal(err)
	}
	first.Line("bucket/a               creating")
	first.Line("bucket/a               in sync")
	first.Signal(os.Interrupt)
	first.WantEnd(0)
	c.Signal(os.Interrupt)
	c.WantEnd(0)
	if got := stateOf(t, dir); len(got) != 2 {
		t.Errorf("in the end there is %v, want a and shared", got)
	}
}

func TestProcessFolderInUse(t *testing.T) {
	dir := t.TempDir()
	_, _, stop, err := fakecloud.Start(fakecloud.Config{Dir: dir}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, "example", "-state", dir).WantEnd(1, "is in use by another program")
	if err := stop(); err != nil {
		t.Error(err)
	}
}
