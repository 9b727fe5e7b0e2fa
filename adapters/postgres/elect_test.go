// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
	"github.com/reconkernel/reconcile/internal/servers"
	"github.com/reconkernel/reconcile/supervise"
)

// A stand is a candidate at work.
type stand struct {
	t     *testing.T
	pool  *pgxpool.Pool
	name  string
	terms chan context.Context // each when it begins
	hold  chan struct{}        // a term ends only when this is closed; nil for at once
	stop  func() error         // an orderly stop
	c     *Candidate
}

func newStand(t *testing.T, p *pgxpool.Pool, name string, lease time.Duration, hold chan struct{}) *stand {
	return newLoggedStand(t, Config{Pool: p, Name: name, Lease: lease}, hold)
}

func newLoggedStand(t *testing.T, cfg Config, hold chan struct{}) *stand {
	s := &stand{t: t, pool: cfg.Pool, name: cfg.Name, terms: make(chan context.Context, 10), hold: hold}
	cfg.Poll = 200 * time.Millisecond
	s.c = Elect(cfg, reconcile.RunFunc(func(ctx context.Context) error {
		s.terms <- ctx
		<-ctx.Done()
		if hold != nil {
			<-hold
		}
		if cause := context.Cause(ctx); !errors.Is(cause, reconcile.ErrLeaseLost) {
			return cause
		}
		return errors.New("a time-out of its own")
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.c.Run(ctx) }()
	s.stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { s.stop() })
	return s
}

// leads waits for a term.
func (s *stand) leads() context.Context {
	s.t.Helper()
	return next(s.t, s.terms)
}

// renewed waits until the lease of the leader is renewed.
func renewed(t *testing.T, p *pgxpool.Pool, name string) {
	t.Helper()
	const until1 = "SELECT m.until::text FROM reconcile.member m JOIN reconcile.item i ON i.owner = m.id WHERE i.queue = $1"
	var before string
	if err := p.QueryRow(t.Context(), until1, "elect:"+name).Scan(&before); err != nil {
		t.Fatal(err)
	}
	until(t, p, true, "SELECT ("+until1+") <> $2", "elect:"+name, before)
}

// An orderly stop hands over when the Runner has returned, however long it takes, and then at
// once.
func TestElectHandsOver(t *testing.T) {
	p, name := setUp(t), newName()
	hold := make(chan struct{})
	const lease = 4 * time.Second // which a busy machine can renew
	a := newStand(t, p, name, lease, hold)
	first := a.leads()
	b := newStand(t, p, name, lease, nil)
	stopped := make(chan error)
	go func() { stopped <- a.stop() }()
	next(t, first.Done())
	for range 8 { // two whole leases
		renewed(t, p, name)
	}
	if !a.c.IsLeader() || b.c.IsLeader() || len(b.terms) > 0 {
		t.Error("another leads while the Runner takes its time to end")
	}
	close(hold)
	if err := next(t, stopped); err != nil {
		t.Error(err)
	}
	second := b.leads()
	if Fence(second) <= Fence(first) {
		t.Errorf("the fence is %d after %d", Fence(second), Fence(first))
	}
}

// When a leader begins, the context of one that is cut off has ended. That stands again later.
func TestElectCutOff(t *testing.T) {
	p, name := setUp(t), newName()
	proxy, err := servers.NewProxy(pgtest.Shared(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	a := newStand(t, pgtest.Pool(t, pgtest.URL(proxy.Addr())), name, time.Second, nil)
	first := a.leads()
	b := newStand(t, p, name, time.Second, nil)
	proxy.Hang()
	b.leads()
	if first.Err() == nil || context.Cause(first) != reconcile.ErrLeaseLost || a.c.IsLeader() {
		t.Errorf("another leads, and the context of the one before says %v, cause %v", first.Err(), context.Cause(first))
	}
	proxy.Heal()
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	a.leads()
}

// When a leader begins, the context of one in a process that was stopped says that it has
// ended, as soon as the process continues.
func TestElectFrozen(t *testing.T) {
	p, name := setUp(t), newName()
	child := osexec.Command(os.Args[0], "-test.run=^TestElectChild$")
	child.Env = append(os.Environ(), "ELECT_CHILD="+name, "ELECT_URL="+pgtest.Shared(t).URL())
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			if line, ok := strings.CutPrefix(s.Text(), "child: "); ok {
				lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		child.Process.Kill()
		<-read
		child.Wait()
	})
	if line := next(t, lines); line != "leads" {
		t.Fatalf("the child says %q", line)
	}
	b := newStand(t, p, name, time.Second, nil)
	child.Process.Signal(syscall.SIGSTOP)
	b.leads()
	fmt.Fprintln(stdin, "?") // It is answered first.
	child.Process.Signal(syscall.SIGCONT)
	if line := next(t, lines); line != "context canceled" {
		t.Errorf("another leads, and the context of the one that was stopped says %q", line)
	}
}

// TestElectChild is the process of TestElectFrozen. By itself it does nothing.
func TestElectChild(t *testing.T) {
	name := os.Getenv("ELECT_CHILD")
	if name == "" {
		return
	}
	s := newStand(t, pgtest.Pool(t, os.Getenv("ELECT_URL")), name, time.Second, nil)
	term := s.leads()
	fmt.Println("child: leads")
	bufio.NewReader(os.Stdin).ReadString('\n')
	fmt.Println("child:", term.Err())
}

// A restart of the server within the lease changes nothing, in order or not.
func TestElectRestart(t *testing.T) {
	server := pgtest.New(t)
	p := pgtest.Pool(t, server.URL())
	migrate(t, p, "")
	name := newName()
	a := newStand(t, p, name, 20*time.Second, nil)
	term := a.leads()
	b := newStand(t, p, name, 20*time.Second, nil)
	for _, end := range []func(){server.Stop, func() {
		if err := server.Crash(); err != nil {
			t.Fatal(err)
		}
	}} {
		end()
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		renewed(t, p, name)
	}
	if term.Err() != nil || !a.c.IsLeader() || len(a.terms)+len(b.terms) > 0 {
		t.Errorf("the term ended with %v, %d others began", context.Cause(term), len(a.terms)+len(b.terms))
	}
}

// A candidate may start before its database, and before its tables.
func TestElectBeforeItsDatabase(t *testing.T) {
	server := pgtest.New(t)
	p := pgtest.Pool(t, server.URL())
	server.Stop()
	var log log
	a := newLoggedStand(t, Config{Pool: p, Name: "early", Logger: log.logger()}, nil)
	log.wait(t, "failures=2")
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.wait(t, "call Migrate")
	if strings.Contains(log.String(), "failures=3 ") {
		t.Errorf("a failure between the 2nd and the 4th is logged:\n%s", log.String())
	}
	migrate(t, p, "")
	a.leads()

	server.Stop()
	b := newLoggedStand(t, Config{Pool: p, Name: "early", Logger: log.logger()}, nil)
	if err := b.stop(); err != nil {
		t.Errorf("a stop while the database is away: %v, want nil", err)
	}
}

// A Runner that has not returned after its lease is logged, more than once.
func TestElectRunnerIsLate(t *testing.T) {
	p, name := setUp(t), newName()
	var log log
	hold := make(chan struct{})
	a := newLoggedStand(t, Config{Pool: p, Name: name, Lease: time.Second, Logger: log.logger()}, hold)
	a.leads()
	exec(t, p, "DELETE FROM reconcile.member WHERE queue = $1", "elect:"+name)
	const late = "has not returned"
	log.waitFor(t, late, 2)
	close(hold)
	a.leads()
}

// A leader whose row is deleted by hand ends its term, and stands again.
func TestElectRowDeleted(t *testing.T) {
	p, name := setUp(t), newName()
	a := newStand(t, p, name, time.Second, nil)
	term := a.leads()
	exec(t, p, "DELETE FROM reconcile.item WHERE queue = $1", "elect:"+name)
	next(t, term.Done())
	a.leads()
}

// A lease that leaders died of often is not held back.
func TestElectAfterManyDeaths(t *testing.T) {
	p, name := setUp(t), newName()
	exec(t, p, "INSERT INTO reconcile.item (queue, item, owner, fence, since, pending, failures) VALUES ($1, 'leader', -7, 0, now(), now(), 9)", "elect:"+name)
	began := time.Now()
	newStand(t, p, name, time.Second, nil).leads()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("leads after %v, want at once", took)
	}
}

// Run returns what the Runner returns or panics with, and gives the lease back.
func TestElectRunnerEnds(t *testing.T) {
	p, name := setUp(t), newName()
	cfg := Config{Pool: p, Name: name, Lease: time.Minute}
	for want, r := range map[string]reconcile.RunFunc{
		"no disk": func(context.Context) error { return errors.New("no disk") },
		"oops":    func(context.Context) error { panic("oops") },
		"<nil>":   func(context.Context) error { return nil },
	} {
		if err := Elect(cfg, r).Run(t.Context()); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("Run: %v, want %s", err, want)
		}
	}
	cfg.Lease = time.Second
	ctx, stop := context.WithCancel(t.Context())
	err := Elect(cfg, reconcile.RunFunc(func(ctx context.Context) error {
		exec(t, p, "DELETE FROM reconcile.member WHERE queue = $1", "elect:"+name)
		<-ctx.Done()
		stop()
		return errors.New("a call was cut short")
	})).Run(ctx)
	if err != nil {
		t.Errorf("Run: %v after the lease was lost and ctx is done, want nil", err)
	}
	for want, r := range map[string]reconcile.Runner{
		"needs a Runner": nil, "EachTerm makes one for each": new(supervise.Group), "EachTerm needs a function": EachTerm(nil),
	} {
		if err := Elect(cfg, r).Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), want) {
			t.Errorf("Run: %v, want a terminal error with %q", err, want)
		}
	}
}

