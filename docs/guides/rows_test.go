// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/reconciletest"
	"github.com/reconkernel/reconcile/tracker"
)

// The program of rows.md.

// A scan is a row of the database.
type scan struct {
	Status  string    // pending, running, done, failed, canceled or timed out
	Until   time.Time // running: when it has timed out
	Machine bool      // it may have a virtual machine
}

var (
	errNoRow    = errors.New("no such row")
	errConflict = errors.New("the row has changed since it was read")
)

// A scanner is what the controller works with: the database, and a provider of virtual
// machines with the ID of the scan, each of which is running, done or failed.
type scanner interface {
	list(ctx context.Context) (map[string]string, error) // the rows that have not ended, or may have a machine, with their status
	rows(ctx context.Context) (map[string]scan, error)   // the rows that may have a machine, or have changed within a week
	get(ctx context.Context, id string) (scan, error)
	put(ctx context.Context, id string, was, s scan) error     // errConflict if the row is not as it was
	reserve(ctx context.Context, id string, was, s scan) error // as put; errFull if scanLimit rows may have a machine
	oldest(ctx context.Context) (string, error)                // of the pending rows without a machine
	start(ctx context.Context, id string) error                // nil if it exists
	state(ctx context.Context, id string) (string, error)      // "" if it does not exist
	remove(ctx context.Context, id string) error               // nil if it does not exist
	machines(ctx context.Context) (map[string]string, error)   // those of this service, with their states
}

const (
	scanPeriod  = 15 * time.Second
	scanTimeout = 10 * time.Minute
	scanLimit   = 2
	callTimeout = 10 * time.Second // of the provider
)

// errFull is a scheduled run, and no failure.
var errFull = fmt.Errorf("no place: %w", reconcile.RequeueWithin(scanPeriod))

// A scanning is what the steps of a scan use.
type scanning struct {
	scanner
	queue reconcile.Enqueuer[string]
}

