// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/gate"
)

// TestHealth asks about a Controller before its caches are whole, while it stands by,
// while it runs, and while a run does not end.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		release := make(chan struct{})
		s.c.Reconcile = func(context.Context, *corev1.ConfigMap) error {
			<-release
			return nil
		}
		h := &kube.Health{
			Live:  map[string]kube.Probe{"configs": s.c.NotStuck(10 * time.Minute)},
			Ready: map[string]kube.Probe{"configs": s.c.Ready, "all": func() (string, error) { return "is well", nil }},
		}
		ask := func(when, path string, code int, text string) {
			t.Helper()
			synctest.Wait()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != code || w.Body.String() != text {
				t.Errorf("%s: %s is %d %q, want %d %q", when, path, w.Code, w.Body, code, text)
			}
		}
		s.configs.Add(config("a", "1", "A"))
		ask("at first", "/readyz", 503, "[+]all: is well\n[-]configs: a cache is not whole: Run does not run it; if nothing else does, add Run(informer) to the group\nservice unavailable\n")
		ask("at first", "/healthz", 200, "[+]configs: stands by\nok\n")
		ask("at first", "/other", 404, "404 page not found\n")
		stopInformers := begin(t, s.c.Informers())
		ask("standing by", "/readyz", 200, "[+]all: is well\n[+]configs: stands by\nok\n")
		stop := begin(t, s.c)
		ask("running", "/readyz", 200, "[+]all: is well\n[+]configs: runs\nok\n")
		time.Sleep(10 * time.Minute)
		ask("running", "/healthz", 200, "[+]configs: runs\nok\n")
		time.Sleep(time.Minute)
		ask("stuck", "/healthz", 503, "[-]configs: a run of shop/a has not ended after 11m0s\nservice unavailable\n")
		close(release)
		ask("no longer", "/healthz", 200, "[+]configs: runs\nok\n")
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := stopInformers(); err != nil {
			t.Error(err)
		}
	})
}

// TestHealthAtAGate has what waits at a gate that pauses not count as a run that does
// not end.
func TestHealthAtAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.configs.Add(config("a", "1", "A"))
		g := new(gate.Gate)
		g.PauseUntil(time.Now().Add(time.Hour))
		s.c.With = func(p *kube.Parts) { p.Reconciler.Admit = g.Admit }
		stop := s.run()
		time.Sleep(30 * time.Minute)
		s.expect("in the pause")
		if says, err := s.c.NotStuck(10 * time.Minute)(); err != nil || says != "runs" {
			t.Errorf("in the pause: %q, %v", says, err)
		}
		time.Sleep(30 * time.Minute)
		s.expect("after it", "a map[v:1] owns 0")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestHealthAfterAFailure has a Run that failed be told until the next one begins.
func TestHealthAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		s.c.With = func(p *kube.Parts) { p.Reconciler.Timeout = -1 }
		stopInformers := begin(t, s.c.Informers())
		if err := s.c.Run(t.Context()); err == nil {
			t.Error("Run of a wrong Timeout: no error")
		}
		if says, err := s.c.Ready(); err == nil || !strings.Contains(err.Error(), "Timeout") {
			t.Errorf("after Run has failed: %q, %v", says, err)
		}
		s.c.With = nil
		stop := begin(t, s.c)
		synctest.Wait()
		if says, err := s.c.Ready(); err != nil || says != "runs" {
			t.Errorf("in the next Run: %q, %v", says, err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if says, err := s.c.Ready(); err != nil || says != "stands by" {
			t.Errorf("after it: %q, %v", says, err)
		}
		if err := stopInformers(); err != nil {
			t.Error(err)
		}
	})
}
