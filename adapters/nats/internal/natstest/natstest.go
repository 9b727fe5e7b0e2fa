// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package natstest runs real NATS servers for tests, each in a process of its
// own: the test binary, started again.
//
//	s := natstest.New(t)      // JetStream, its folder is t.TempDir()
//	nc := s.Connect(t)        // reconnects for ever; closed at the end of the test
//	js := s.JetStream(t)
//	s.Kill()                  // SIGKILL; returns when the process is gone
//	s.Start()                 // the same URL, the same folder; returns when it is ready
//	s.Stop()                  // SIGINT: an orderly stop
//	s.Pause(); s.Resume()     // SIGSTOP, SIGCONT
//	s.Front().Hang()          // a lost network; see Proxy
//
//	c := natstest.NewCluster(t, 3)  // returns when it has a leader
//	c.Servers[0].Kill()
//
// Clients reach a server through a [Proxy]. [Server.DirectURL] goes around the proxy,
// for measurements.
//
// Start panics if the server does not start, so that it may be called from any
// goroutine; [New], [NewCluster] and the methods that take a testing.TB end the test.
// On Linux, a server ends with the process that started it, however that ends.
//
// A program may use the package as well: see [Open] and [OpenCluster].
package natstest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// New starts a server with JetStream in a temporary folder, and ends it when
// the test ends.
func New(tb testing.TB) *Server {
	tb.Helper()
	s, err := Open(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// NewCluster starts so many servers with JetStream that form a cluster, waits
// until it has a leader that knows them all, and ends them when the test ends.
func NewCluster(tb testing.TB, servers int) *Cluster {
	tb.Helper()
	c, err := OpenCluster(tb.TempDir(), servers)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// NewClientProxy returns a proxy in front of a server for some clients alone,
// and closes it when the test ends.
func NewClientProxy(tb testing.TB, s *Server) *Proxy {
	tb.Helper()
	p, err := NewProxy(s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// OverLink returns a JetStream context behind a link, see [Proxy.Link].
func OverLink(tb testing.TB, s *Server, delay time.Duration, rate int, options ...nats.Option) jetstream.JetStream {
	tb.Helper()
	p := NewClientProxy(tb, s)
	p.Link(delay, rate)
	return JetStream(tb, Connect(tb, p.URL(), options...))
}

// NewOld starts the nats-server of the Linux distribution, several versions
// behind, and ends it when the test ends. The module's ci.sh installs it.
func NewOld(tb testing.TB) *Server {
	tb.Helper()
	path, err := exec.LookPath("nats-server")
	if err != nil {
		tb.Fatalf("%v (ci.sh installs it)", err)
	}
	s, err := open(path, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	tb.Logf("nats-server %s", s.Connect(tb).ConnectedServerVersion())
	return s
}

// Connect returns a connection to a URL that reconnects for ever, each 20 to 30
// ms, and is closed when the test ends. Options override those.
func Connect(tb testing.TB, url string, options ...nats.Option) *nats.Conn {
	tb.Helper()
	all := append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectJitter(10*time.Millisecond, 10*time.Millisecond),
		nats.Timeout(Patience),
	}, options...)
	nc, err := nats.Connect(url, all...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// Documented returns what docs/nats.md says that a process of a role may do, with the
// queue, bucket or stream of a name. The test runs in a folder of the repository.
func Documented(tb testing.TB, role, name string) *server.Permissions {
	tb.Helper()
	page, err := readAbove("docs/nats.md")
	if err != nil {
		tb.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| " + regexp.QuoteMeta(role) + " \\| (`.*`) \\|$").FindSubmatch(page)
	if row == nil {
		tb.Fatalf("docs/nats.md has no permissions for the role %q", role)
	}
	publish := new(server.SubjectPermission)
	for _, subject := range regexp.MustCompile("`([^`]*)`").FindAllSubmatch(row[1], -1) {
		publish.Allow = append(publish.Allow, strings.ReplaceAll(string(subject[1]), "NAME", name))
	}
	return &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}, Publish: publish}
}

// readAbove reads a file of a folder above this one: that of the repository.
func readAbove(path string) (text []byte, err error) {
	for range 8 {
		path = "../" + path
		if text, err = os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return text, err
}

// As is an option for a connection that may only publish and subscribe as is said. The
// test fails if it tries more.
func As(tb testing.TB, may *server.Permissions) nats.Option {
	tb.Helper()
	text, err := json.Marshal(may)
	if err != nil {
		tb.Fatal(err)
	}
	refused := make(chan error, 1)
	tb.Cleanup(func() {
		select {
		case err := <-refused:
			tb.Errorf("more than is documented is needed: %v", err)
		default:
		}
	})
	return func(o *nats.Options) error {
		o.User, o.Password = limited, string(text)
		o.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				select {
				case refused <- err:
				default:
				}
			}
		}
		return nil
	}
}

// In is [As] for the permissions of a role, as [Documented] returns them.
func In(tb testing.TB, role, name string) nats.Option {
	tb.Helper()
	return As(tb, Documented(tb, role, name))
}

// Connect returns a connection to the server; see the function [Connect].
func (s *Server) Connect(tb testing.TB, options ...nats.Option) *nats.Conn {
	tb.Helper()
	return Connect(tb, s.URL(), options...)
}

// JetStream returns a JetStream context over a connection of its own.
func (s *Server) JetStream(tb testing.TB, options ...nats.Option) jetstream.JetStream {
	tb.Helper()
	return JetStream(tb, s.Connect(tb, options...))
}

// Connect returns a connection to any server of the cluster.
func (c *Cluster) Connect(tb testing.TB, options ...nats.Option) *nats.Conn {
	tb.Helper()
	return Connect(tb, c.URL(), options...)
}

// JetStream returns a JetStream context over a connection of its own.
func (c *Cluster) JetStream(tb testing.TB, options ...nats.Option) jetstream.JetStream {
	tb.Helper()
	return JetStream(tb, c.Connect(tb, options...))
}

// JetStream returns a JetStream context over a connection.
func JetStream(tb testing.TB, nc *nats.Conn) jetstream.JetStream {
	tb.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// Snapshot keeps a copy of the folder of a server that does not run.
func (s *Server) Snapshot(tb testing.TB) {
	tb.Helper()
	s.saved = tb.TempDir()
	if err := os.CopyFS(s.saved, os.DirFS(s.dir)); err != nil {
		tb.Fatal(err)
	}
}

// Restore puts the folder of a server that does not run back to what it was at
// the last Snapshot: as if all that came after had been lost with the power.
func (s *Server) Restore(tb testing.TB) {
	tb.Helper()
	if err := os.RemoveAll(s.dir); err != nil {
		tb.Fatal(err)
	}
	if err := os.CopyFS(s.dir, os.DirFS(s.saved)); err != nil {
		tb.Fatal(err)
	}
}
