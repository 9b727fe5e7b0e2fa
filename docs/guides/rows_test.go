// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/reconciletest"
	"github.com/reconkernel/reconcile/tracker"
)

// The program of rows.md.

// A scan is a row of the database.
type scan struct {
	Status string    // pending, running, done, failed or timed out
	Until  time.Time // running: when it has timed out
	Clean  bool      // it has ended, and its virtual machine is deleted
}

// ended reports whether nothing more comes of a scan.
func (s scan) ended() bool { return s.Status != "pending" && s.Status != "running" }

var errNoRow = errors.New("no such row")

// A scanner is what the controller works with: the database, and a provider of virtual
// machines with the ID of the scan, each of which is running, done or failed.
type scanner interface {
	list(ctx context.Context) (map[string]string, error) // the rows that are not clean, with their status
	get(ctx context.Context, id string) (scan, error)
	put(ctx context.Context, id string, s scan) error
	busy(ctx context.Context) (int, error) // the scans that have begun and are not clean
	start(ctx context.Context, id string) error
	state(ctx context.Context, id string) (string, error) // "" if there is none
	remove(ctx context.Context, id string) error
}

const (
	scanPeriod  = 15 * time.Second
	scanTimeout = 10 * time.Minute
	scanLimit   = 2
)

// reconcileScan does the next step of one scan. Each step is written to the row.
func reconcileScan(ctx context.Context, w scanner, id string) error {
	s, err := w.get(ctx, id)
	switch {
	case errors.Is(err, errNoRow):
		return nil // or it is retried for ever
	case err != nil:
		return err
	case s.Clean:
		return nil
	case s.ended():
		return cleanScan(ctx, w, id, s)
	case s.Status == "pending":
		return beginScan(ctx, w, id)
	}
	if err := w.start(ctx, id); err != nil { // again, if the process died before: same ID, same machine
		return err
	}
	switch state, err := w.state(ctx, id); {
	case err != nil && time.Now().Before(s.Until):
		return err
	case state == "done" || state == "failed":
		s.Status = state
	case !time.Now().Before(s.Until): // also if the provider does not answer
		s.Status = "timed out"
	default:
		return fmt.Errorf("scanning: %w", reconcile.RequeueWithin(scanPeriod))
	}
	if err := w.put(ctx, id, s); err != nil {
		return err
	}
	return cleanScan(ctx, w, id, s)
}

// beginScan writes down that the scan runs, and until when, before it has any effect.
func beginScan(ctx context.Context, w scanner, id string) error {
	switch n, err := w.busy(ctx); {
	case err != nil:
		return err
	case n >= scanLimit: // those that are not cleaned up yet count
		return fmt.Errorf("%d scans hold a machine: %w", n, reconcile.RequeueWithin(scanPeriod))
	}
	s := scan{Status: "running", Until: time.Now().Add(scanTimeout)}
	if err := w.put(ctx, id, s); err != nil {
		return err
	}
	return fmt.Errorf("begun: %w", reconcile.RequeueWithin(0))
}

// cleanScan deletes what a scan used.
func cleanScan(ctx context.Context, w scanner, id string, s scan) error {
	if err := w.remove(ctx, id); err != nil {
		return err
	}
	s.Clean = true
	return w.put(ctx, id, s)
}

// runScans returns what a process runs.
func runScans(queue *reconcile.Queue[string], w scanner, step func(ctx context.Context, w scanner, id string) error) (*tracker.Tracker[string, string], *reconcile.Reconciler[string]) {
	rows := &tracker.Tracker[string, string]{
		Queue:  queue,
		Period: scanPeriod,
		List:   tracker.FromMap(w.list), // the status is the version
		Resync: time.Minute,
		Logger: quiet,
	}
	scans := &reconcile.Reconciler[string]{
		Queue:     queue,
		Reconcile: func(ctx context.Context, id string) error { return step(ctx, w, id) },
		Timeout:   time.Minute,
		Retry:     reconcile.Backoff(time.Second, scanPeriod).Limit(3), // then the next Resync
		Logger:    quiet,
	}
	return rows, scans
}

// A clinic is the world of the exploration.
type clinic struct {
	rows     map[string]scan
	machines map[string]time.Time // when each is done
	begun    time.Time
	most     int // machines at once
}

type clinicClient struct {
	env    *reconciletest.Env[string]
	clinic *clinic
}

func (c clinicClient) list(ctx context.Context) (map[string]string, error) {
	return reconciletest.Read(ctx, c.env, "list rows", func() (map[string]string, error) {
		all := map[string]string{}
		for id, s := range c.clinic.rows {
			if !s.Clean {
				all[id] = s.Status
			}
		}
		return all, nil
	})
}

