// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The gateway that the program starts does not outlive it, however it ends.
func TestOwnGatewayEndsToo(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		p := execute(t, nil, "-desired", desiredFile(t, everything), "-state", filepath.Join(t.TempDir(), "state"), "-watch")
		var url string
		_, attrs, _ := strings.Cut(p.line("versitygw runs"), "versitygw runs ")
		if _, err := fmt.Sscanf(attrs, "url=%s", &url); err != nil {
			t.Fatal(err)
		}
		p.logs("full in sync", "bare in sync")
		// A connection that is never used ends with the gateway.
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		p.signal(signal)
		p.end()
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("after %v the gateway is still there: %v", signal, err)
		}
	}
}
