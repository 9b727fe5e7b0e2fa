// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package servers_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/reconkernel/reconcile/internal/servers"
)

// TestHoldPort has a program that does not ask to share the port try to get it.
func TestHoldPort(t *testing.T) {
	address, release, err := servers.HoldPort()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	other, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(other)
	if err := syscall.Bind(other, &syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}); err != syscall.EADDRINUSE {
		t.Errorf("Bind: %v, want %v", err, syscall.EADDRINUSE)
	}
}
