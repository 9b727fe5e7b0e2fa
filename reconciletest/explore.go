// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
)

// A Scenario is the input of [Explore]: a controller of items of type T, and a world of
// type W. It is an [explore.Scenario] whose processes have a queue and whose events are
// items. [explore.Scenario] describes the fields that are not described here.
type Scenario[T comparable, W any] struct {
	World func() W

	// CustomFaults lists the faults that [Env.DoOr], [Env.ReadAnyOr] and
	// [explore.TransportOr] implement.
	CustomFaults []explore.Fault

	// Start starts the controller with [Env.Start] and [Env.Go], and returns. It is
	// called for each process, in a goroutine of that process: at the beginning, and one
	// second after each death. A new process knows nothing of the process before, and has
	// a new queue. The calls of a dead process no longer reach the world.
	Start func(env *Env[T], w W)

	Others    []func(env *Env[T], w W)
	Steps     func(s *Environment[T], w W)
	State     func(w W) string
	Invariant func(w W) error
	Final     func(w W) error
	Close     func(w W)
	Without   []explore.Fault
	With      []explore.Fault
	Stable    bool
	All       bool
	Within    time.Duration
	Plans     int
	Budget    time.Duration
	Parallel  int
	Seed      uint64
	Replay    []string
	Known     [][]string
}

// An Environment is the argument of the Steps of a Scenario. Its methods may be called
// only from the goroutine of Steps.
type Environment[T comparable] struct{ env *explore.Environment }

// Advance lets d pass. It returns when all work that is due by then is done. While Steps
// does anything else, the controller does not run.
func (s *Environment[T]) Advance(d time.Duration) { s.env.Advance(d) }

// Event reports to the process that something happened to an item, as [Env.Event] does,
// once time passes. If there is no process at that time, the event is lost.
func (s *Environment[T]) Event(item T) { s.env.Event(item) }

// Redeploy stops the process, as the installation of a new version does: its context ends
// now, and half a minute later the next process starts.
func (s *Environment[T]) Redeploy() { s.env.Redeploy() }

// Note writes a line to the journal.
func (s *Environment[T]) Note(text string) { s.env.Note(text) }

// Explore plays a scenario without faults, then with each single fault at each call and
// event, then with pairs of faults, as [explore.Run] does. The test fails at the first plan
// after which the world is not in the expected state. It prints a story: the smallest plan that
// fails, with its journal.
//
// A plan fails in the cases of [explore.Run], and in two more: an item has work left an
// hour after the last fault (see Within), or an event was enqueued and no run followed.
// An item that waits only for a recheck, by [reconcile.RecheckWithin], has no work left.
//
// Random choices of the controller make plans differ. Those of package reconcile do not:
// in a plan the seed of each of them is its time.
//
// Explore must not be called in a bubble. It blocks as long as Plans and Budget allow, or
// until all single faults have been played if that takes longer.
func Explore[T comparable, W any](t *testing.T, s Scenario[T, W]) {
	t.Helper()
	explore.Run(t, s.Untyped())
}

// Untyped returns the scenario as an [explore.Scenario], for [explore.Search].
func (s Scenario[T, W]) Untyped() explore.Scenario[W] {
	untyped := explore.Scenario[W]{
		World: s.World, State: s.State, Invariant: s.Invariant, Final: s.Final, Close: s.Close,
		CustomFaults: s.CustomFaults, Without: s.Without, With: s.With, Stable: s.Stable, All: s.All, Within: s.Within,
		Plans: s.Plans, Budget: s.Budget, Parallel: s.Parallel, Seed: s.Seed, Replay: s.Replay, Known: s.Known,
		Start: typedStart(s.Start),
	}
	for _, start := range s.Others {
		untyped.Others = append(untyped.Others, typedStart(start))
	}
	if s.Steps != nil {
		untyped.Steps = func(env *explore.Environment, w W) { s.Steps(&Environment[T]{env}, w) }
	}
	return untyped
}

