// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/controllerruntime"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	kubesim.Silence() // before goroutines of a Manager, which outlive their test, read the logger of klog
	os.Exit(kubetest.Main(m))
}

// A process is a manager with a controller of theirs and one of ours, each of Pods.
type process struct {
	link  kubetest.Link
	probe string // the address of its health checks

	mu           sync.Mutex // guards what follows
	ours, theirs map[string]int
	cleaned      []string
}

func (p *process) ran(of map[string]int, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of[name]++
}

func (p *process) runs() (ours, theirs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ours), len(p.theirs)
}

// start starts a process, which stop ends.
func start(t *testing.T, s *kubetest.Server, ns string) (p *process, stop func()) {
	t.Helper()
	p = &process{ours: make(map[string]int), theirs: make(map[string]int)}
	var err error
	if p.probe, err = freeAddress(); err != nil { // the manager takes an address alone
		t.Fatal(err)
	}
	again := true
	m, err := ctrl.NewManager(p.link.Config(s.Admin()), ctrl.Options{
		Metrics:                       server.Options{BindAddress: "0"},
		HealthProbeBindAddress:        p.probe,
		LeaderElection:                true,
		LeaderElectionID:              "pods",
		LeaderElectionNamespace:       ns,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(time.Minute), // none is to be lost on a slow machine
		RenewDeadline:                 new(40 * time.Second),
		Cache:                         ctrlcache.Options{ByObject: map[client.Object]ctrlcache.ByObject{&corev1.Pod{}: {Field: fields.OneTermEqualSelector("metadata.namespace", ns)}}},
		Controller:                    ctrlconfig.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(m).For(&corev1.Pod{}).Complete(ctrlreconcile.Func(func(_ context.Context, r ctrl.Request) (ctrl.Result, error) {
		p.ran(p.theirs, r.Name)
		return ctrl.Result{}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.add(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return p, kubetest.Run(t, reconcile.RunFunc(m.Start))
}

// freeAddress returns an address that nobody uses. Its port is below those that a
// system takes for outgoing connections.
func freeAddress() (string, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20000+rand.IntN(12000))); err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", err
}

// add adds the controller of ours: it has a finalizer on each Pod, and writes its status.
func (p *process) add(ctx context.Context, m manager.Manager) error {
	informer, err := controllerruntime.Informer(ctx, m, &corev1.Pod{})
	if err != nil {
		return err
	}
	pods := func(ns string) kube.Client[*corev1.Pod] {
		return controllerruntime.Client(m.GetClient(), m.GetAPIReader(), ns, func() *corev1.Pod { return new(corev1.Pod) })
	}
	c := &kube.Controller[*corev1.Pod]{Name: "ours", Informer: informer}
	guard := &finalizer.Guard[cache.ObjectName, *corev1.Pod]{
		Name:   "example.com/pod",
		Get:    c.Get,
		Client: func(n cache.ObjectName) kube.Client[*corev1.Pod] { return pods(n.Namespace) },
		Ensure: func(ctx context.Context, pod *corev1.Pod) error {
			p.ran(p.ours, pod.Name)
			_, err := conditions.WriteStatus(ctx, pods(pod.Namespace), pod, func(pod *corev1.Pod) { pod.Status.Message = "seen" })
			return err
		},
		Clean: func(_ context.Context, pod *corev1.Pod) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.cleaned = append(p.cleaned, pod.Name)
			return nil
		},
	}
	c.ByName = guard.Reconcile
	return controllerruntime.Add(m, c.Name, c)
}

// ready asks for /readyz.
func (p *process) ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.probe+"/readyz/ours", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %w", resp.Status, text, err)
	}
	return nil
}

// TestBesideAManager has two processes, each a manager with one controller of theirs and
// one of ours for the same Pods: one watch for both, one Lease; the one that waits runs
// neither, and is ready; when the other ends, it takes over.
func TestBesideAManager(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	s.Kubectl(t, "create", "serviceaccount", "default", "-n", ns)
	p, err := clientOf(s)
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) {
		t.Helper()
		if err := p.Create(t.Context(), pod(ns, name)); err != nil {
			t.Fatal(err)
		}
	}
	create("a")
	a, stopA := start(t, s, ns)
	kubetest.Eventually(t, func() error {
		if ours, theirs := a.runs(); ours != 1 || theirs != 1 {
			return fmt.Errorf("%d Pods were run by ours and %d by theirs, want 1", ours, theirs)
		}
		return a.ready(t.Context())
	})
	b, _ := start(t, s, ns)
	kubetest.Eventually(t, func() error { return b.ready(t.Context()) })
	create("b")
	kubetest.Eventually(t, func() error {
		var pod corev1.Pod
		err := p.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "b"}, &pod)
		if err == nil && (pod.Status.Message != "seen" || len(pod.Finalizers) != 1) {
			err = fmt.Errorf("the status of b is %q, its finalizers are %q", pod.Status.Message, pod.Finalizers)
		}
		return err
	})
	if ours, theirs := b.runs(); ours != 0 || theirs != 0 {
		t.Errorf("the one that waits has run %d and %d Pods", ours, theirs)
	}
	if n := a.link.Requests()["WATCH pods"]; n != 1 {
		t.Errorf("%d watches of Pods, want one for both controllers", n)
	}
	stopA()

	if err := p.Delete(t.Context(), pod(ns, "a"), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, func() error {
		if err := p.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "a"}, new(corev1.Pod)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("a is there, or: %w", err)
		}
		return nil
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.Join(b.cleaned, " ") != "a" {
		t.Errorf("the next leader has cleaned %q, want a", b.cleaned)
	}
}

// TestClient reads live, writes what it is told, and says what went wrong.
func TestClient(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	c, err := clientOf(s)
	if err != nil {
		t.Fatal(err)
	}
	configs := controllerruntime.Client(c, c, ns, func() *corev1.ConfigMap { return new(corev1.ConfigMap) })
	if _, err := configs.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of what is not there: %v", err)
	}
	if _, err := configs.Patch(t.Context(), "a", "application/merge-patch+json", []byte(`{}`), metav1.PatchOptions{}, "a", "b"); err == nil {
		t.Error("Patch of two subresources: no error")
	}
	if err := controllerruntime.Add(nil, "", nil); err == nil || errors.Is(err, reconcile.ErrTerminal) {
		t.Errorf("Add of nothing: %v", err)
	}
}

// A started is a manager that has started: it takes runnables, and no checks.
type started struct {
	manager.Manager
	added int
}

func (*started) GetLogger() logr.Logger { return logr.Discard() }

func (*started) AddReadyzCheck(string, healthz.Checker) error { return errors.New("too late") }

func (m *started) Add(manager.Runnable) error {
	m.added++
	return nil
}

// TestAddTooLate returns an error, and adds nothing then.
func TestAddTooLate(t *testing.T) {
	m := new(started)
	if err := controllerruntime.Add(m, "late", &kube.Controller[*corev1.Pod]{}); err == nil || m.added != 0 {
		t.Errorf("Add to a manager that has started: %v; it was added %d times, want 0", err, m.added)
	}
}

func clientOf(s *kubetest.Server) (client.Client, error) {
	return client.New(s.Admin(), client.Options{})
}

func pod(ns, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox"}}},
	}
}
