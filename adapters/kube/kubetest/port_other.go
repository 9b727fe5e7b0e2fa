// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kubetest

import (
	"io"
	"net"
	"strings"
)

// holdPort returns a port that no program uses. Nothing holds it here: if another program
// takes it before the server does, the server does not start.
func holdPort() (port string, hold io.Closer, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	_, port, _ = strings.Cut(l.Addr().String(), ":")
	return port, io.NopCloser(strings.NewReader("")), l.Close()
}
