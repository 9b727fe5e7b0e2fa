// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// holdPort returns a port of 127.0.0.1 that the system gives to no other program until hold
// is closed, also while the server that listens on it is down. A socket that is bound and
// does not listen gets no connections, and with SO_REUSEADDR, which net.Listen sets too,
// it does not keep the server from listening.
func holdPort() (port string, hold io.Closer, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "port")
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", nil, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", nil, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", nil, os.NewSyscallError("getsockname", err)
	}
	return fmt.Sprint(name.(*syscall.SockaddrInet4).Port), file, nil
}
