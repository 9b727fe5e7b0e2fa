// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

// The tests of this file run the programs as a user does: as processes, on
// files and on loopback.

var programs string // the folder of the built programs

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if programs, err = os.MkdirTemp("", "reconcile-example-test-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(programs)
		if out, err := exec.Command("go", "build", "-o", programs+"/", ".", "./cloud").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// A process is a program at work. Its lines come through the channel.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // of standard output, closed at its end
	all   bytes.Buffer
	errs  buffer
}

// patience bounds the wait for anything that a process is to do.
const patience = 90 * time.Second

func execute(t *testing.T, program string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &process{t: t, cmd: exec.CommandContext(ctx, filepath.Join(programs, program), args...), lines: make(chan string, 100_000)}
	tmp := t.TempDir()
	p.cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	p.cmd.Stderr = &p.errs
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-read
		_ = p.cmd.Wait() // if the test has not
		left, err := os.ReadDir(tmp)
		if err != nil || p.cmd.ProcessState.Exited() && len(left) > 0 { // else it was killed
			t.Errorf("%s leaves %v behind, %v", program, left, err)
		}
	})
	return p
}

// line waits for a line with that text.
func (p *process) line(text string) string {
	p.t.Helper()
	for line := range p.lines {
		fmt.Fprintln(&p.all, line)
		if strings.Contains(line, text) {
			return line
		}
	}
	p.t.Fatalf("the program has ended without the line %q; it printed\n%s%s", text, p.errs.String(), p.all.String())
	return ""
}

// signal sends a signal.
func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the end, and returns the exit code and the rest of the lines.
// A process that was killed has the code -1.
func (p *process) end() (code int, rest string) {
	p.t.Helper()
	var b strings.Builder
	for line := range p.lines {
		fmt.Fprintln(io.MultiWriter(&b, &p.all), line)
	}
	err := p.cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), b.String()
}

func (p *process) wantEnd(code int, texts ...string) {
	p.t.Helper()
	got, _ := p.end()
	out := p.all.String() + p.errs.String()
	if got != code {
		p.t.Errorf("exit code %d, want %d; it printed\n%s", got, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			p.t.Errorf("the output lacks %q; it is\n%s", text, out)
		}
	}
}

// stateOf returns what the cloud in a folder holds for the tenant.
func stateOf(t *testing.T, dir string) map[cloud.ID]cloud.Asset {
	t.Helper()
	w := &world{t: t, dir: dir}
	return w.there("example")
}

func TestProcess(t *testing.T) {
	p := execute(t, "example", "-build", "50ms")
	p.wantEnd(0, "14 of 14 assets in sync", "peak memory")
}

// Killed again and again as it works, the program finds what it left and goes on.
func TestProcessKill9(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"-n", "60", "-state", dir, "-build", "200ms"}
	for _, seen := range []int{0, 1, 10, 20} {
		p := execute(t, "example", args...)
		p.line("cloud at")
		for range seen {
			p.line("in sync")
		}
		p.signal(syscall.SIGKILL)
		if code, _ := p.end(); code != -1 {
			t.Fatalf("the killed program has exit code %d", code)
		}
	}
	execute(t, "example", args...).wantEnd(0, "60 of 60 assets in sync")
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
	for _, test := range []struct {
		args []string
		wait string
		code int
		text string
	}{
		{[]string{"-watch", "-chaos", "-build", "50ms"}, "in sync", 0, "ending in order"},
		{[]string{"-build", "1h"}, "creating", 1, "\ninterrupted\n"},
	} {
		p := execute(t, "example", test.args...)
		p.line(test.wait)
		began := time.Now()
		p.signal(os.Interrupt)
		p.wantEnd(test.code, test.text, "assets in sync after")
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
	p.line("bucket/a               in sync")
	wish(t, file, brokenFile)
	p.errs.await(t, `wishes.json:3: bucket/a: unknown field "colour"; there are`)
	wish(t, file, keyAndOne)
	p.line("is in force, 2 assets changed")
	p.line("bucket/b               removed")
	p.signal(os.Interrupt)
	p.wantEnd(0)
}

