// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

// The program closes all its connections to a cloud that goes on.
func TestNoConnectionIsLeft(t *testing.T) {
	var open sync.WaitGroup
	server := httptest.NewUnstartedServer(fakecloud.New(fakecloud.Config{Seed: 1}).Handler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Done()
		}
	}
	server.Start()
	defer server.Close()
	var out buffer
	if code := run(t.Context(), []string{"-cloud", server.URL}, &out, &out); code != 0 {
		t.Errorf("exit code %d; it printed\n%s", code, out.String())
	}
	none := make(chan struct{})
	go func() {
		open.Wait()
		close(none)
	}()
	select {
	case <-none:
	case <-time.After(30 * time.Second): // half the time after which idle ones are closed
		t.Error("30s after the end of the program, connections are open")
	}
}
