// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// A load is what a controller has to do in a run.
type load struct {
	objects int           // ConfigMaps that are there when it starts
	updates int           // of one object each, as fast as they go
	storm   int           // updates of each of 20 objects, as fast as they go
	faulty  int           // updates after the API server was killed
	paced   int           // updates of one object each, at an even pace; see beside
	pace    time.Duration // between two of them

	// settle is a pause for the last events of what a program did itself: nobody tells
	// when it has seen them.
	settle time.Duration
}

var (
	full  = load{objects: 5000, updates: 1500, storm: 50, faulty: 200, paced: 1000, pace: 20 * time.Millisecond, settle: 3 * time.Second}
	short = load{objects: 60, updates: 20, storm: 3, faulty: 10, paced: 20, pace: time.Millisecond, settle: 100 * time.Millisecond}
)

// events is how many changes of objects the load of a run makes, besides those
// that the controller makes itself: each object comes and is deleted.
func (l load) events() int { return 2*l.objects + l.updates + 20*l.storm + l.faulty }

// A result is what one run of one controller took.
type result struct {
	sync, clean, recover time.Duration
	rss, peak            float64       // MiB: with all objects known, and at most
	cpu                  time.Duration // of the program
	cleanCPU             time.Duration // of all that takes part, while it cleans up
	runs, requests       int
	sent                 map[string]int // requests, by verb and resource
}

// run has the program do what the load is, with the server, and measures it.
func run(ctx context.Context, s *kubetest.Server, program string, l load) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	e, err := newEnv(ctx, s, program)
	if err != nil {
		return r, err
	}
	defer e.close()

	if err := e.create(ctx, l.objects); err != nil {
		return r, err
	}

	// The start.
	begin := time.Now()
	if err := e.start(); err != nil {
		return r, err
	}
	if err := e.wait(ctx); err != nil {
		return r, fmt.Errorf("sync: %w", err)
	}
	r.sync = time.Since(begin)
	if err := pause(ctx, l.settle); err != nil {
		return r, err
	}
	if r.rss, err = e.memory("VmRSS"); err != nil {
		return r, err
	}

	// Updates of many.
	if err := e.each(l.updates, func(i int) error { return e.update(ctx, i) }); err != nil {
		return r, err
	}
	if err := e.wait(ctx); err != nil {
		return r, fmt.Errorf("updates: %w", err)
	}

	// A storm on a few.
	if err := e.each(20, func(i int) error {
		for range l.storm {
			if err := e.update(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return r, err
	}
	if err := e.wait(ctx); err != nil {
		return r, fmt.Errorf("storm: %w", err)
	}

	// The watch is cut, the server killed and started again, and throttles.
	e.link.Cut()
	s.API.Kill()
	if err := s.API.Start(ctx); err != nil {
		return r, err
	}
	begin = time.Now()
	e.link.Fail(throttled())
	for i := range l.faulty {
		if err := e.update(ctx, i); err != nil {
			return r, err
		}
	}
	if err := e.wait(ctx); err != nil {
		return r, fmt.Errorf("after the restart: %w", err)
	}
	r.recover = time.Since(begin)
	e.link.Fail(nil)

	// The end.
	begin = time.Now()
	spent, err := processors()
	if err != nil {
		return r, err
	}
	if err := e.each(l.objects, func(i int) error { return e.maps.Delete(ctx, name(i), metav1.DeleteOptions{}) }); err != nil {
		return r, err
	}
	e.version = nil
	if err := e.wait(ctx); err != nil {
		return r, fmt.Errorf("deletion: %w", err)
	}
	r.clean = time.Since(begin)
	if err := e.gone(ctx); err != nil {
		return r, err
	}
	// A program that is told to end drops the events that it has not come to.
	if err := pause(ctx, l.settle); err != nil {
		return r, err
	}
	now, err := processors()
	if err != nil {
		return r, err
	}
	r.cleanCPU = now - spent
	if r.peak, err = e.memory("VmHWM"); err != nil {
		return r, err
	}
	if r.runs, r.cpu, err = e.stop(); err != nil {
		return r, err
	}
	r.sent = e.link.Requests()
	for _, n := range r.sent {
		r.requests += n
	}
	return r, nil
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

// processors returns the processor time of this process and its children: those
// that have ended, and those that run.
func processors() (time.Duration, error) {
	var all float64
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	me := strconv.Itoa(os.Getpid())
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// 12 (name) state parent …: the name may have anything in it.
		stat := string(data)
		fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
		mine := strings.HasPrefix(stat, me+" ")
		if len(fields) < 15 || !mine && fields[1] != me {
			continue
		}
		times := fields[11:13] // in user mode, in the system
		if mine {
			times = fields[11:15] // and those of children that have ended
		}
		for _, ticks := range times {
			n, err := strconv.ParseFloat(ticks, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			all += n / 100 // a tick is a hundredth of a second on every Linux
		}
	}
	return time.Duration(all * float64(time.Second)), nil
}

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
func (r result) verbs() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(r.sent)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, r.sent[what]))
	}
	return strings.Join(parts, ", ")
}
