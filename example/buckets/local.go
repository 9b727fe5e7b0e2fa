// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/servers"
	"github.com/reconkernel/reconcile/supervise"
)

// A local is PostgreSQL and versitygw, an S3 gateway over a folder, on this machine. A service
// of your own does not need this file.
type local struct {
	postgres *servers.Postgres
	gateway  *servers.Process
	endpoint string
	key      string // the secret key of the gateway; the access key is "example"
	dir      string
}

// newLocal starts the servers. The first call builds the gateway, in about two minutes. They
// must be closed.
func newLocal(ctx context.Context) (l *local, err error) {
	build := exec.CommandContext(ctx, "bash", "gateway/build.sh")
	build.Stderr = os.Stderr
	binary, err := build.Output()
	if err != nil {
		return nil, fmt.Errorf("gateway/build.sh, in the folder of this example: %w", err)
	}
	address, _, err := servers.HoldPort() // until the end of this process
	if err != nil {
		return nil, err
	}
	l = &local{endpoint: "http://" + address, key: rand.Text()}
	if l.dir, err = os.MkdirTemp("", "reconcile-buckets-"); err != nil {
		return nil, err
	}
	var dirs []string
	for _, name := range []string{"versions", "meta", "buckets"} {
		dirs = append(dirs, filepath.Join(l.dir, name))
		err = errors.Join(err, os.Mkdir(dirs[len(dirs)-1], 0o755))
	}
	l.gateway = &servers.Process{
		Path:  strings.TrimSpace(string(binary)),
		Args:  []string{"--port", address, "--keep-alive", "--quiet", "posix", "--versioning-dir", dirs[0], "--sidecar", dirs[1], dirs[2]},
		Env:   []string{"ROOT_ACCESS_KEY_ID=example", "ROOT_SECRET_ACCESS_KEY=" + l.key},
		Ready: func(ctx context.Context) error { return answers(ctx, l.endpoint) },
	}
	if err == nil {
		l.postgres, err = servers.NewPostgres("max_connections=100")
	}
	if err == nil {
		err = errors.Join(l.postgres.Start(ctx), l.gateway.Start(ctx))
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *local) close() {
	l.gateway.Kill()
	if l.postgres != nil {
		l.postgres.Close()
	}
	_ = os.RemoveAll(l.dir)
}

// replica prepares a replica on the servers, and returns the address of its page.
func (l *local) replica(args ...string) (p *servers.Process, address string, err error) {
	if address, _, err = servers.HoldPort(); err != nil {
		return nil, "", err
	}
	return &servers.Process{
		Path:  os.Args[0],
		Args:  append([]string{"-endpoint", l.endpoint, "-http", address}, args...),
		Env:   []string{"DATABASE_URL=" + l.postgres.URL() + "&pool_max_conns=16", "AWS_ACCESS_KEY_ID=example", "AWS_SECRET_ACCESS_KEY=" + l.key},
		Ready: func(ctx context.Context) error { return answers(ctx, "http://"+address+"/metrics") },
		Log:   os.Stderr,
	}, address, nil
}

// answers returns nil if a server answers.
func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// runLocal runs the servers and two replicas until ctx is done, and again whatever dies.
func runLocal(ctx context.Context, o options) error {
	l, err := newLocal(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	again := reconcile.Backoff(5*time.Second, 5*time.Second)
	replicas := new(supervise.Group)
	flags := []string{"-owner", o.owner, "-period", o.period.String(), "-delete-after", o.deleteAfter.String(), "-lease", o.lease.String()}
	for _, name := range []string{"one", "two"} {
		p, address, err := l.replica(flags...)
		if err != nil {
			return err
		}
		fmt.Printf("page, while replica %s leads: http://%s\n", name, address)
		replicas.Add(name, supervise.Restart(again, p))
	}
	fmt.Printf("table: psql '%s'\n", l.postgres.URL())
	fmt.Printf("store: curl --user example:%s --aws-sigv4 aws:amz:us-east-1:s3 --header x-amz-content-sha256:UNSIGNED-PAYLOAD %s\n", l.key, l.endpoint)

	// The servers outlive ctx: the replicas need them to end.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	running := new(supervise.Group)
	running.Add("postgresql", supervise.Restart(again, l.postgres))
	running.Add("gateway", supervise.Restart(again, l.gateway))
	ended := make(chan error, 1)
	go func() { ended <- running.Run(alive) }()
	err = replicas.Run(ctx)
	end()
	<-ended
	return err
}
