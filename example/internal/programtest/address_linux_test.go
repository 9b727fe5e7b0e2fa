// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"net"
	"syscall"
	"testing"
)

// While a test has the address, nobody has it who does not ask to share it.
func TestAddressIsHeld(t *testing.T) {
	a, err := net.ResolveTCPAddr("tcp4", Address(t))
	must(t, err)
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	defer syscall.Close(s)
	err = syscall.Bind(s, &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())})
	if err != syscall.EADDRINUSE {
		t.Errorf("Bind = %v, want %v", err, syscall.EADDRINUSE)
	}
}