func typedStart[T comparable, W any](start func(*Env[T], W)) func(*explore.Process, W) {
	if start == nil {
		return nil
	}
	return func(plan *explore.Process, w W) { start(newProcess[T](plan), w) }
}

// workMax is how long an item may have work left at rest, from one success to the next.
const workMax = time.Minute

// A process is what an Env knows of the runs in a plan.
type process[T comparable] struct {
	*explore.Process
	env *Env[T]

	mu   sync.Mutex          // guards the fields below
	runs uint64              // of reconcilers that are watched
	owed map[T]time.Duration // when the events came that no run has followed
	left map[T]time.Duration // since when there is work left, by their runs
}

func newProcess[T comparable](plan *explore.Process) *Env[T] {
	env := newEnv[T](plan.Errorf, slog.DiscardHandler)
	p := &process[T]{Process: plan, env: env, owed: map[T]time.Duration{}, left: map[T]time.Duration{}}
	env.ctx, env.plan, env.begun = plan.Context(), p, time.Now().Add(-plan.Now())
	plan.OnEvent(func(event any) { p.hear(event.(T)) })
	plan.Unfinished(p.unfinished)
	return env
}

func (p *process[T]) now() time.Duration { return time.Since(p.env.begun) }

// hear takes in an event.
func (p *process[T]) hear(item T) {
	if p.env.Events == nil {
		p.mu.Lock()
		p.owed[item] = p.now()
		p.mu.Unlock()
	}
	p.env.events().Enqueue(item)
}

// begin notes that a run begins, and reports whether it may.
func (p *process[T]) begin(item T) bool {
	p.mu.Lock()
	p.runs++
	delete(p.owed, item)
	p.mu.Unlock()
	return p.Step()
}

// result notes how a run ended, and reports whether that is of interest.
func (p *process[T]) result(r reconcile.Result[T]) bool {
	if context.Cause(p.Context()) != nil {
		return false
	}
	p.mu.Lock()
	switch _, known := p.left[r.Item]; {
	case r.Outcome != reconcile.OutcomeRequeued && r.Outcome != reconcile.OutcomeRetrying:
		delete(p.left, r.Item)
	case !known:
		p.left[r.Item] = p.now()
	}
	p.mu.Unlock()
	if panicked := (*reconcile.PanicError)(nil); errors.As(r.Err, &panicked) {
		p.Errorf("the run of %v panicked: %v\n%s", r.Item, panicked.Value, panicked.Stack)
	}
	p.Process.Note(resultLine[T](r))
	return true
}

// A resultLine is a line of the journal, formatted when that is printed.
type resultLine[T comparable] reconcile.Result[T]

func (r resultLine[T]) String() string { return resultText(reconcile.Result[T](r)) }

// unfinished names an item that has had work left for a while, or is owed a run, if there
// is one.
func (p *process[T]) unfinished() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.env.Queue.Stats()
	if stats.Ready+stats.Waiting+stats.InFlight > stats.Rechecks {
		for item, state := range p.env.Queue.All() {
			since, known := p.left[item]
			if !known {
				since = state.Since.Sub(p.env.begun)
			}
			if !state.Recheck && p.now()-since > workMax {
				return p.env.stateText(item, state)
			}
		}
	}
	if stats.Taken > p.runs {
		return "" // somebody else takes items, whose runs are not known
	}
	owed := ""
	for item, at := range p.owed {
		text := fmt.Sprintf("no run followed the event %v of %v", item, at)
		if !p.env.Queue.Has(item) && (owed == "" || text < owed) { // the same one each time
			owed = text
		}
	}
	return owed
}

// list calls GetItems of a poller.
func (p *process[T]) list(ctx context.Context, list func(context.Context) ([]T, error)) (items []T, err error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			p.Errorf("GetItems panicked: %v\n%s", v, debug.Stack())
			err = explore.ErrInjected
		} else if !returned {
			p.Errorf("GetItems called runtime.Goexit, perhaps by t.FailNow")
		}
	}()
	items, err = list(ctx)
	returned = true
	return items, err
}
