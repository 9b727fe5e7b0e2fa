// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"net"
	"syscall"
	"testing"
)

// While the address is held, nobody has it who does not ask to share it; one after
// the other can listen at it.
func TestHold(t *testing.T) {
	address, release, err := Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(s)
	err = syscall.Bind(s, &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())})
	if err != syscall.EADDRINUSE {
		t.Errorf("Bind = %v, want %v", err, syscall.EADDRINUSE)
	}
	for range 2 {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
