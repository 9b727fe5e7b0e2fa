// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"fmt"
	"syscall"
	"testing"
)

// Address returns an address on loopback that programs can listen at one after
// the other. Until the test ends nobody is given its port by chance: there is a
// socket at it, which does not listen, and is in the way only of those who do not
// ask for that port, or ask without SO_REUSEADDR, which [net.Listen] sets.
func Address(t *testing.T) string {
	t.Helper()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Close(s) })
	must(t, syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	must(t, syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(s)
	must(t, err)
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("socket for an address: %v", err)
	}
}
