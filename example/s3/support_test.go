// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/s3/local"
)

// The tests run the program as a user does: as a process, against a real gateway that is
// another one, started with a folder of the test.

// asProgram in the environment makes the test binary the program itself.
const asProgram = "RECONCILE_S3_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// patience bounds the wait for anything that is to happen.
const patience = 3 * time.Minute

// A process is the program at work. Its methods are for the goroutine of the test.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string     // that it prints, closed at the end
	read  strings.Builder // those that were read
}

// execute starts the program with these variables in its environment, and without those of
// the tester's own account.
func execute(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	if _, err := local.Binary(); err != nil {
		t.Fatal(err) // the program would build it, which is nothing for a test
	}
	return executeIn(t, "", env, args...)
}

// executeIn does so in a folder; "" is that of the test. The program is killed after
// patience, or at the end of the test. It gets a TMPDIR of its own; the test fails if
// something is left there, unless the program was killed.
func executeIn(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	p := &process{t: t, cmd: cmd, lines: make(chan string, 100_000)}
	tmp := t.TempDir()
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") }),
		append(env, asProgram+"=yes", "TMPDIR="+tmp, "AWS_SHARED_CREDENTIALS_FILE="+filepath.Join(t.TempDir(), "none"))...)
	out, err := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		late.Stop()
		_ = cmd.Process.Kill() // if it has not ended
		<-read
		_ = cmd.Wait() // if the test has not
		left, err := os.ReadDir(tmp)
		if err != nil || cmd.ProcessState.Exited() && len(left) > 0 {
			t.Errorf("%s leaves %v behind, %v", cmd, left, err)
		}
	})
	return p
}

// until reads lines until one is found, and returns that. What says, for the failure of the
// test, what is looked for.
func (p *process) until(what string, found func(line string) bool) string {
	p.t.Helper()
	for line := range p.lines {
		fmt.Fprintln(&p.read, line)
		if found(line) {
			return line
		}
	}
	p.t.Fatalf("the program has ended without %s; it printed\n%s", what, p.read.String())
	return ""
}

// line waits for a line with that text, and returns it.
func (p *process) line(text string) string {
	p.t.Helper()
	return p.until(fmt.Sprintf("the line %q", text), func(line string) bool { return strings.Contains(line, text) })
}

// logs waits for log lines about buckets, in any order, each as "BUCKET MESSAGE".
func (p *process) logs(messages ...string) {
	p.t.Helper()
	missing := slices.Clone(messages)
	p.until(fmt.Sprintf("log lines %q", messages), func(line string) bool {
		missing = slices.DeleteFunc(missing, func(message string) bool {
			bucket, text, _ := strings.Cut(message, " ")
			return itemOf(line) == bucket && strings.Contains(line, " "+text)
		})
		return len(missing) == 0
	})
}

// itemOf returns the bucket that a log line of the loop is about, "" if there is none.
func itemOf(line string) string {
	_, rest, _ := strings.Cut(line, " item=")
	item, _, _ := strings.Cut(rest, " ")
	if strings.Contains(line, "reconciler=owners") {
		return "" // of a listing
	}
	return item
}

// count waits for n lines with that text.
func (p *process) count(n int, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("%d lines with %q", n, text), func(line string) bool {
		if strings.Contains(line, text) {
			n--
		}
		return n == 0
	})
}

// signal sends a signal; that of Ctrl-C is os.Interrupt.
func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the end, and returns the exit code. A program that was killed has
// the code -1.
func (p *process) end() int {
	p.t.Helper()
	for line := range p.lines {
		fmt.Fprintln(&p.read, line)
	}
	err := p.cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// wantEnd waits for the end and checks the exit code, and that all these texts
// were printed. It returns all that was.
func (p *process) wantEnd(code int, texts ...string) string {
	p.t.Helper()
	got := p.end()
	if got != code {
		p.t.Errorf("exit code %d, want %d; it printed\n%s", got, code, p.read.String())
	}
	for _, text := range texts {
		if !strings.Contains(p.read.String(), text) {
			p.t.Errorf("the output lacks %q; it is\n%s", text, p.read.String())
		}
	}
	return p.read.String()
}
