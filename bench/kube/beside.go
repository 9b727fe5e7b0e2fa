// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// A delay is how long after an update its file was written.
type delay struct {
	sent     time.Duration // since before the update was sent
	answered time.Duration // since the API server had answered it; a file may be faster than the answer
}

// beside has all programs run at the same time, each on objects of its own, and
// updates one object after the other, at an even pace, in turns. So each sees
// the same server on the same machine: what an update takes until it is
// answered is most of a delay, and changes within seconds by more than the
// programs differ. It returns the delays of each program.
func beside(ctx context.Context, s *kubetest.Server, programs []string, l load) ([][]delay, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	envs := make([]*env, len(programs))
	for p, program := range programs {
		e, err := newEnv(ctx, s, program)
		if err != nil {
			return nil, err
		}
		defer e.close()
		if err := e.create(ctx, l.paced); err != nil {
			return nil, err
		}
		if err := e.start(); err != nil {
			return nil, err
		}
		if err := e.wait(ctx); err != nil {
			return nil, fmt.Errorf("%s: sync: %w", program, err)
		}
		envs[p] = e
	}
	if err := pause(ctx, l.settle); err != nil {
		return nil, err
	}

	type times struct{ sent, answered time.Time }
	took := make([][]times, len(envs))
	for i := range l.paced {
		for turn := range envs {
			p := (i + turn) % len(envs)
			begin := time.Now()
			if err := envs[p].update(ctx, i); err != nil {
				return nil, err
			}
			took[p] = append(took[p], times{begin, time.Now()})
			if err := pause(ctx, l.pace); err != nil {
				return nil, err
			}
		}
	}

	delays := make([][]delay, len(envs))
	for p, e := range envs {
		if err := e.wait(ctx); err != nil {
			return nil, fmt.Errorf("%s: updates: %w", programs[p], err)
		}
		for i, t := range took[p] {
			written, err := e.written(i)
			if err != nil {
				return nil, err
			}
			delays[p] = append(delays[p], delay{written.Sub(t.sent), written.Sub(t.answered)})
		}
		if _, _, err := e.stop(); err != nil {
			return nil, fmt.Errorf("%s: %w", programs[p], err)
		}
	}
	return delays, nil
}

// quantile returns the part of the values that lies below it, in milliseconds.
func quantile(delays []delay, part float64, value func(delay) time.Duration) float64 {
	all := make([]time.Duration, len(delays))
	for i, d := range delays {
		all[i] = value(d)
	}
	slices.Sort(all)
	return all[int(float64(len(all)-1)*part)].Seconds() * 1000
}
