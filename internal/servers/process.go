// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package servers runs real servers for tests and examples: each is a process on loopback
// that can be killed, paused and started again on the same port. A [Proxy] in front of a
// server cuts, hangs or slows down the connections of its clients.
package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// readyWithin is how long a process may take until it is ready. It only bounds a test that
// hangs.
const readyWithin = 5 * time.Minute

// A Process is a server that can be killed and started again. The fields are set before
// the first Start. Its methods may be called from any goroutine.
type Process struct {
	Path  string
	Args  []string
	Env   []string                    // besides the environment of this process
	Ready func(context.Context) error // see Retry: it returns nil when the server answers
	User  string                      // On Linux, the user to run as; empty means that of this process
	Log   io.Writer                   // gets the output too; nil means that only Output has it

	mu     sync.Mutex // guards the fields below, and is held while the process starts or ends
	run    *run       // nil before the first Start
	output tail
}

// A run is a process from its start to its end.
type run struct {
	process *os.Process
	ended   chan struct{} // closed when it has ended
	err     error         // how it has ended; to be read after that
}

func (r *run) running() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// Start starts the process, unless it runs, and returns when it is ready. On Linux the
// system kills the process when this one ends, however it ends.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run.running() {
		return nil
	}
	name := filepath.Base(p.Path)
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout = io.Writer(&p.output)
	if p.Log != nil {
		cmd.Stdout = io.MultiWriter(&p.output, p.Log)
	}
	cmd.Stderr = cmd.Stdout
	attr, err := childAttr(p.User)
	if err != nil {
		return err
	}
	cmd.SysProcAttr = attr
	started := make(chan error)
	r := &run{ended: make(chan struct{})}
	go func() {
		// The system takes the end of this process to mean: the end of the thread that
		// started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			r.err = cmd.Wait()
			close(r.ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	r.process = cmd.Process
	p.run = r

	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("not ready after %v", readyWithin))
	defer cancel()
	ctx, ended := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-r.ended:
			ended(fmt.Errorf("has ended: %w", r.err))
		case <-ctx.Done():
		}
	}()
	if err := Retry(ctx, p.Ready); err != nil {
		p.killLocked()
		return fmt.Errorf("%s: %w; it printed:\n%s", name, err, p.Output())
	}
	return nil
}

// Retry calls f every 20 milliseconds until it returns nil. It is for a state that a server
// shows only by its answer. When ctx is done, Retry returns its cause and the last error of
// f.
func Retry(ctx context.Context, f func(context.Context) error) error {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-pause.C:
		}
	}
}

// Kill ends the process with SIGKILL and returns when it has ended.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killLocked()
}

func (p *Process) killLocked() {
	if p.run == nil {
		return
	}
	_ = p.run.process.Kill() // it may have ended by itself
	<-p.run.ended
}

// Stop asks the process to end, as Ctrl-C does, and returns when it has ended. After ten
// seconds it kills the process.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return
	}
	_ = p.run.process.Signal(os.Interrupt) // it may have ended by itself
	select {
	case <-p.run.ended:
	case <-time.After(10 * time.Second):
		p.killLocked()
	}
}

// Run starts the process, unless it runs, and waits until it ends. It stops the process when
// ctx is done, and then returns nil. It can be called again.
func (p *Process) Run(ctx context.Context) error {
	if err := p.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	stopped := make(chan struct{})
	running := context.AfterFunc(ctx, func() {
		defer close(stopped)
		p.Stop()
	})
	err := p.Wait()
	if !running() {
		<-stopped
		return nil
	}
	return fmt.Errorf("%s has ended: %v", filepath.Base(p.Path), err)
}

// Wait waits until the process has ended, and says how.
func (p *Process) Wait() error {
	p.mu.Lock()
	r := p.run
	p.mu.Unlock()
	if r == nil {
		return errors.New("not started")
	}
	<-r.ended
	return r.err
}

// PID returns the process that runs now, 0 if there is none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.run.running() {
		return 0
	}
	return p.run.process.Pid
}

// Output returns the end of the output of the process, over all its runs.
func (p *Process) Output() string {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	return string(p.output.text)
}

// A tail is the end of a text.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (t *tail) Write(text []byte) (int, error) {
	const most = 1 << 16
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(text), nil
}
