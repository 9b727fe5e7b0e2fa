// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A Child is a test that runs in a process of its own. It says what it does in
// lines on its output that begin with "child: ".
type Child struct {
	Lines <-chan string // without that beginning

	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// StartChild runs a test of the package that is tested in a process of its own,
// which is killed when the calling test ends.
func StartChild(t *testing.T, test string, env ...string) *Child {
	t.Helper()
	lines := make(chan string, 1000)
	c := &Child{t: t, cmd: exec.Command(os.Args[0], "-test.run=^"+test+"$"), Lines: lines}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for output := bufio.NewScanner(stdout); output.Scan(); {
			if line, ok := strings.CutPrefix(output.Text(), "child: "); ok {
				lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		<-read
		c.cmd.Wait()
	})
	return c
}

// Signal sends it a signal.
func (c *Child) Signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// Ask writes a line to its input.
func (c *Child) Ask() {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, "?\n"); err != nil {
		c.t.Fatal(err)
	}
}

// Want waits for its next line, which must be this one.
func (c *Child) Want(line string) {
	c.t.Helper()
	if got := Next(c.t, c.Lines); got != line {
		c.t.Fatalf("the child says %q, want %q", got, line)
	}
}
