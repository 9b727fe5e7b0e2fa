// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/servers"
	"github.com/reconkernel/reconcile/supervise"
)

// Start runs a gateway on loopback over a folder, and again whenever it dies,
// until stop is called; stop waits for its end. Without a folder it takes one
// that is gone then. It blocks until the gateway answers, and before that it
// builds versitygw if that has not been done yet, which it says on stderr.
//
// The gateway outlives ctx: the runs in flight need it to come to their end.
func Start(ctx context.Context, dir string, stderr io.Writer) (g *Gateway, stop func(), err error) {
	if err := build(ctx, stderr); err != nil {
		return nil, nil, err
	}
	address, release, err := servers.HoldPort()
	if err != nil {
		return nil, nil, err
	}
	clear := release
	if dir == "" {
		if dir, err = os.MkdirTemp("", "reconcile-s3-"); err != nil {
			release()
			return nil, nil, err
		}
		clear = func() {
			os.RemoveAll(dir)
			release()
		}
	}
	gateway, err := New(dir, address)
	if err == nil {
		err = gateway.Start(ctx)
	}
	if err != nil {
		clear()
		return nil, nil, err
	}
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stop = func() {
		end()
		<-ended
		clear()
	}
	go func() {
		defer close(ended)
		_ = supervise.Restart(reconcile.Backoff(100*time.Millisecond, 5*time.Second), gateway).Run(alive)
	}()
	return gateway, stop, nil
}

// build runs gateway/build.sh if the gateway is not there yet. It looks for it
// from the folders where somebody would say go run.
func build(ctx context.Context, stderr io.Writer) error {
	_, missing := Binary()
	if missing == nil {
		return nil
	}
	for _, script := range []string{"gateway/build.sh", "../gateway/build.sh", "example/s3/gateway/build.sh"} {
		if _, err := os.Stat(filepath.FromSlash(script)); err != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, "bash", script)
		cmd.Stderr = stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", script, err)
		}
		return nil
	}
	return missing
}