func (c clinicClient) get(ctx context.Context, id string) (scan, error) {
	return reconciletest.Read(ctx, c.env, "get row "+id, func() (scan, error) {
		s, ok := c.clinic.rows[id]
		if !ok {
			return s, errNoRow
		}
		return s, nil
	})
}

func (c clinicClient) put(ctx context.Context, id string, s scan) error {
	return c.env.Do(ctx, "put row "+id, func() error { c.clinic.rows[id] = s; return nil })
}

func (c clinicClient) busy(ctx context.Context) (int, error) {
	return reconciletest.Read(ctx, c.env, "count rows", func() (n int, err error) {
		for _, s := range c.clinic.rows {
			if s.Status != "pending" && !s.Clean {
				n++
			}
		}
		return n, nil
	})
}

func (c clinicClient) start(ctx context.Context, id string) error {
	return c.env.Do(ctx, "start "+id, func() error {
		if _, ok := c.clinic.machines[id]; !ok {
			c.clinic.machines[id] = time.Now().Add(map[string]time.Duration{"short": time.Minute, "other": 2 * time.Minute, "hangs": 1000 * time.Hour}[id])
			c.clinic.most = max(c.clinic.most, len(c.clinic.machines))
		}
		return nil
	})
}

func (c clinicClient) state(ctx context.Context, id string) (string, error) {
	return reconciletest.Read(ctx, c.env, "state of "+id, func() (string, error) {
		at, ok := c.clinic.machines[id]
		switch {
		case !ok:
			return "", nil
		case time.Now().Before(at):
			return "running", nil
		}
		return "done", nil
	})
}

func (c clinicClient) remove(ctx context.Context, id string) error {
	return c.env.Do(ctx, "remove "+id, func() error { delete(c.clinic.machines, id); return nil })
}

// scans explores the program, with this function for each step.
func scans(newStep func() func(ctx context.Context, w scanner, id string) error) explore.Scenario[*clinic] {
	return reconciletest.Scenario[string, *clinic]{
		World: func() *clinic {
			return &clinic{rows: map[string]scan{}, machines: map[string]time.Time{}, begun: time.Now()}
		},
		Start: func(env *reconciletest.Env[string], c *clinic) {
			rows, scans := runScans(env.Queue, clinicClient{env, c}, newStep())
			env.Go(rows)
			scans.Retry = func(_ error, n int) (time.Duration, bool) { return time.Second << n, n <= 3 } // without chance
			env.Start(scans)
		},
		Steps: func(s *reconciletest.Environment[string], c *clinic) {
			for _, id := range []string{"hangs", "other", "short"} {
				c.rows[id] = scan{Status: "pending"}
			}
			s.Advance(20 * time.Minute)
		},
		State: func(c *clinic) string { return "" }, // Final says what must be
		Final: func(c *clinic) error {
			if len(c.machines) > 0 || c.most > scanLimit {
				return fmt.Errorf("machines are left: %v, and there were %d at once", c.machines, c.most)
			}
			for id, s := range c.rows {
				if !s.ended() || !s.Clean {
					return fmt.Errorf("scan %s is %+v", id, s)
				}
			}
			return nil
		},
		Without: []explore.Fault{explore.Stale, explore.StaleWatch}, // a stale count lets one more begin
		Within:  30 * time.Minute,
		Plans:   300,
	}.Untyped()
}

// TestRows plays the program with faults.
func TestRows(t *testing.T) {
	explore.Run(t, scans(func() func(context.Context, scanner, string) error { return reconcileScan }))
}

// TestRowsWithTimeoutInMemory finds a scan that never ends.
func TestRowsWithTimeoutInMemory(t *testing.T) {
	r, err := explore.Search(t, scans(func() func(context.Context, scanner, string) error {
		until := map[string]time.Time{} // of this process
		return func(ctx context.Context, w scanner, id string) error {
			return reconcileScan(ctx, forgetful{w, until}, id)
		}
	}))
	if err != nil || r.Found == nil || !strings.Contains(fmt.Sprint(r.Found), "dies") {
		t.Errorf("the exploration finds %v, %v, %v, want a scan that never ends", r, r.Found, err)
	}
}

// forgetful keeps the time-outs in memory.
type forgetful struct {
	scanner
	until map[string]time.Time
}

func (f forgetful) get(ctx context.Context, id string) (scan, error) {
	s, err := f.scanner.get(ctx, id)
	s.Until = f.until[id]
	if s.Until.IsZero() {
		s.Until = time.Now().Add(scanTimeout) // it is not known any more
	}
	return s, err
}

func (f forgetful) put(ctx context.Context, id string, s scan) error {
	if s.Status == "running" {
		f.until[id] = s.Until
	}
	return f.scanner.put(ctx, id, s)
}
