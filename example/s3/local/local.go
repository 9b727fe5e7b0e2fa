// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package local runs versitygw, a real S3 gateway, on loopback over a folder.
package local

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/reconkernel/reconcile/internal/servers"
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
	*servers.Process

	URL                  string
	AccessKey, SecretKey string
	Buckets              string // the folder with a folder for each bucket
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
	g := &Gateway{URL: "http://" + address, AccessKey: "example", SecretKey: rand.Text(), Buckets: dirs[0]}
	g.Process = &servers.Process{
		Path: binary, Args: append(args, dirs[0]),
		Env:   []string{"ROOT_ACCESS_KEY_ID=" + g.AccessKey, "ROOT_SECRET_ACCESS_KEY=" + g.SecretKey},
		Ready: g.answers,
	}
	return g, nil
}

// Run starts the gateway unless it runs, and waits until it ends. It returns nil if that
// is because ctx is done. It can be called again.
func (g *Gateway) Run(ctx context.Context) error {
	if err := g.Start(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	stopped := make(chan struct{})
	keep := context.AfterFunc(ctx, func() {
		defer close(stopped)
		g.Stop()
	})
	err := g.Wait()
	if !keep() {
		<-stopped
		return nil
	}
	return fmt.Errorf("versitygw has ended: %w; it printed:\n%s", err, g.Output())
}

// answers returns nil if the gateway answers.
func (g *Gateway) answers(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}
