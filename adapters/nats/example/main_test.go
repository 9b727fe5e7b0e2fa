// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

const within = time.Minute

// A world is a controller at work, and what it works on.
type world struct {
	t      *testing.T
	s      *natstest.Server
	c      *controller
	synced chan string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := natstest.New(t)
	w := &world{t: t, s: s, synced: make(chan string, 1000)}
	c, err := newController(t.Context(), s.JetStream(t), t.TempDir(), 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	c.synced = func(site string) { w.synced <- site }
	w.c = c
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// until waits until ok, asking after each run that left a site in sync.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.After(within)
	for !ok() {
		select {
		case <-w.synced:
		case <-deadline:
			w.t.Fatalf("not in time: %s", what)
		}
	}
}

func (w *world) page(name string) string {
	text, err := os.ReadFile(w.c.page(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return string(text)
}

func (w *world) route(host string) string {
	e, err := w.c.table.Get(w.t.Context(), host)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return ""
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return string(e.Value())
}

// put writes, and tries again while the server comes up.
func (w *world) put(kv jetstream.KeyValue, key, value string) {
	w.t.Helper()
	deadline := time.After(within)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := kv.PutString(w.t.Context(), key, value)
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			w.t.Fatal(err)
		}
	}
}

func (w *world) want(name string, want site) {
	w.t.Helper()
	value, err := json.Marshal(want)
	if err != nil {
		w.t.Fatal(err)
	}
	w.put(w.c.sites, name, string(value))
}

// TestController changes what is wanted, what is looked at, what was made and
// what is outside, one after the other, and kills the server between.
func TestController(t *testing.T) {
	w := newWorld(t)
	w.want("a", site{Theme: "plain", Hosts: []string{"a.example", "b.example"}, Text: "1"})
	w.put(w.c.themes, "plain", "<%s>") // after the site: it runs again
	w.until("a new site", func() bool {
		return w.page("a") == "<1>" && w.route("a.example") == "a" && w.route("b.example") == "a"
	})
	w.put(w.c.themes, "plain", "[%s]")
	w.until("a new theme", func() bool { return w.page("a") == "[1]" })

	if err := os.Remove(w.c.page("a")); err != nil {
		t.Fatal(err)
	}
	w.until("a page that was removed", func() bool { return w.page("a") == "[1]" })
	if err := os.WriteFile(w.c.page("a"), []byte("spoilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.until("a page that was spoilt", func() bool { return w.page("a") == "[1]" })
	if err := w.c.table.Delete(t.Context(), "a.example"); err != nil {
		t.Fatal(err)
	}
	w.until("a route that was deleted", func() bool { return w.route("a.example") == "a" })
	if _, err := w.c.routes.Put(t.Context(), "b.example", []byte("spoilt"), "a"); err != nil {
		t.Fatal(err)
	}
	w.until("a route that was spoilt", func() bool { return w.route("b.example") == "a" })

	w.s.Kill()
	w.s.Start()
	w.want("a", site{Theme: "plain", Hosts: []string{"b.example", "c.example"}, Text: "2"})
	w.until("a change after the server was killed", func() bool {
		return w.page("a") == "[2]" && w.route("a.example") == "" && w.route("b.example") == "a" && w.route("c.example") == "a"
	})

	// Garbage: a route of a site that never was.
	if _, err := w.c.routes.Put(t.Context(), "gone.example", []byte("gone"), "gone"); err != nil {
		t.Fatal(err)
	}
	w.until("a route without a site", func() bool { return w.route("gone.example") == "" })

	// A host that another site has stays where it is.
	w.want("thief", site{Theme: "plain", Hosts: []string{"c.example"}, Text: "3"})
	if err := w.c.reconcile(t.Context(), "thief"); !errors.Is(err, reconcile.ErrTerminal) || !errors.Is(err, natsadapter.ErrOwned) {
		t.Errorf("a site that wants the host of another: %v", err)
	}
	if err := w.c.sites.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.until("a site that was deleted", func() bool {
		return w.page("a") == "" && w.route("b.example") == "" && w.route("c.example") != "a"
	})
}

func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// TestProgram runs two processes of the program on one server. When the first
// one is stopped, the other one takes over.
func TestProgram(t *testing.T) {
	program := build(t)
	s := natstest.New(t)
	js := s.JetStream(t)
	dir := t.TempDir()
	first := startProgram(t, program, "-nats", s.URL(), "-dir", dir)
	first.line(regexp.MustCompile(`^NATS is at (\S+), pages are in (\S+)$`))
	put := func(bucket, key, value string) {
		t.Helper()
		kv, err := js.KeyValue(t.Context(), bucket)
		if err == nil {
			_, err = kv.PutString(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("themes", "plain", "<%s>")
	put("sites", "a", `{"theme":"plain","text":"1"}`)
	first.line(regexp.MustCompile(`^in sync: a$`))

	second := startProgram(t, program, "-nats", s.URL(), "-dir", dir)
	second.line(regexp.MustCompile(`^NATS is at`))
	put("sites", "b", `{"theme":"plain","text":"2"}`)
	first.line(regexp.MustCompile(`^in sync: b$`))
	if text, err := os.ReadFile(filepath.Join(dir, "b.html")); err != nil || string(text) != "<2>" {
		t.Errorf("the page is %q, %v", text, err)
	}
	if n := len(second.lines); n > 0 {
		t.Errorf("the second process works while the first one leads: %q", <-second.lines)
	}
	first.stop()
	second.line(regexp.MustCompile(`^in sync: b$`))
	second.stop()
}

// TestProgramAlone runs the program with a server of its own.
func TestProgramAlone(t *testing.T) {
	p := startProgram(t, build(t))
	place := p.line(regexp.MustCompile(`^NATS is at (\S+), pages are in (\S+)$`))
	p.line(regexp.MustCompile(`^in sync: hello$`))
	if text, err := os.ReadFile(filepath.Join(place[2], "hello.html")); err != nil || string(text) != "<body>Hello.</body>\n" {
		t.Errorf("the page is %q, %v", text, err)
	}
	p.stop()
}

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	ended chan error
}

func startProgram(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), lines: make(chan string, 10000), ended: make(chan error, 1)}
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
		p.ended <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-gone
	})
	return p
}

// stop ends the process in order.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := <-p.ended; err != nil {
		p.t.Errorf("the program ends by SIGTERM with %v", err)
	}
}

// line waits for a line that matches.
func (p *process) line(want *regexp.Regexp) []string {
	p.t.Helper()
	deadline := time.After(within)
	for {
		select {
		case line := <-p.lines:
			if m := want.FindStringSubmatch(line); m != nil {
				return m
			}
		case err := <-p.ended:
			p.t.Fatalf("the program ended with %v, before a line like %v", err, want)
		case <-deadline:
			p.t.Fatalf("no line like %v in time", want)
		}
	}
}
