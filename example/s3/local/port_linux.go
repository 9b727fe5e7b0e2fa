// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"os"
	"syscall"
)

// Hold returns an address on loopback that programs can listen at one after the
// other. Until release is called nobody is given its port by chance: there is a
// socket at it, which does not listen, and is in the way only of those who do not
// ask for that port, or ask without SO_REUSEADDR, which [net.Listen] sets.
func Hold() (address string, release func(), err error) {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	name, err := bound(s)
	if err != nil {
		_ = syscall.Close(s)
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port), func() { _ = syscall.Close(s) }, nil
}

func bound(s int) (syscall.Sockaddr, error) {
	if err := syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(s)
	return name, os.NewSyscallError("getsockname", err)
}
