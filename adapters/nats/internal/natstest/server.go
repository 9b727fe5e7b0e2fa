// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// settings are what a server process is told through its environment.
type settings struct {
	Name, Dir  string
	MaxStore   int64    // bytes; 0 means what the machine has
	MaxPayload int32    // bytes; 0 means 1 MiB
	Cluster    string   // the name of the cluster, if any
	Advertise  string   // of the route port
	Routes     []string // to the others
}

// environment is the variable that makes a process a server.
const environment = "RECONCILE_NATSTEST_SERVER"

// init makes this process a server if its parent asks for it. An init, because
// it works in every test binary without a TestMain.
func init() {
	if text, ok := os.LookupEnv(environment); ok {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, "natstest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// serve runs a server until SIGTERM, or until its parent is gone.
func serve(text string) error {
	var set settings
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		return err
	}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	signal.Ignore(syscall.SIGINT)                       // is for the parent
	if err := os.MkdirAll(set.Dir, 0o700); err != nil { // for the log
		return err
	}
	opts := &server.Options{
		ServerName: set.Name,
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   set.Dir,
		NoSigs:     true,

		JetStreamMaxStore: set.MaxStore,
		MaxPayload:        set.MaxPayload,

		CustomClientAuthentication: anyone{},

		LogFile: filepath.Join(set.Dir, "log"),
	}
	opts.Cluster.NoAdvertise = true // clients know the URLs that they were given
	if set.Cluster != "" {
		opts.Cluster.Name = set.Cluster
		opts.Cluster.Host = "127.0.0.1"
		opts.Cluster.Port = server.RANDOM_PORT
		opts.Cluster.Advertise = set.Advertise
		for _, route := range set.Routes {
			u, err := url.Parse(route)
			if err != nil {
				return err
			}
			opts.Routes = append(opts.Routes, u)
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(Patience) {
		return errors.New("the server is not ready in time")
	}
	route := ""
	if addr := s.ClusterAddr(); addr != nil {
		route = addr.String()
	}
	fmt.Printf("ready %s %s\n", trimScheme(s.Addr().String()), route)

	orphaned := make(chan struct{})
	go func() {
		defer close(orphaned)
		io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-terminate:
		s.Shutdown()
		s.WaitForShutdown()
		return nil
	case <-orphaned:
		return errors.New("the parent is gone")
	}
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
	set    settings
	binary string // another server; empty for ours
	saved  string // by Snapshot
	front  *Proxy // of clients
	routes *Proxy // of other servers; nil outside of a cluster

	mu      sync.Mutex // guards the fields below, and is held while a process starts or ends
	process *exec.Cmd  // nil while there is none
	stdin   io.Closer
	direct  string
}

// ProcessorTime returns how long the processors have worked for the server.
func (s *Server) ProcessorTime() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0, errors.New("natstest: the server does not run")
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var user, system int64
	if fields := strings.Fields(rest); len(fields) > 12 {
		user, _ = strconv.ParseInt(fields[11], 10, 64)
		system, _ = strconv.ParseInt(fields[12], 10, 64)
	}
	return time.Duration(user+system) * time.Second / 100, nil
}

// Open starts a server with JetStream that keeps its data in a folder. Close it
// when done.
func Open(dir string) (*Server, error) { return OpenSmall(dir, 0, 0) }

// OpenSmall is [Open] for a server that keeps and takes no more than so many bytes; 0
// means its defaults.
func OpenSmall(dir string, maxStore int64, maxPayload int32) (*Server, error) {
	s, err := newServer(settings{Name: "solo", Dir: dir, MaxStore: maxStore, MaxPayload: maxPayload})
	if err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// OpenBinary does what [Open] does with another program: a nats-server of
// another version. It is not ended if this process is killed.
func OpenBinary(path, dir string) (*Server, error) {
	s, err := newServer(settings{Name: "binary", Dir: dir})
	if err != nil {
		return nil, err
	}
	s.binary = path
	if err := s.start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func newServer(set settings) (*Server, error) {
	front, err := NewProxy("")
	if err != nil {
		return nil, err
	}
	return &Server{set: set, front: front}, nil
}

// URL returns what a client connects to. It never changes.
func (s *Server) URL() string { return s.front.URL() }

// Front returns the proxy through which all clients reach the server.
func (s *Server) Front() *Proxy { return s.front }

// Name returns the server's name.
func (s *Server) Name() string { return s.set.Name }

// DirectURL returns the URL of the running server without the proxy before it.
// It changes at each start.
func (s *Server) DirectURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "nats://" + s.direct
}

// Start starts the server again and returns when it takes connections. It does
// nothing if the server runs.
func (s *Server) Start() { must(s.start()) }

// Stop ends the server in order, as SIGTERM does, and returns when it is gone.
func (s *Server) Stop() { must(s.end(syscall.SIGTERM)) }

// Kill ends the server by SIGKILL and returns when it is gone.
func (s *Server) Kill() { must(s.end(syscall.SIGKILL)) }

// Freeze stops the process by SIGSTOP: connections stay, nothing answers.
func (s *Server) Freeze() {
	must(s.signal(syscall.SIGSTOP))
	s.mu.Lock()
	defer s.mu.Unlock()
	// The signal is heard some time after it was sent.
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(s.process.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		must(err)
		return
	}
}

// Thaw undoes Freeze.
func (s *Server) Thaw() { must(s.signal(syscall.SIGCONT)) }

// Close kills the server and closes its ports for good.
func (s *Server) Close() {
	s.end(syscall.SIGKILL)
	s.front.Close()
	if s.routes != nil {
		s.routes.Close()
	}
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.set.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func must(err error) {
	if err != nil {
		panic("natstest: " + err.Error())
	}
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return nil
	}
	cmd, err := s.command()
	if err != nil {
		return err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	slow := time.AfterFunc(Patience, func() { cmd.Process.Kill() })
	client, route, err := addresses(stdout)
	if slow.Stop(); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return fmt.Errorf("server %s did not start: %w\n%s", s.set.Name, err, s.Log())
	}
	s.process, s.stdin, s.direct = cmd, stdin, client
	s.front.setTarget(client)
	if s.routes != nil {
		s.routes.setTarget(route)
	}
	return nil
}

// command returns the command that starts the server. Another binary prints its log.
func (s *Server) command() (*exec.Cmd, error) {
	if s.binary == "" {
		return Self(environment, s.set)
	}
	// The shell makes one stream of both, as it is not said which has the log.
	return exec.Command("sh", "-c", `exec "$0" -a 127.0.0.1 -p -1 -js -sd "$1" 2>&1`, s.binary, s.set.Dir), nil
}

// Self returns a command that runs this program anew. The task is in the environment
// variable of the given name, as JSON.
func Self(environment string, task any) (*exec.Cmd, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), environment+"="+string(text))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

var (
	ownLine   = regexp.MustCompile(`^ready (\S+) (\S*)$`)
	othersLog = regexp.MustCompile(`Listening for client connections on (\S+)`)
)

// addresses reads what a server prints until it is ready, and has someone read
// on.
func addresses(stdout io.Reader) (client, route string, err error) {
	var seen []string
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		line := lines.Text()
		seen = append(seen, line)
		if m := ownLine.FindStringSubmatch(line); m != nil {
			client, route = m[1], m[2]
			break
		}
		if m := othersLog.FindStringSubmatch(line); m != nil {
			client = m[1]
		}
		if client != "" && strings.Contains(line, "Server is ready") {
			break
		}
	}
	if client == "" {
		return "", "", fmt.Errorf("it says %q", seen)
	}
	go io.Copy(io.Discard, stdout) // until the process ends
	return client, route, nil
}

func (s *Server) end(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	if err := s.process.Process.Signal(sig); err != nil {
		return err
	}
	slow := time.AfterFunc(Patience, func() { s.process.Process.Kill() })
	s.process.Wait() // its error is the signal
	slow.Stop()
	status, ok := s.process.ProcessState.Sys().(syscall.WaitStatus)
	killed := sig != syscall.SIGKILL && ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	s.stdin.Close()
	s.front.setTarget("")
	if s.routes != nil {
		s.routes.setTarget("")
	}
	s.process = nil
	if killed {
		return fmt.Errorf("server %s did not end by %v", s.set.Name, sig)
	}
	return nil
}

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return fmt.Errorf("server %s does not run", s.set.Name)
	}
	return s.process.Process.Signal(sig)
}
