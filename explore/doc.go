// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package explore is fault injection for controllers. In go test it finds the faults that
// a crash, a lost response, a stale read or a lost event causes in a program that keeps
// actual state in sync with desired state. The program may use any loop or library.
//
// A test describes a [Scenario]: the fake world, the start of the controller, and the
// steps that change the world. [Run] plays the scenario once without faults. It then
// plays it again with one fault at a call or an event, for each call and each event. Each
// play is a plan. Plans run in bubbles of testing/synctest, where an hour takes no time.
// For the first plan after which the world is not in the expected state, Run finds the
// smallest plan that still fails, and prints its story, which can be replayed:
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
// The package imports only the standard library. For reconcilers of this module, use
// package reconciletest, which also knows the queue and the runs.
package explore