// step does the next step of a scan.
func (w scanning) step(ctx context.Context, id string) error {
	s, err := w.get(ctx, id)
	was := s
	switch {
	case errors.Is(err, errNoRow):
		return nil // there is no work; an error would be retried
	case err != nil:
		return err
	case s.Machine && s.Status != "running":
		return w.clean(ctx, id, s) // deletes the machine, then writes Machine = false
	case s.Status != "pending" && s.Status != "running":
		return nil // the scan has ended
	case !s.Machine:
		s = scan{"running", time.Now().Add(scanTimeout), true}
		return cmp.Or(w.reserve(ctx, id, was, s), reconcile.RequeueWithin(0)) // the next run starts the machine
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := "", w.start(call, id) // nil if it exists
	if err == nil {
		state, err = w.state(call, id)
	}
	switch {
	case state == "done" || state == "failed":
		s.Status = state
	case !time.Now().Before(s.Until): // also if err is not nil
		s.Status = "timed out"
	case err != nil:
		return err
	default:
		return fmt.Errorf("scanning: %w", reconcile.RequeueWithin(scanPeriod))
	}
	return cmp.Or(w.put(ctx, id, was, s), reconcile.RequeueWithin(0))
}

// clean deletes the machine, and lets the oldest scan that waits begin.
func (w scanning) clean(ctx context.Context, id string, was scan) error {
	if err := w.remove(ctx, id); err != nil {
		return err
	}
	s := was
	s.Machine = false
	if err := w.put(ctx, id, was, s); err != nil {
		return err
	}
	if next, err := w.oldest(ctx); err == nil { // else it begins within scanPeriod
		w.queue.Enqueue(next)
	}
	if s.Status == "pending" {
		return reconcile.RequeueWithin(0)
	}
	return nil
}

// runScans returns the parts that run the scans.
func runScans(queue *reconcile.Queue[string], w scanner) (*tracker.Tracker[string, string], *reconcile.Reconciler[string]) {
	rows := &tracker.Tracker[string, string]{
		Queue:  queue,
		Period: scanPeriod,
		List:   tracker.FromMap(w.list), // the status is the version
		Resync: time.Minute,
	}
	scans := &reconcile.Reconciler[string]{
		Queue:     queue,
		Reconcile: scanning{w, queue}.step,
		Workers:   4,
		Timeout:   time.Minute,
		Retry:     reconcile.Backoff(time.Second, scanPeriod),
	}
	return rows, scans
}

// sweepMachines returns the parts that delete the machines without a scan.
func sweepMachines(w scanner) (*keep.Set[string, scan, string], *reconcile.Reconciler[string]) {
	queue := reconcile.NewQueue[string]()
	machines := &keep.Set[string, scan, string]{
		Queue:   queue,
		Period:  time.Minute,
		Actual:  w.machines,
		Desired: w.rows,
		Absent:  func(s scan) bool { return s.Status != "" && !s.Machine },
		Ensure:  func(context.Context, string, scan) error { return nil }, // step starts the machine
		Delete: func(ctx context.Context, id, _ string) error {
			s, err := w.get(ctx, id)
			if err == nil && s.Machine || err != nil && !errors.Is(err, errNoRow) {
				return err // the scan has begun again, or the database is down
			}
			return w.remove(ctx, id)
		},
	}
	return machines, &reconcile.Reconciler[string]{Queue: queue, Reconcile: machines.Reconcile, Timeout: callTimeout}
}

// A clinic is the world of the tests: the database and the provider.
type clinic struct {
	mu       sync.Mutex // guards the fields below
	rows     map[string]scan
	machines map[string]time.Time // when each began
	most     int                  // machines of rows at once
}

// durations are those of the scans; the others take for ever.
var durations = map[string]time.Duration{"short": time.Minute, "other": 2 * time.Minute, "canceled": time.Minute}

type clinicClient struct {
	env *reconciletest.Env[string]
	*clinic
}

// do is a call to the database, whose answers are never stale, or one that changes the provider.
func (c clinicClient) do(ctx context.Context, op string, effect func() error) error {
	return c.env.Do(ctx, op, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return effect()
	})
}

func (c clinicClient) list(ctx context.Context) (all map[string]string, err error) {
	err = c.do(ctx, "list rows", func() error {
		all = map[string]string{}
		for id, s := range c.clinic.rows {
			if s.Machine || s.Status == "pending" || s.Status == "running" {
				all[id] = s.Status
			}
		}
		return nil
	})
	return all, err
}

func (c clinicClient) rows(ctx context.Context) (all map[string]scan, err error) {
	err = c.do(ctx, "list all rows", func() error { all = maps.Clone(c.clinic.rows); return nil })
	return all, err
}

func (c clinicClient) get(ctx context.Context, id string) (s scan, err error) {
	err = c.do(ctx, "get row "+id, func() error {
		var ok bool
		if s, ok = c.clinic.rows[id]; !ok {
			return errNoRow
		}
		return nil
	})
	return s, err
}

func (c clinicClient) put(ctx context.Context, id string, was, s scan) error {
	return c.do(ctx, "put row "+id, func() error {
		if now := c.clinic.rows[id]; now.Status != was.Status || now.Machine != was.Machine {
			return errConflict
		}
		c.clinic.rows[id] = s
		return nil
	})
}

func (c clinicClient) reserve(ctx context.Context, id string, was, s scan) error {
	return c.do(ctx, "reserve "+id, func() error {
		n := 0
		for _, s := range c.clinic.rows {
			if s.Machine {
				n++
			}
		}
		switch {
		case n >= scanLimit:
			return errFull
		case c.clinic.rows[id] != was:
			return errConflict
		}
		c.clinic.rows[id] = s
		return nil
	})
}

