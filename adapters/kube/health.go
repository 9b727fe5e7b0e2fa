// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"
)

// A Probe says in a few words how something is, or what is wrong with it. It does not
// block, and may be called from any goroutine.
type Probe func() (says string, err error)

// Health answers the probes of a kubelet: /healthz, which restarts the process when it
// fails, and /readyz. Each asks its probes, by name, and fails if one does, with 503
// and the errors as text. Without probes all is well. It is an [http.Handler]:
//
//	group.Add("health", statuspage.Serve(":8081", &kube.Health{
//		Live:  map[string]kube.Probe{"buckets": buckets.NotStuck(10 * time.Minute)},
//		Ready: map[string]kube.Probe{"buckets": buckets.Ready},
//	}))
type Health struct {
	Live, Ready map[string]Probe
}

// ServeHTTP answers a request.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	probes, ok := map[string]map[string]Probe{"/healthz": h.Live, "/readyz": h.Ready}[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	var text strings.Builder
	status := http.StatusOK
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		switch says, err := probes[name](); {
		case err != nil:
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&text, "[-]%s: %v\n", name, err)
		default:
			fmt.Fprintf(&text, "[+]%s: %s\n", name, says)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text.String() + strings.ToLower(http.StatusText(status)) + "\n")) // who asked may be gone
}

// Ready is a [Probe]: it fails until the caches are whole, and after a Run that failed
// until the next begins. It fails as well once an informer, run by [Run], has failed to
// list and to watch for two minutes: a kind or a version that is gone, a right that is
// withdrawn, or one object that cannot be decoded. It says whether the Controller runs or stands by, as one does
// that another leads.
func (c *Controller[O]) Ready() (string, error) {
	for _, informer := range c.informers() {
		if err := whole(informer); err != nil {
			return "", err
		}
	}
	p := c.runs.Load()
	switch {
	case p == nil:
		if err := c.ended.Load(); err != nil && *err != nil {
			return "", fmt.Errorf("it has failed: %w", *err)
		}
		return "stands by", nil
	case !p.synced.Load():
		return "", errors.New("it begins: the caches are being passed on")
	}
	return "runs", nil
}

// Ready is a [Probe]: it fails as that of a Controller does, for the informer of this Source.
func (s *Source[T]) Ready() (string, error) { return "reads", whole(s.Informer) }

// NotStuck returns a [Probe] that fails while a run of the Controller takes longer than
// limit: far longer than Timeout of its Reconciler, as a restart ends all runs. What
// waits in Admit, as at a gate that pauses, does not run yet.
func (c *Controller[O]) NotStuck(limit time.Duration) Probe {
	return func() (string, error) {
		p := c.runs.Load()
		if p == nil {
			return "stands by", nil
		}
		for r := range p.going.Range {
			r := r.(*going)
			if took := time.Since(r.since); took > limit {
				return "", fmt.Errorf("a run of %s has not ended after %v", r.item, took.Round(time.Second))
			}
		}
		return "runs", nil
	}
}

// A going is a run that has begun and not ended.
type going struct {
	item  cache.ObjectName
	since time.Time
}

// timed returns run as one whose runs NotStuck knows.
func (p *Parts) timed(run func(context.Context, cache.ObjectName) error) func(context.Context, cache.ObjectName) error {
	if run == nil {
		return nil
	}
	return func(ctx context.Context, item cache.ObjectName) error {
		r := &going{item, time.Now()}
		p.going.Store(r, nil) // not by the item: a run that was given up goes on beside the next
		defer p.going.Delete(r)
		return run(ctx, item)
	}
}
