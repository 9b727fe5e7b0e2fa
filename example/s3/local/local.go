// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package local runs versitygw, a real S3 gateway, on loopback over a folder.
package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Version is the version of versitygw, the same as in gateway/tools.mod.
const Version = "v1.8.0"

// Binary returns where gateway/build.sh keeps the program. The error says what
// to do if it is not there.
func Binary() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "reconcile-example-s3", "versitygw-"+Version)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("versitygw %s is not built yet; run example/s3/gateway/build.sh: %w", Version, err)
	}
	return path, nil
}

// A Gateway is an S3 endpoint over a folder. What was stored outlives the
// gateway, however it ends.
type Gateway struct {
	URL                  string
	AccessKey, SecretKey string
	Buckets              string // the folder with a folder for each bucket

	binary string
	args   []string

	mu     sync.Mutex // guards the fields below
	pid    int        // 0 while it does not run
	output bytes.Buffer
}

// New prepares a gateway at an address, over a folder, which it makes if it is not
// there.
func New(dir, address string) (*Gateway, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	var dirs []string
	for _, name := range []string{"buckets", "meta", "versions"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
		dirs = append(dirs, path)
	}
	args := []string{"--port", address, "--keep-alive", "--quiet", "posix", "--versioning-dir", dirs[2]}
	if !hasAttributes(dirs[0]) {
		// Tags and ETags lie beside the buckets then, and stay when a hand takes
		// a file away: such a file cannot be made anew.
		args = append(args, "--sidecar", dirs[1])
	}
	return &Gateway{
		URL: "http://" + address, AccessKey: "example", SecretKey: rand.Text(), Buckets: dirs[0],
		binary: binary, args: append(args, dirs[0]),
	}, nil
}

// Run starts the gateway, and waits until it ends. It returns nil if that is
// because ctx is done. It can be called again.
func (g *Gateway) Run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, g.binary, g.args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second // then it is killed
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+g.AccessKey, "ROOT_SECRET_ACCESS_KEY="+g.SecretKey)
	cmd.Stdout, cmd.Stderr = (*output)(g), (*output)(g)
	cmd.SysProcAttr = child()

	// Linux kills a child when the thread ends that has started it, so this one is
	// kept until then: see child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	switch err := g.start(cmd); {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("versitygw: %w", err)
	}
	defer g.ended()
	if err := cmd.Wait(); ctx.Err() == nil {
		return fmt.Errorf("versitygw has ended: %w; %s", err, g.said())
	}
	return nil
}

// start starts the process. Whoever sees what it does and asks for its PID then
// waits for it here.
func (g *Gateway) start(cmd *exec.Cmd) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.output.Reset()
	if err := cmd.Start(); err != nil {
		return err
	}
	g.pid = cmd.Process.Pid
	return nil
}

func (g *Gateway) ended() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pid = 0
}

// PID returns the process that runs now, 0 if there is none.
func (g *Gateway) PID() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pid
}

// Ready waits until the gateway answers.
func (g *Gateway) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("no answer for half a minute"))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("versitygw at %s: %w; %s", g.URL, context.Cause(ctx), g.said())
		}
	}
}

// output keeps what the gateway says, for the errors.
type output Gateway

func (o *output) Write(p []byte) (int, error) {
	g := (*Gateway)(o)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.output.Len() < 1<<16 {
		g.output.Write(p)
	}
	return len(p), nil
}

func (g *Gateway) said() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if text := strings.TrimSpace(g.output.String()); text != "" {
		return "it said: " + text
	}
	return "it said nothing"
}
