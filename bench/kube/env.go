// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/bench/kube/files"
)

// An env is what a program runs in.
type env struct {
	dir, files string
	link       kubetest.Link
	proxy      *httptest.Server
	maps       typedcorev1.ConfigMapInterface
	cmd        *exec.Cmd
	out        bytes.Buffer
	version    []int         // of each object that there is
	began      time.Duration // from the start of the program until all files were there
}

// namespace makes one, and a client.
func namespace(ctx context.Context, s *kubetest.Server) (client *typedcorev1.CoreV1Client, name string, err error) {
	if client, err = typedcorev1.NewForConfig(s.Admin()); err != nil {
		return nil, "", err
	}
	ns, err := client.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "compare-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, "", err
	}
	return client, ns.Name, nil
}

// newEnv makes objects, starts the program, and waits until it has come to all.
func newEnv(ctx context.Context, s *kubetest.Server, program string, objects int) (_ *env, err error) {
	e := new(env)
	if e.dir, err = os.MkdirTemp("", "compare-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	e.files = filepath.Join(e.dir, "files")
	if err = os.Mkdir(e.files, 0o755); err != nil {
		return nil, err
	}
	client, ns, err := namespace(ctx, s)
	if err != nil {
		return nil, err
	}
	e.maps = client.ConfigMaps(ns)

	// The program reaches the server through a proxy that counts and fails.
	config := e.link.Config(s.Admin())
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	e.proxy = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:      nil,
	})
	kubeconfig := filepath.Join(e.dir, "kubeconfig")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, users: [],
clusters: [{name: x, cluster: {server: %q}}], contexts: [{name: x, context: {cluster: x}}]}`, e.proxy.URL)
	if err = os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		return nil, err
	}
	e.cmd = exec.Command(program)
	e.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "NAMESPACE="+ns, "DIR="+e.files)
	e.cmd.Stdout = &e.out
	if err = e.create(ctx, objects); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err = e.cmd.Start(); err != nil {
		return nil, err
	}
	if err = e.wait(ctx); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	e.began = time.Since(begin)
	return e, nil
}

// create makes objects in the version 0.
func (e *env) create(ctx context.Context, n int) error {
	e.version = make([]int, n)
	return each(n, func(i int) error {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name(i)},
			Data:       map[string]string{"text": text(i, 0), "more": strings.Repeat("x", 500)},
		}
		_, err := e.maps.Create(ctx, cm, metav1.CreateOptions{})
		return err
	})
}

// update brings an object to its next version.
func (e *env) update(ctx context.Context, i int) error {
	e.version[i]++
	patch := fmt.Appendf(nil, `{"data":{"text":%q}}`, text(i, e.version[i]))
	_, err := e.maps.Patch(ctx, name(i), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// stop ends the program, and puts what it says and took into v.
func (e *env) stop(v values) error {
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := e.cmd.Wait(); err != nil {
		return err
	}
	var runs, allocations int
	if _, err := fmt.Sscanf(e.out.String(), files.Words, &runs, &allocations); err != nil {
		return fmt.Errorf("the program said %q: %w", e.out.String(), err)
	}
	v["runs"], v["allocations"] = float64(runs), float64(allocations)/1e6
	v["processor"] = (e.cmd.ProcessState.UserTime() + e.cmd.ProcessState.SystemTime()).Seconds()
	return nil
}

func (e *env) close() {
	if e.cmd != nil && e.cmd.Process != nil && e.cmd.ProcessState == nil {
		_ = e.cmd.Process.Kill() // it failed: whether it still runs is no matter
		_ = e.cmd.Wait()
	}
	if e.proxy != nil {
		e.link.Cut()
		e.proxy.Close()
	}
	_ = os.RemoveAll(e.dir) // a temporary folder: at worst it stays
}

// each calls f for 0 to n-1, a few at a time.
func each(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	const workers = 8
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// wait waits until there is a file for each object, with the text of its version.
func (e *env) wait(ctx context.Context) error {
	n, right := len(e.version), 0 // up to right they were as wanted at some time
	for {
		entries, err := os.ReadDir(e.files)
		if err != nil {
			return err
		}
		for right < n {
			data, err := os.ReadFile(filepath.Join(e.files, name(right)))
			if err != nil || !strings.HasPrefix(string(data), text(right, e.version[right])+"\n") {
				break
			}
			right++
		}
		if right == n && len(entries) == n {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d files, want %d; %d are right: %w", len(entries), n, right, err)
		}
	}
}

// gone waits until the server has no object left.
func (e *env) gone(ctx context.Context) error {
	for {
		list, err := e.maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d objects are left: %w", len(list.Items), err)
		}
	}
}

// memory returns what the system says of the program, in MiB.
func (e *env) memory(field string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kb), " kB"), 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("the system does not say %s", field)
}