// When the lease is lost, the runs of a Reconciler that has a Grace end at once, and it takes
// nothing more, if its queue is Held. The next term has a new Group.
func TestHeld(t *testing.T) {
	p, name := setUp(t), newName()
	q := reconcile.NewQueue[string]()
	runs := make(chan context.Context, 10)
	c := Elect(Config{Pool: p, Name: name, Lease: time.Second}, EachTerm(func(term *supervise.Group) {
		term.Add("runs", &reconcile.Reconciler[string]{
			Queue: Held[string](q), Grace: time.Hour,
			Reconcile: func(ctx context.Context, item string) error {
				runs <- ctx
				<-ctx.Done()
				return ctx.Err()
			},
		})
		term.Add("feeder that is late", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			q.Enqueue("y")
			return nil
		}))
	}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	q.Enqueue("x")
	first := next(t, runs)
	exec(t, p, "DELETE FROM reconcile.member WHERE queue = $1", "elect:"+name)
	next(t, first.Done())
	if cause := context.Cause(first); cause != reconcile.ErrLeaseLost {
		t.Errorf("the run ended with %v, want %v", cause, reconcile.ErrLeaseLost)
	}
	second := next(t, runs)
	if Fence(first) == 0 || Fence(second) <= Fence(first) {
		t.Errorf("a run began in the term that was over: fence %d after %d", Fence(second), Fence(first))
	}
	if s := q.State("x"); s.Failures != 0 {
		t.Errorf("a run that lost its lease counts as a failure: %+v", s)
	}
	cancel()
	if _, ok := Held[string](q).(interface{ Stats() reconcile.Stats }); !ok {
		t.Error("the counts of a queue that is Held are not to be seen")
	}
	exec(t, p, "DELETE FROM reconcile.member WHERE queue = $1", "elect:"+name) // It ends the run, which has a Grace.
	if err := next(t, ended); err != nil {
		t.Error(err)
	}
}
