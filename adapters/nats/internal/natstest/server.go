// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reconkernel/reconcile/internal/servers"
)

// environment is the variable that makes a process a server. It names the configuration
// file.
const environment = "RECONCILE_NATSTEST_SERVER"

// init makes this process a server if its parent asks for it. An init, because
// it works in every test binary without a TestMain.
func init() {
	if config, ok := os.LookupEnv(environment); ok {
		if err := serve(config); err != nil {
			fmt.Fprintln(os.Stderr, "natstest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// serve does what the program nats-server does, and lets in all clients.
func serve(config string) error {
	opts, err := server.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	opts.CustomClientAuthentication = anyone{}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown()
	return nil
}

// limited is the name of a user whose password says what it may, as JSON. Users of
// other names, and those without, may do everything.
const limited = "limited"

// anyone lets in whoever comes.
type anyone struct{}

func (anyone) Check(c server.ClientAuthentication) bool {
	user := new(server.User)
	if opts := c.GetOpts(); opts.Username == limited {
		user.Permissions = new(server.Permissions)
		if json.Unmarshal([]byte(opts.Password), user.Permissions) != nil {
			return false
		}
	}
	c.RegisterUser(user)
	return true
}

// A Server is a NATS server in a process of its own. Its methods may be called
// from any goroutine.
type Server struct {
	*servers.Process

	name, dir string
	saved     string   // by Snapshot
	address   string   // for clients
	front     *Proxy   // of clients
	routes    *Proxy   // of other servers; nil outside of a cluster
	ports     []func() // which close them
}

// Open starts a server with JetStream that keeps its data in a folder. Close it
// when done.
func Open(dir string) (*Server, error) { return open("", dir) }

// open starts a server of its own: another program, or ours if it is "".
func open(program, dir string) (*Server, error) {
	s, err := newServer(program, "solo", dir)
	if err == nil {
		err = s.configure(nil)
	}
	if err == nil {
		err = s.Process.Start(context.Background())
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// newServer returns a server that is to be configured and started. It is to be closed also
// if there is an error.
func newServer(program, name, dir string) (s *Server, err error) {
	config := filepath.Join(dir, "nats.conf")
	s = &Server{Process: &servers.Process{Path: program, Args: []string{"-c", config}}, name: name, dir: dir}
	s.Ready = s.answers
	if program == "" {
		s.Args, s.Env = nil, []string{environment + "=" + config}
		if s.Path, err = os.Executable(); err != nil {
			return s, err
		}
	}
	s.address, s.front, err = s.port()
	return s, err
}

// port returns an address to listen on, and a proxy before it. Close closes both.
func (s *Server) port() (address string, p *Proxy, err error) {
	address, release, err := servers.HoldPort()
	if err != nil {
		return "", nil, err
	}
	s.ports = append(s.ports, release)
	if p, err = NewProxy(address); err == nil {
		s.ports = append(s.ports, p.Close)
	}
	return address, p, err
}

// answers returns nil if the server takes connections.
func (s *Server) answers(context.Context) error {
	nc, err := nats.Connect(s.DirectURL())
	if err == nil {
		nc.Close()
	}
	return err
}

// configure writes the configuration file. The cluster is nil outside of one.
func (s *Server) configure(cluster map[string]any) error {
	config := map[string]any{
		"server_name": s.name, "listen": s.address,
		"jetstream": map[string]any{"store_dir": s.dir},
	}
	if cluster != nil {
		config["cluster"] = cluster
	}
	text, err := json.Marshal(config) // the server reads JSON too
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, "nats.conf"), text, 0o600)
}

// URL returns what a client connects to. It never changes.
func (s *Server) URL() string { return s.front.URL() }

// Front returns the proxy through which all clients reach the server.
func (s *Server) Front() *Proxy { return s.front }

// Name returns the server's name.
func (s *Server) Name() string { return s.name }

// DirectURL returns the URL of the server without the proxy before it.
func (s *Server) DirectURL() string { return "nats://" + s.address }

// Start starts the server again and returns when it takes connections. It does
// nothing if the server runs.
func (s *Server) Start() { must(s.Process.Start(context.Background())) }

// Close kills the server and closes its ports for good.
func (s *Server) Close() {
	s.Kill()
	for _, closePort := range s.ports {
		closePort()
	}
}

func must(err error) {
	if err != nil {
		panic("natstest: " + err.Error())
	}
}

// A Proxy is a [servers.Proxy] in front of a NATS server.
type Proxy struct{ *servers.Proxy }

// NewProxy listens on a loopback port and passes connections on to target, a
// host:port or the URL of a [Server]. Close it when done.
func NewProxy(target string) (*Proxy, error) {
	p, err := servers.NewProxy(strings.TrimPrefix(target, "nats://"))
	return &Proxy{p}, err
}

// URL returns what a client connects to.
func (p *Proxy) URL() string { return "nats://" + p.Addr() }
