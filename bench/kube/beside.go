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

// beside has all programs run at the same time, each on objects of its own, and
// updates one object after the other, at an even pace, in turns. So each sees
// the same server on the same machine: what an update takes until it is
// answered is most of a delay, and changes within seconds by more than the
// programs differ. It returns of each program how long after an update was sent
// its file was written.
func beside(ctx context.Context, s *kubetest.Server, programs []string, l load) ([][]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	envs := make([]*env, len(programs))
	for p, program := range programs {
		e, err := newEnv(ctx, s, program, l.Paced)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		defer e.close()
		envs[p] = e
	}
	if err := pause(ctx, l.Settle); err != nil {
		return nil, err
	}

	sent := make([][]time.Time, len(envs))
	for i := range l.Paced {
		for turn := range envs {
			p := (i + turn) % len(envs)
			sent[p] = append(sent[p], time.Now())
			if err := envs[p].update(ctx, i); err != nil {
				return nil, err
			}
			if err := pause(ctx, l.Pace); err != nil {
				return nil, err
			}
		}
	}

	delays := make([][]time.Duration, len(envs))
	for p, e := range envs {
		if err := e.wait(ctx); err != nil {
			return nil, fmt.Errorf("%s: updates: %w", programs[p], err)
		}
		for i, t := range sent[p] {
			written, err := e.written(i)
			if err != nil {
				return nil, err
			}
			delays[p] = append(delays[p], written.Sub(t))
		}
		if err := e.stop(make(values)); err != nil {
			return nil, fmt.Errorf("%s: %w", programs[p], err)
		}
	}
	return delays, nil
}

// quantile returns the part of the delays that lies below it, in milliseconds.
func quantile(delays []time.Duration, part float64) float64 {
	delays = slices.Sorted(slices.Values(delays))
	return delays[int(float64(len(delays)-1)*part)].Seconds() * 1000
}
