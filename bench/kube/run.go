// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// A load is what a controller has to do in a round.
type load struct {
	Objects int // ConfigMaps that are there when it starts; half of them are updated later
	Many    int // the same again, with so many
	Hot     int // of them are updated many times

	// Settle is a pause for the last events of what a program did itself: nobody tells
	// when it has seen them.
	Settle time.Duration
}

var (
	full  = load{Objects: 1000, Many: 5000, Hot: 20, Settle: time.Second}
	short = load{Objects: 60, Many: 120, Hot: 20, Settle: 200 * time.Millisecond}
)

// Updates is how many objects are updated, one time each, as fast as they go.
func (l load) Updates() int { return l.Objects / 2 }

// Storm is how many updates each of Hot objects gets, as fast as they go.
func (l load) Storm() int { return max(2, l.Objects/50) }

// Faulty is how many are updated after the API server was killed.
func (l load) Faulty() int { return l.Objects / 10 }

// many is the load with many objects.
func (l load) many() load {
	l.Objects = l.Many
	return l
}

// values are what was measured of one program in one round.
type values map[string]float64

// run has the program do what the load is, with the server, and measures it. It
// also returns the requests, by verb and resource.
func run(ctx context.Context, s *kubetest.Server, program string, l load) (v values, sent map[string]int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	v = make(values)
	e, err := newEnv(ctx, s, program, l.Objects)
	if err != nil {
		return nil, nil, err
	}
	defer e.close()
	v["start"] = e.began.Seconds()
	if err := pause(ctx, l.Settle); err != nil {
		return nil, nil, err
	}
	if v["memory"], err = e.memory("VmRSS"); err != nil {
		return nil, nil, err
	}

	// Updates of many.
	if err := each(l.Updates(), func(i int) error { return e.update(ctx, i) }); err != nil {
		return nil, nil, err
	}
	if err := e.wait(ctx); err != nil {
		return nil, nil, fmt.Errorf("updates: %w", err)
	}

	// A storm on a few.
	if err := each(l.Hot, func(i int) error {
		for range l.Storm() {
			if err := e.update(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, nil, err
	}
	if err := e.wait(ctx); err != nil {
		return nil, nil, fmt.Errorf("storm: %w", err)
	}

	// The watch is cut, the server killed and started again, and throttles.
	e.link.Cut()
	s.API.Kill()
	if err := s.API.Start(ctx); err != nil {
		return nil, nil, err
	}
	begin := time.Now()
	e.link.Fail(throttled())
	for i := range l.Faulty() {
		if err := e.update(ctx, i); err != nil {
			return nil, nil, err
		}
	}
	if err := e.wait(ctx); err != nil {
		return nil, nil, fmt.Errorf("after the restart: %w", err)
	}
	v["recovery"] = time.Since(begin).Seconds()
	e.link.Fail(nil)

	// The end.
	begin = time.Now()
	if err := each(l.Objects, func(i int) error { return e.maps.Delete(ctx, name(i), metav1.DeleteOptions{}) }); err != nil {
		return nil, nil, err
	}
	e.version = nil
	if err := e.wait(ctx); err != nil {
		return nil, nil, fmt.Errorf("deletion: %w", err)
	}
	v["clean-up"] = time.Since(begin).Seconds()
	if err := e.gone(ctx); err != nil {
		return nil, nil, err
	}
	// A program that is told to end drops the events that it has not come to.
	if err := pause(ctx, l.Settle); err != nil {
		return nil, nil, err
	}
	if v["peak"], err = e.memory("VmHWM"); err != nil {
		return nil, nil, err
	}
	if err := e.stop(v); err != nil {
		return nil, nil, err
	}
	sent = e.link.Requests()
	for _, n := range sent {
		v["requests"] += float64(n)
	}
	return v, sent, nil
}

// throttled refuses each tenth request.
func throttled() kubetest.Fault {
	var mu sync.Mutex
	n := 0
	refuse := kubetest.TooManyRequests(1)
	return func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%10 == 0 {
			return refuse(req)
		}
		return nil, nil
	}
}

func name(i int) string          { return fmt.Sprintf("map-%d", i) }
func text(i, version int) string { return fmt.Sprintf("%d at %d;", i, version) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// verbs returns the requests in one line.
func verbs(sent map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(sent)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, sent[what]))
	}
	return strings.Join(parts, ", ")
}
