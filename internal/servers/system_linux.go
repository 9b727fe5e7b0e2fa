// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// childAttr has the system kill a child when this process ends, however it ends. The child
// is in a process group of its own, because Ctrl-C is for this process. It runs as the user
// of that name, or as this process does if name is empty.
func childAttr(name string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if name == "" {
		return attr, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, errors.Join(uidErr, gidErr)
}

// HoldPort returns an address of loopback whose port the system gives to no other program
// until release is called, also while the server that listens on it is down. A socket that
// is bound and does not listen gets no connections, and with SO_REUSEADDR, which net.Listen
// sets too, it does not keep the server from listening.
func HoldPort() (address string, release func(), err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	release = func() { _ = syscall.Close(socket) }
	name, err := bind(socket)
	if err != nil {
		release()
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port), release, nil
}

func bind(socket int) (syscall.Sockaddr, error) {
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(socket)
	return name, os.NewSyscallError("getsockname", err)
}
