// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package programtest runs programs in tests as a user does: as processes.
package programtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Program is one at work. Its methods are for the goroutine of the test.
type Program struct {
	Errs Buffer // standard error

	t        *testing.T
	patience time.Duration
	cmd      *exec.Cmd
	lines    chan string  // of standard output, closed at its end
	out      bytes.Buffer // those that were read
}

// Start starts a program, which is killed after so long a time, or at the end of
// the test. It gets a TMPDIR of its own; the test fails if something is left
// there, unless the program was killed.
func Start(t *testing.T, patience time.Duration, cmd *exec.Cmd) *Program {
	t.Helper()
	p := &Program{t: t, patience: patience, cmd: cmd, lines: make(chan string, 100_000)}
	tmp := t.TempDir()
	cmd.Env = append(cmd.Environ(), "TMPDIR="+tmp)
	cmd.Stderr = &p.Errs
	out, err := cmd.StdoutPipe()
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
		fmt.Fprintln(&p.out, line)
		if found(line) {
			return line
		}
	}
	p.t.Fatalf("the program has ended without %s; it printed\n%s", what, p.Text())
	return ""
}

// Line waits for a line with that text, and returns it.
func (p *Program) Line(text string) string {
	p.t.Helper()
	return p.Until(fmt.Sprintf("the line %q", text), func(line string) bool { return strings.Contains(line, text) })
}

// Error waits until a text was written to standard error.
func (p *Program) Error(text string) {
	p.t.Helper()
	late := time.After(p.patience)
	for {
		written, found := p.Errs.look(text)
		if found {
			return
		}
		select {
		case <-written:
		case <-late:
			p.t.Fatalf("%q is not written; there is\n%s", text, p.Text())
		}
	}
}

// Signal sends a signal.
func (p *Program) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// End waits for the end, and returns the exit code and the lines that were not
// read yet. A program that was killed has the code -1.
func (p *Program) End() (code int, rest string) {
	p.t.Helper()
	var b strings.Builder
	for line := range p.lines {
		fmt.Fprintln(io.MultiWriter(&b, &p.out), line)
	}
	err := p.cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), b.String()
}

// WantEnd waits for the end and checks the exit code, and that all these texts
// were printed. It returns all that was, as Text does.
func (p *Program) WantEnd(code int, texts ...string) string {
	p.t.Helper()
	got, _ := p.End()
	all := p.Errs.String() + p.out.String()
	if got != code {
		p.t.Errorf("exit code %d, want %d; it printed\n%s", got, code, p.Text())
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			p.t.Errorf("the output lacks %q; it is\n%s", text, p.Text())
		}
	}
	return all
}

// Printed returns the lines that were read so far.
func (p *Program) Printed() string { return p.out.String() }

// Text returns what was printed, as Shorten has it.
func (p *Program) Text() string { return Shorten(p.Errs.String() + p.out.String()) }

// Shorten leaves out the middle of a text if that is much.
func Shorten(text string) string {
	if lines := strings.SplitAfter(text, "\n"); len(lines) > 200 {
		return strings.Join(lines[:100], "") + "...\n" + strings.Join(lines[len(lines)-100:], "")
	}
	return text
}

// A Buffer can be read while it is written. The zero Buffer is empty and ready.
type Buffer struct {
	mu      sync.Mutex // guards the fields below
	b       bytes.Buffer
	written chan struct{} // closed by the next write; nil if nobody waits
}

// Write adds to the buffer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written != nil {
		close(b.written)
		b.written = nil
	}
	return b.b.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// look reports whether a text was written; written is closed with the next write.
func (b *Buffer) look(text string) (written <-chan struct{}, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written == nil {
		b.written = make(chan struct{})
	}
	return b.written, strings.Contains(b.b.String(), text)
}
