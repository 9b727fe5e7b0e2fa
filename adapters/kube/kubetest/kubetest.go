// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubetest lets tests have a real kube-apiserver and etcd: child processes on
// loopback, which can be killed, stopped for a while and started again on the same
// ports and data. testserver/build.sh builds them.
//
// A package of tests shares one server:
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }
//
//	func TestX(t *testing.T) {
//		server := kubetest.Shared(t)
//		server.CRDs(t, "../config/crd")
//		namespace := server.Namespace(t)
//		kubetest.Run(t, group)
//
// A test that kills a process has it running again at its end, and does not run
// in parallel with others. In another repository the variable KUBETEST_BIN names the
// folder with the binaries, which build.sh prints. The package serves tests alone.
package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/internal/servers"
)

// A Process is a server that can be killed and started again: Kill ends it at once, Start
// starts it unless it runs, and returns when it is ready. Pause stops it without ending
// it, so that connections stay and no answer comes, and Resume lets it go on. Output
// returns the end of its output.
type Process = servers.Process

// patience bounds the wait for a response of the API server. It only bounds a test
// that hangs.
const patience = 5 * time.Minute

// A Server is a kube-apiserver with its etcd. Its methods may be called from
// any goroutine.
type Server struct {
	API  *Process // kube-apiserver
	Etcd *Process

	bin, dir string
	ports    []func() // which release them
	url      string
	caFile   string
	token    string       // of admin
	probe    *http.Client // as admin, once the API server listens
	names    atomic.Int64
}

var shared struct {
	mu     sync.Mutex // guards what follows
	server *Server
	err    error
}

// Main runs the tests and then ends the shared server, if a test wanted it. It
// returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.Close()
	}
	return code
}

// Shared returns the server of this package's tests, and starts it first if
// none wanted it before. The test fails if there is none.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = Start(context.WithoutCancel(t.Context()))
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Start starts a server of its own and returns when it is ready. The flags are
// added to those of kube-apiserver. Close ends it.
func Start(ctx context.Context, flags ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir}
	if err := s.start(ctx, flags); err != nil {
		s.Close()
		return nil, fmt.Errorf("kubetest: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, flags []string) error {
	var addresses [3]string
	for i := range addresses {
		address, release, err := servers.HoldPort()
		if err != nil {
			return err
		}
		addresses[i], s.ports = address, append(s.ports, release)
	}
	client, peer := "http://"+addresses[0], "http://"+addresses[1]
	s.url = "https://" + addresses[2]
	_, port, err := net.SplitHostPort(addresses[2])
	if err != nil {
		return err
	}
	// The API server makes its key and its certificate by itself, and serves with them.
	key := filepath.Join(s.dir, "apiserver.key")
	s.caFile = filepath.Join(s.dir, "apiserver.crt")
	s.token = rand.Text()
	tokens := filepath.Join(s.dir, "tokens")
	if err := os.WriteFile(tokens, []byte(s.token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}

	s.Etcd = &Process{
		Path: filepath.Join(s.bin, "etcd"),
		Args: []string{
			"--data-dir=" + filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
		},
		Ready: func(ctx context.Context) error { return get(ctx, http.DefaultClient, client+"/readyz") },
	}
	s.API = &Process{
		Path: filepath.Join(s.bin, "kube-apiserver"),
		Args: append([]string{
			"--etcd-servers=" + client, "--bind-address=127.0.0.1", "--secure-port=" + port,
			"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
			"--cert-dir=" + s.dir, "--token-auth-file=" + tokens, "--authorization-mode=RBAC",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
			"--service-cluster-ip-range=10.0.0.0/24",
		}, flags...),
		Ready: func(ctx context.Context) error {
			probe, err := rest.HTTPClientFor(s.Admin()) // of a certificate that may be new
			if err == nil {
				err = get(ctx, probe, s.url+"/readyz")
			}
			if err == nil && s.probe == nil {
				s.probe = probe
			}
			return err
		},
	}
	if err := s.Etcd.Start(ctx); err != nil {
		return err
	}
	return s.API.Start(ctx)
}

// Close ends both processes, at once, and removes their data.
func (s *Server) Close() {
	// Asked politely, kube-apiserver waits up to a minute for its watches.
	for _, p := range []*Process{s.API, s.Etcd} {
		if p != nil {
			p.Kill()
		}
	}
	for _, release := range s.ports {
		release()
	}
	_ = os.RemoveAll(s.dir) // a temporary folder: at worst it stays
}

// get asks for something, with little patience: whoever calls it asks again.
func get(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return do(client, req)
}

func do(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	text, err := io.ReadAll(resp.Body)
	return errors.Join(fmt.Errorf("%s %s: %s: %s", req.Method, req.URL, resp.Status, text), err)
}

// Admin returns the configuration of a client that may do everything, without
// a limit of its own on requests.
func (s *Server) Admin() *rest.Config {
	return &rest.Config{
		Host:            s.url,
		QPS:             -1,
		BearerToken:     s.token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.caFile},
	}
}

// User returns the configuration of a client that is a user of that name, in
// these groups besides system:authenticated. It may do what roles allow.
func (s *Server) User(name string, groups ...string) *rest.Config {
	config := s.Admin()
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	return config
}

// Namespace makes a namespace for a test and returns its name. It stays, as
// there is no controller that would empty it.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name = fmt.Sprintf("%s-%d", name[:min(len(name), 40)], s.names.Add(1))
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/v1/namespaces", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if err := do(s.probe, req); err != nil {
		t.Fatal(err)
	}
	return name
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Kubectl runs kubectl as admin and returns what it printed. The test fails if
// kubectl does.
func (s *Server) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return s.KubectlInput(t, "", args...)
}

// KubectlInput is Kubectl with a standard input, for -f -.
func (s *Server) KubectlInput(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	flags := []string{
		"--server=" + s.url, "--certificate-authority=" + s.caFile, "--token=" + s.token,
		"--kubeconfig=/dev/null", "--cache-dir=" + filepath.Join(s.dir, "kubectl"),
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.bin, "kubectl"), append(flags, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return out.String()
}

const script = "adapters/kube/testserver/build.sh"

// versions are those of testserver/tools.mod.
const versions = "kubernetes-v1.36.3-etcd-v3.6.8"

// binaries returns the folder with etcd, kube-apiserver and kubectl, which is
// KUBETEST_BIN or else where testserver/build.sh puts them.
func binaries() (string, error) {
	bin := os.Getenv("KUBETEST_BIN")
	if bin == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		bin = filepath.Join(cache, "reconcile-kubetest", versions)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("kubetest: %w: run %s, which builds it", err, script)
		}
	}
	return bin, nil
}

// Eventually calls check until it returns nil. It is for what the API server
// knows a moment later than it says, and gives no sign of, such as a role or a
// new kind; everything else has a watch.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := servers.Retry(ctx, func(context.Context) error { return check() }); err != nil {
		t.Fatal(err)
	}
}