func (c clinicClient) oldest(ctx context.Context) (next string, err error) {
	err = c.do(ctx, "find the next row", func() error {
		for id, s := range c.clinic.rows { // the order of their names
			if s.Status == "pending" && !s.Machine && (next == "" || id < next) {
				next = id
			}
		}
		if next == "" {
			return errNoRow
		}
		return nil
	})
	return next, err
}

func (c clinicClient) start(ctx context.Context, id string) error {
	return c.do(ctx, "start "+id, func() error {
		if id == "refused" {
			return errors.New("no such image")
		}
		if _, ok := c.clinic.machines[id]; !ok {
			c.clinic.machines[id] = time.Now()
		}
		n := 0
		for id := range c.clinic.machines {
			if c.clinic.rows[id].Machine {
				n++
			}
		}
		c.most = max(c.most, n)
		return nil
	})
}

func (c clinicClient) state(ctx context.Context, id string) (string, error) {
	if id == "mute" {
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	return reconciletest.Read(ctx, c.env, "state of "+id, func() (string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		at, ok := c.clinic.machines[id]
		d, ends := durations[id]
		switch {
		case !ok:
			return "", nil
		case !ends || time.Since(at) < d:
			return "running", nil
		case id == "canceled": // by an operator, meanwhile
			s := c.clinic.rows[id]
			s.Status = "canceled"
			c.clinic.rows[id] = s
		}
		return "done", nil
	})
}

func (c clinicClient) remove(ctx context.Context, id string) error {
	return c.do(ctx, "remove "+id, func() error { delete(c.clinic.machines, id); return nil })
}

func (c clinicClient) machines(ctx context.Context) (map[string]string, error) {
	return reconciletest.Read(ctx, c.env, "list machines", func() (map[string]string, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		all := map[string]string{}
		for id := range c.clinic.machines {
			all[id] = "running"
		}
		return all, nil
	})
}

// startScans runs the program in a test, without chance.
func startScans(env *reconciletest.Env[string], w scanner) *keep.Set[string, scan, string] {
	rows, scans := runScans(env.Queue, w)
	machines, sweep := sweepMachines(w)
	scans.Retry, sweep.Retry = nil, each(time.Second)
	env.Go(rows)
	env.Start(scans)
	env.Go(machines)
	env.Go(reconcile.RunFunc(sweep.Run))
	return machines
}

func newClinic(pending ...string) *clinic {
	c := &clinic{rows: map[string]scan{}, machines: map[string]time.Time{}}
	for _, id := range pending {
		c.rows[id] = scan{Status: "pending"}
	}
	return c
}

// scanScenario explores the program, whose processes see the world through wrap.
func scanScenario(wrap func(w scanner) scanner) explore.Scenario[*clinic] {
	return reconciletest.Scenario[string, *clinic]{
		World: func() *clinic { return newClinic("canceled", "hangs", "mute", "other", "refused", "short") },
		Start: func(env *reconciletest.Env[string], c *clinic) { startScans(env, wrap(clinicClient{env, c})) },
		Steps: func(s *reconciletest.Environment[string], c *clinic) {
			s.Advance(time.Hour)
			again := c.rows["short"]
			again.Status = "pending" // an operator begins it again
			c.rows["short"] = again
			c.rows["late"] = scan{Status: "canceled"} // and its machine appears now
			c.machines["late"] = time.Now()
			s.Advance(10 * time.Minute)
		},
		State: func(c *clinic) string { return "" }, // Final says what must be
		Final: func(c *clinic) error {
			if len(c.machines) > 0 || c.most > scanLimit {
				return fmt.Errorf("machines are left: %v, and there were %d at once", c.machines, c.most)
			}
			want := map[string]string{
				"canceled": "canceled", "hangs": "timed out", "late": "canceled", "mute": "timed out",
				"other": "done", "refused": "timed out", "short": "done",
			}
			for id, status := range want {
				// An outage of the provider may be longer than scanTimeout.
				if s := c.rows[id]; s.Machine || s.Status != status && s.Status != "timed out" {
					return fmt.Errorf("scan %s is %+v, want %s", id, s, status)
				}
			}
			return nil
		},
		Within: 30 * time.Minute,
		Plans:  900, // some of them have two faults
	}.Untyped()
}

// TestRows plays the program with faults.
func TestRows(t *testing.T) {
	explore.Run(t, scanScenario(func(w scanner) scanner { return w }))
}

// TestRowsBeginWhenOneEnds begins a scan at the instant at which another one ends.
func TestRowsBeginWhenOneEnds(t *testing.T) {
	reconciletest.Run(t, func(t *testing.T, env *reconciletest.Env[string]) {
		c := newClinic("hangs", "short", "waits")
		startScans(env, clinicClient{env, c})
		env.Advance(37 * time.Second)
		env.Event("short") // it is checked at 67 seconds, the row that waits at 75
		env.Advance(30 * time.Second)
		if c.machines["waits"].IsZero() {
			t.Errorf("the rows after 67 seconds are %v, want that %q runs", c.rows, "waits")
		}
	})
}

// TestRowsBeginAgainWithAnotherMachine begins a scan again that an operator sets to pending
// while it has a machine.
func TestRowsBeginAgainWithAnotherMachine(t *testing.T) {
	reconciletest.Run(t, func(t *testing.T, env *reconciletest.Env[string]) {
		c := newClinic("hangs")
		startScans(env, clinicClient{env, c})
		env.Advance(40 * time.Second)
		begun := c.machines["hangs"]
		c.rows["hangs"] = scan{Status: "pending", Machine: true}
		env.Advance(5 * time.Second) // until the next listing
		if got := c.machines["hangs"].Sub(begun); got != 45*time.Second {
			t.Errorf("the next machine began %v after the first one, want 45s", got)
		}
	})
}

// TestRowsThatAreDeleted deletes the machine of one row that is deleted, and no machine when
// the table is empty.
func TestRowsThatAreDeleted(t *testing.T) {
	reconciletest.Run(t, func(t *testing.T, env *reconciletest.Env[string]) {
		c := newClinic("deleted", "hangs")
		machines := startScans(env, clinicClient{env, c})
		env.Advance(time.Minute)
		delete(c.rows, "deleted")
		env.Advance(8 * time.Minute)
		if len(c.machines) != 1 || c.machines["hangs"].IsZero() {
			t.Errorf("the machines are %v, want that of %q alone", c.machines, "hangs")
		}
		clear(c.rows)
		env.Advance(time.Hour)
		if _, err := machines.Rejected(); len(c.machines) != 1 || !errors.Is(err, keep.ErrTooMany) {
			t.Errorf("the table is empty: machines %v, Rejected %v, want one machine and %v", c.machines, err, keep.ErrTooMany)
		}
	})
}

// TestRowsWithTimeoutInMemory finds a scan that never ends.
func TestRowsWithTimeoutInMemory(t *testing.T) {
	r, err := explore.Search(t, scanScenario(func(w scanner) scanner {
		return &forgetful{scanner: w, until: map[string]time.Time{}} // of this process
	}))
	if err != nil || r.Found == nil || !strings.Contains(fmt.Sprint(r.Found), "does not converge") {
		t.Errorf("the exploration finds %v, %v, %v, want a scan that never ends", r, r.Found, err)
	}
}

// forgetful keeps the time-outs in memory.
type forgetful struct {
	scanner
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

func (f *forgetful) get(ctx context.Context, id string) (scan, error) {
	s, err := f.scanner.get(ctx, id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Status == "running" && f.until[id].IsZero() {
		s.Until = time.Now().Add(scanTimeout) // it is not known any more
	}
	return s, err
}

func (f *forgetful) reserve(ctx context.Context, id string, was, s scan) error {
	f.mu.Lock()
	f.until[id] = s.Until
	f.mu.Unlock()
	return f.scanner.reserve(ctx, id, was, s)
}
