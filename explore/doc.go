// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package explore is fault injection for controllers: in go test it finds the faults that
// a crash, a lost answer, a stale read or a lost event causes in a program that keeps
// actual state in sync with desired state, whatever loop or library it uses.
//
// A test describes a [Scenario]: a fake world, how the controller is started, and what
// happens to it. [Run] plays it once without faults, and then again and again with a fault
// at each call and each event, in bubbles of [testing/synctest], where an hour takes no
// time. The first plan after which the world is not as it has to be is made as small
// as it can be, and printed as a story that can be played again:
//
//	func TestWidget(t *testing.T) {
//		explore.Run(t, explore.Scenario[*store]{
//			World: newStore,
//			Start: func(proc *explore.Process, s *store) {
//				client := &http.Client{Transport: explore.Transport(proc, s.handler())}
//				proc.Go(func(ctx context.Context) error { return mycontroller.Run(ctx, client) })
//			},
//			Steps: func(env *explore.Environment, s *store) {
//				s.want("a")
//				env.Advance(time.Minute)
//				s.unwant("a")
//			},
//			State: (*store).String,
//		})
//	}
//
// It needs the standard library only. Package reconciletest has the same for reconcilers
// of this module, whose queue and runs it knows.
package explore
