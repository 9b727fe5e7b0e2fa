// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// readyWithin is how long a process may take until it is ready, and to answer
// then. It only bounds a test that hangs.
const readyWithin = 5 * time.Minute

// A Process is a server that can be killed and started again. Its methods may
// be called from any goroutine.
type Process struct {
	path  string
	args  []string
	line  *regexp.Regexp              // what it prints when it listens
	ready func(context.Context) error // returns when it also serves

	mu     sync.Mutex // guards what follows; held while it starts or ends
	child  *os.Process
	exited chan struct{} // closed when child has exited
	output tail
}

// Start starts the process, unless it runs, and returns when it is ready.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil {
		select {
		case <-p.exited: // by itself
		default:
			return nil
		}
	}
	name := filepath.Base(p.path)
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("not ready after %v", readyWithin))
	defer cancel()

	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	started := make(chan error)
	exited, listening := make(chan struct{}), make(chan struct{})
	go func() {
		// On Linux the child is to end with this process, which the system
		// takes to mean: with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command(p.path, p.args...)
		cmd.Stdout, cmd.Stderr = writer, writer
		cmd.SysProcAttr = childAttr()
		err := cmd.Start()
		_ = writer.Close()
		if err == nil {
			p.child, p.exited = cmd.Process, exited
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // killed, mostly; else its output says why
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		_ = reader.Close()
		return err
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		p.read(reader, listening)
	}()

	select {
	case <-listening:
	case <-exited:
		err = errors.New("ended")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil && p.ready != nil {
		ctx, cancel := context.WithCancelCause(ctx)
		stop := make(chan struct{})
		go func() {
			select {
			case <-exited:
				cancel(errors.New("ended"))
			case <-stop:
			}
		}()
		err = p.ready(ctx)
		close(stop)
		cancel(nil)
	}
	if err != nil {
		p.endLocked(syscall.SIGKILL)
		<-printed // it may say why it ended
		return fmt.Errorf("%s: %w; it printed:\n%s", name, err, p.output.String())
	}
	return nil
}

// read keeps the last of what the process prints, until it has ended, and closes
// listening after the line that says so.
func (p *Process) read(from io.ReadCloser, listening chan struct{}) {
	defer from.Close()
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		p.output.add(line)
		if listening != nil && p.line.MatchString(line) {
			close(listening)
			listening = nil
		}
		if err != nil {
			return
		}
	}
}

// Kill ends the process with SIGKILL and returns when it has ended.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(syscall.SIGKILL)
}

func (p *Process) endLocked(sig os.Signal) {
	if p.child == nil {
		return
	}
	_ = p.child.Signal(sig) // it may have ended by itself
	<-p.exited
	p.child = nil
}

// Pause stops the process without ending it: connections stay, no answer comes.
// Resume lets it go on.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil {
		_ = p.child.Signal(sig) // it may have ended by itself
	}
}

// Output returns the last lines that the process printed.
func (p *Process) Output() string { return p.output.String() }

// tail is the last lines of a text.
type tail struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 200 {
		t.lines = append(t.lines[:0], t.lines[100:]...)
	}
	t.lines = append(t.lines, line)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}
