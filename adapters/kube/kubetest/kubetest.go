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
	"errors"
	"fmt"
	"io"
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
)

// A Server is a kube-apiserver with its etcd. Its methods may be called from
// any goroutine.
type Server struct {
	API  *Process // kube-apiserver
	Etcd *Process

	bin, dir string
	held     []io.Closer // the ports
	url      string
	ca       *authority
	probe    *http.Client // as admin
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

func (s *Server) start(ctx context.Context, flags []string) (err error) {
	if s.ca, err = newAuthority(s.dir); err != nil {
		return err
	}
	var ports [3]string
	for i := range ports {
		var hold io.Closer
		if ports[i], hold, err = holdPort(); err != nil {
			return err
		}
		s.held = append(s.held, hold)
	}
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	s.url = "https://127.0.0.1:" + ports[2]
	if s.probe, err = rest.HTTPClientFor(s.Admin()); err != nil {
		return err
	}

	s.Etcd = &Process{
		path: filepath.Join(s.bin, "etcd"),
		args: []string{
			"--data-dir=" + filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
		},
		line: regexp.MustCompile(`ready to serve client requests`),
	}
	s.API = &Process{
		path: filepath.Join(s.bin, "kube-apiserver"),
		args: append([]string{
			"--etcd-servers=" + client, "--bind-address=127.0.0.1", "--secure-port=" + ports[2],
			"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
			"--tls-cert-file=" + s.ca.serverCert, "--tls-private-key-file=" + s.ca.serverKey,
			"--client-ca-file=" + s.ca.certFile, "--authorization-mode=RBAC",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + s.ca.serverKey,
			"--service-account-signing-key-file=" + s.ca.serverKey,
			"--service-cluster-ip-range=10.0.0.0/24",
		}, flags...),
		line:  regexp.MustCompile(`Serving securely on`),
		ready: s.ready,
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
	for _, port := range s.held {
		_ = port.Close()
	}
	_ = os.RemoveAll(s.dir) // a temporary folder: at worst it stays
}

// ready returns when the API server says that it is. It has no other sign of
// it than an answer, and asking is the only way to get one.
func (s *Server) ready(ctx context.Context) error {
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for {
		err := s.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-pause.C:
		}
	}
}

// get asks for something, with little patience: whoever calls it asks again.
func (s *Server) get(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return err
	}
	return s.do(req)
}

func (s *Server) do(req *http.Request) error {
	resp, err := s.probe.Do(req)
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
func (s *Server) Admin() *rest.Config { return s.User("admin", "system:masters") }

// User returns the configuration of a client that is a user of that name, in
// these groups besides system:authenticated. It may do what roles allow.
func (s *Server) User(name string, groups ...string) *rest.Config {
	cert, key := s.ca.client(name, groups)
	return &rest.Config{
		Host:            s.url,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.cert, CertData: cert, KeyData: key},
	}
}

// Namespace makes a namespace for a test and returns its name. It stays, as
// there is no controller that would empty it.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name = fmt.Sprintf("%s-%d", name[:min(len(name), 40)], s.names.Add(1))
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/api/v1/namespaces", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if err := s.do(req); err != nil {
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
		"--server=" + s.url, "--certificate-authority=" + s.ca.certFile,
		"--client-certificate=" + s.ca.adminCert, "--client-key=" + s.ca.adminKey,
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

// binaries returns the folder with etcd, kube-apiserver and kubectl, which is
// KUBETEST_BIN or else where testserver/build.sh puts them.
func binaries() (string, error) {
	bin := os.Getenv("KUBETEST_BIN")
	if bin == "" {
		var err error
		if bin, err = built(); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("kubetest: %w: run %s, which builds it", err, script)
		}
	}
	return bin, nil
}

// built returns the folder for the versions that this repository pins. It looks
// for the pins in the folders above, which have to be those of the repository.
func built() (string, error) {
	folder, err := os.Getwd() // of the package under test, if that is what runs
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, script)); err == nil {
			break
		}
		up := filepath.Dir(folder)
		if up == folder {
			return "", fmt.Errorf("kubetest: KUBETEST_BIN is empty, and no folder above this one has %s, which prints the folder that it names", script)
		}
		folder = up
	}
	pins, err := os.ReadFile(filepath.Join(folder, filepath.Dir(script), "tools.mod"))
	if err != nil {
		return "", err
	}
	kube := pinnedKube.FindSubmatch(pins)
	etcd := pinnedEtcd.FindSubmatch(pins)
	if kube == nil || etcd == nil {
		return "", fmt.Errorf("kubetest: the tools.mod beside %s requires no Kubernetes or no etcd", script)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "reconcile-kubetest", fmt.Sprintf("kubernetes-%s-etcd-%s", kube[1], etcd[1])), nil
}

var (
	pinnedKube = regexp.MustCompile(`(?m)^(?:require)?\s*k8s\.io/kubernetes (v\S+)`)
	pinnedEtcd = regexp.MustCompile(`(?m)^(?:require)?\s*go\.etcd\.io/etcd/server/v3 (v\S+)`)
)

// Eventually calls check until it returns nil. It is for what the API server
// knows a moment later than it says, and gives no sign of, such as a role or a
// new kind; everything else has a watch.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-pause.C:
		}
	}
}