// await waits until a text was written.
func (b *buffer) await(t *testing.T, text string) {
	t.Helper()
	for {
		b.mu.Lock()
		if b.written == nil {
			b.written = make(chan struct{}, 1)
		}
		found := strings.Contains(b.b.String(), text)
		b.mu.Unlock()
		if found {
			return
		}
		select {
		case <-b.written:
		case <-time.After(patience):
			t.Fatalf("%q is not written; there is\n%s", text, b.String())
		}
	}
}

func TestProcessMany(t *testing.T) {
	p := execute(t, "example", "-n", "2000", "-build", "100ms")
	code, out := p.end()
	end := regexp.MustCompile(`2000 of 2000 assets in sync after [0-9.]+s, [1-9][0-9]* a second\n.* peak memory [1-9][0-9]* MB\n$`)
	if code != 0 || !end.MatchString(out) {
		t.Errorf("exit code %d, output\n%s\nwant 0, and in the end the rate and the memory", code, out)
	}
}

func TestProcessCannotBe(t *testing.T) {
	file := wishPath(t)
	wish(t, file, `{"buckets": [{"name": "backup", "region": "us-east"}, {"name": "b", "region": "us-east"}]}`)
	p := execute(t, "example", "-assets", file, "-build", "50ms")
	p.wantEnd(1, "1 of 2 assets in sync", "1 cannot be:", `  bucket/backup: 409: the name "backup" is taken by another tenant`)
}

// Two programs share a cloud that is a third, and outlive its sudden end.
func TestProcessOwnCloud(t *testing.T) {
	dir := t.TempDir()
	c := execute(t, "cloud", "-addr", "127.0.0.1:0", "-state", dir, "-build", "50ms", "-faults", "0")
	url := c.line("http://")
	wishes := func(name string) string {
		file := wishPath(t)
		wish(t, file, fmt.Sprintf(`{"buckets": [{"name": "%s", "region": "us-east"}, {"name": "shared", "region": "us-east"}]}`, name))
		return file
	}
	first := execute(t, "example", "-cloud", url, "-watch", "-poll", "1s", "-assets", wishes("a"))
	first.line("bucket/shared          in sync")
	execute(t, "example", "-cloud", url, "-tenant", "you", "-assets", wishes("b")).
		wantEnd(1, `  bucket/shared: 409: the name "shared" is taken by another tenant`)

	c.signal(syscall.SIGKILL)
	c.end()
	first.errs.await(t, "connection refused")
	c = execute(t, "cloud", "-addr", strings.TrimPrefix(url, "http://"), "-state", dir, "-build", "50ms", "-faults", "0")
	c.line("http://")
	other := &cloud.Client{URL: url, Tenant: "example"}
	if err := other.Delete(t.Context(), bucket("a")); err != nil {
		t.Fatal(err)
	}
	first.line("bucket/a               creating")
	first.line("bucket/a               in sync")
	first.signal(os.Interrupt)
	first.wantEnd(0)
	c.signal(os.Interrupt)
	c.wantEnd(0)
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
	execute(t, "example", "-state", dir).wantEnd(1, "is in use by another program")
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestProcessBadCloudFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, 0, "-addr ADDRESS"},
		{[]string{"-colour"}, 2, "not defined: -colour"},
		{[]string{"stray"}, 2, `argument "stray" is not understood`},
		{[]string{"-faults", "2"}, 2, "-faults is 2, want 0 to 0.9"},
		{[]string{"-addr", "nowhere:x"}, 1, "listen tcp"},
		{[]string{"-addr", "127.0.0.1:0", "-state", "/dev/null"}, 1, "state of the cloud"},
	} {
		execute(t, "cloud", test.args...).wantEnd(test.code, test.want)
	}
}
