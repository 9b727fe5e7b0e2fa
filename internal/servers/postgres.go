// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
)

// A Postgres is a PostgreSQL server on loopback with an empty database, postgres, in which
// the role postgres may do everything. It can be killed and started again on the same port,
// with the same data, until it is closed.
type Postgres struct {
	*Process
	Addr string // host:port

	dir     string
	release func()
}

// NewPostgres prepares a server, which Start starts. Settings are those of postgresql.conf,
// such as "max_connections=20". PostgreSQL must not run as root, so a root uses the user
// postgres.
func NewPostgres(settings ...string) (*Postgres, error) {
	bin, err := postgresBinaries()
	if err != nil {
		return nil, err
	}
	p := &Postgres{release: func() {}}
	if p.dir, err = os.MkdirTemp("", "reconcile-postgres-"); err == nil {
		err = p.init(bin, settings)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Postgres) init(bin string, settings []string) (err error) {
	if p.Addr, p.release, err = HoldPort(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(p.Addr)
	if err != nil {
		return err
	}
	data := filepath.Join(p.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "--pgdata="+data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	user := ""
	if os.Getuid() == 0 {
		user = "postgres"
		if out, err := exec.Command("chown", user, p.dir).CombinedOutput(); err != nil {
			return fmt.Errorf("giving %s to the user %s: %w; it printed:\n%s", p.dir, user, err, out)
		}
		if initdb.SysProcAttr, err = childAttr(user); err != nil {
			return err
		}
	}
	runtime.LockOSThread() // see Start
	defer runtime.UnlockOSThread()
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w; it printed:\n%s", err, out)
	}
	// The process may be killed, and the machine is not: what is written and not synced is kept.
	args := []string{"-D", data}
	for _, c := range append([]string{"port=" + port, "listen_addresses=" + host, "unix_socket_directories=", "fsync=off"}, settings...) {
		args = append(args, "-c", c)
	}
	p.Process = &Process{Path: filepath.Join(bin, "postgres"), Args: args, User: user, Ready: func(ctx context.Context) error {
		return exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"), "--host="+host, "--port="+port).Run()
	}}
	return nil
}

// URL returns a connection string.
func (p *Postgres) URL() string { return "postgres://postgres@" + p.Addr + "/postgres?sslmode=disable" }

// Close ends the server and removes its data.
func (p *Postgres) Close() {
	if p.Process != nil {
		p.Kill()
	}
	p.release()
	_ = os.RemoveAll(p.dir) // a child of the server may still be ending
}

// postgresBinaries returns the folder of the programs of the newest PostgreSQL.
func postgresBinaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // where Debian has them, and not in PATH
	if err == nil && len(found) == 0 {
		path, missing := exec.LookPath("initdb")
		if missing != nil {
			return "", errors.New("PostgreSQL is missing: install what Debian has in the package postgresql")
		}
		path, err = filepath.EvalSymlinks(path)
		found = []string{path}
	}
	if err != nil {
		return "", err
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}
