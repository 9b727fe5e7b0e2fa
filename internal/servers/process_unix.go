// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package servers

import (
	"os"
	"syscall"
)

// Pause stops the process without ending it: connections stay, no answer comes.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		_ = p.run.process.Signal(sig) // it may have ended by itself
	}
}
