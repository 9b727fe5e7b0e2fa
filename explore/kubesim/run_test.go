// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

// An eager caller hears of each event at once, in a goroutine.
type eager struct {
	ctx   context.Context
	hears sync.WaitGroup
	hear  func(event any)
}

func (e *eager) Do(context.Context, string, func() error) error                    { return nil }
func (e *eager) ReadAny(context.Context, string, func() (any, error)) (any, error) { return nil, nil }
func (e *eager) Context() context.Context                                          { return e.ctx }
func (e *eager) OnEvent(hear func(event any))                                      { e.hear = hear }
func (e *eager) EventOr(event any, _ map[explore.Fault]func())                     { e.hears.Go(func() { e.hear(event) }) }

func (e *eager) DoOr(context.Context, string, func() error, map[explore.Fault]func() error) error {
	return nil
}

// TestEventWhileWatchStarts is for the race detector.
func TestEventWhileWatchStarts(t *testing.T) {
	s := kubesim.NewServer()
	for i := range 100 {
		s.Create(owned("default", fmt.Sprint("a", i)))
	}
	e := &eager{ctx: t.Context()}
	w, err := kubernetes.NewForConfigOrDie(s.Config(e)).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	e.hears.Wait()
	w.Stop()
}

// TestStartReturnsNilLater has a program that ends, and is not there the next time.
func TestStartReturnsNilLater(t *testing.T) {
	kubesim.Silence()
	explore.Run(t, explore.Scenario[*kubesim.Server]{
		World: func() *kubesim.Server { return kubesim.NewServer() },
		Start: func(proc *explore.Process, _ *kubesim.Server) {
			starts := 0
			kubesim.Run(proc, func() kubesim.Runner {
				if starts++; starts > 1 {
					return nil
				}
				return reconcile.RunFunc(func(ctx context.Context) error {
					return errors.Join(proc.Do(ctx, "look", func() error { return nil }), errors.New("it ends"))
				})
			})
		},
		Steps: func(s *explore.Environment, _ *kubesim.Server) { s.Advance(time.Minute) },
		State: (*kubesim.Server).State,
	})
}
