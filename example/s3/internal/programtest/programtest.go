// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package programtest runs programs in tests as a user does: as processes.
package programtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/s3/internal/port"
)

// Address returns an address on loopback that programs can listen at one after
// the other, and that is theirs until the test ends: see [port.Hold].
func Address(t *testing.T) string {
	t.Helper()
	address, release, err := port.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return address
}

// A Program is one at work. Its methods are for the goroutine of the test.
type Program struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string     // that it prints, closed at the end
	read  strings.Builder // those that were read
}

// Start starts a program, which is killed after so long a time, or at the end of
// the test. It gets a TMPDIR of its own; the test fails if something is left
// there, unless the program was killed.
func Start(t *testing.T, patience time.Duration, cmd *exec.Cmd) *Program {
	t.Helper()
	p := &Program{t: t, cmd: cmd, lines: make(chan string, 100_000)}
	tmp := t.TempDir()
	cmd.Env = append(cmd.Environ(), "TMPDIR="+tmp)
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

// Until reads lines until one is found, and returns that. What says, for the
// failure of the test, what is looked for.
func (p *Program) Until(what string, found func(line string) bool) string {
	p.t.Helper()
	for line := range p.lines {
		fmt.Fprintln(&p.read, line)
		if found(line) {
			return line
		}
	}
	p.t.Fatalf("the program has ended without %s; it printed\n%s", what, p.Printed())
	return ""
}

// Line waits for a line with that text, and returns it.
func (p *Program) Line(text string) string {
	p.t.Helper()
	return p.Until(fmt.Sprintf("the line %q", text), func(line string) bool { return strings.Contains(line, text) })
}

// Signal sends a signal.
func (p *Program) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// End waits for the end, and returns the exit code. A program that was killed has
// the code -1.
func (p *Program) End() int {
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

// WantEnd waits for the end and checks the exit code, and that all these texts
// were printed. It returns all that was.
func (p *Program) WantEnd(code int, texts ...string) string {
	p.t.Helper()
	got := p.End()
	if got != code {
		p.t.Errorf("exit code %d, want %d; it printed\n%s", got, code, p.Printed())
	}
	for _, text := range texts {
		if !strings.Contains(p.Printed(), text) {
			p.t.Errorf("the output lacks %q; it is\n%s", text, p.Printed())
		}
	}
	return p.Printed()
}

// Printed returns the lines that were read so far.
func (p *Program) Printed() string { return p.read.String() }
