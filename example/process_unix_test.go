// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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

// startCloud starts a cloud on loopback that outlives the program.
func startCloud(t *testing.T, config fakecloud.Config) (url string, server *fakecloud.Server) {
	t.Helper()
	server = fakecloud.New(config)
	url, stop, err := server.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return url, server
}

// Killed again and again as it works, the program finds what it left and goes on.
func TestProcessKill9(t *testing.T) {
	url, server := startCloud(t, fakecloud.Config{Seed: 1, Latency: 10 * time.Millisecond, Build: 200 * time.Millisecond, Faults: 0.05})
	args := []string{"-n", "60", "-cloud", url}
	for _, seen := range []int{0, 1, 10, 20} {
		p := execute(t, "example", append(args, "-watch")...) // so it has not ended before it is killed
		p.Line("cloud at")
		for range seen {
			p.Line("in sync")
		}
		p.Signal(syscall.SIGKILL)
		if code := p.End(); code != -1 {
			t.Fatalf("the killed program has exit code %d", code)
		}
	}
	execute(t, "example", args...).WantEnd(0, "60 of 60 assets in sync")
	wantAssets(t, server, generate(60))
}

func TestProcessInterrupt(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"-build", "1h", "-watch", "-chaos"}, 0, "ending in order"},
		{[]string{"-build", "1h"}, 1, "\ninterrupted\n"},
	} {
		p := execute(t, "example", test.args...)
		p.Line("creating")
		began := time.Now()
		p.Signal(os.Interrupt)
		p.WantEnd(test.code, test.text, "assets in sync after")
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("with %v the end took %v", test.args, took)
		}
	}
}

// Two programs share a cloud that is a third. It is killed, and another one in its
// place has nothing.
func TestProcessOwnCloud(t *testing.T) {
	address := programtest.Address(t)
	url := "http://" + address
	startCloud := func() *programtest.Program {
		c := execute(t, "cloud", "-addr", address, "-build", "50ms", "-faults", "0")
		c.Line(url)
		return c
	}
	wishes := func(name string) string {
		file := wishPath(t)
		wish(t, file, fmt.Sprintf(`{"buckets": [{"name": "%s", "region": "us-east"}, {"name": "shared", "region": "us-east"}]}`, name))
		return file
	}
	c := startCloud()
	first := execute(t, "example", "-cloud", url, "-watch", "-poll", "1s", "-assets", wishes("a"))
	lines(first, "bucket/shared          in sync", "bucket/a               in sync")
	execute(t, "example", "-cloud", url, "-tenant", "you", "-assets", wishes("b")).
		WantEnd(1, `  bucket/shared: 409: the name "shared" is taken by another tenant`)

	c.Signal(syscall.SIGKILL)
	c.End()
	first.Line("connection refused")
	c = startCloud()
	lines(first, "bucket/a               creating", "bucket/shared          creating",
		"bucket/a               in sync", "bucket/shared          in sync")
	first.Signal(os.Interrupt)
	first.WantEnd(0)
	c.Signal(os.Interrupt)
	c.WantEnd(0)
}
