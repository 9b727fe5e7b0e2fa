// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/internal/servers"
	"github.com/reconkernel/reconcile/statuspage"
)

var (
	_ reconcile.Enqueuer[string] = (*Queue[string])(nil)
	_ reconcile.Dequeuer[string] = (*Queue[string])(nil)
	_ reconcile.Leaser[string]   = (*Queue[string])(nil)
	_ statuspage.Source[string]  = (*Queue[string])(nil) // as of adapters/prometheus and adapters/otel
)

// still ends what a queue does in the background, so that a test can do it step by step.
func still(q *Queue[string]) *Queue[string] {
	q.end()
	<-q.ended
	return q
}

// joined returns a queue that has a lease and does nothing in the background.
func joined(t testing.TB, cfg Config) *Queue[string] {
	t.Helper()
	cfg.Lease = time.Minute
	q := still(open(t, cfg))
	if err := q.renew(t.Context()); !isRequeue(err) {
		t.Fatal(err)
	}
	return q
}

func isRequeue(err error) bool {
	var r reconcile.RequeueError
	return err == nil || errors.As(err, &r)
}

// step does an exchange, and returns when it asks for the next one; 0 is at once, and less
// than 0 not at all.
func step(t testing.TB, q *Queue[string]) time.Duration {
	t.Helper()
	err := q.exchange(t.Context())
	if !isRequeue(err) {
		t.Fatal(err)
	}
	var r reconcile.RequeueError
	if !errors.As(err, &r) {
		return -1
	}
	return r.Delay
}

// An attempt over a slow link takes longer than a quarter of the lease, and longer still with a
// new connection. It succeeds nevertheless.
func TestSlowLink(t *testing.T) {
	setUp(t)
	proxy, err := servers.NewProxy(pgtest.Shared(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	q := open(t, Config{Pool: pgtest.Pool(t, pgtest.URL(proxy.Addr())), Lease: time.Second})
	proxy.Link(400*time.Millisecond, 0)
	proxy.Cut() // so that a new connection is needed
	proxy.Heal()
	enqueue(t, q, "x")
}

// A process that only enqueues stores more than one batch.
func TestStoresManyItemsWithoutDequeue(t *testing.T) {
	q := open(t, Config{Pool: setUp(t)})
	var items []string
	for i := range 2*maxBatch + 1 {
		items = append(items, fmt.Sprint(i))
	}
	enqueue(t, q, items...)
	if n := exec(t, q.cfg.Pool, "SELECT FROM reconcile.item WHERE queue = $1", q.cfg.Name); n != int64(len(items)) {
		t.Errorf("%d items are stored, want %d", n, len(items))
	}
}

// An event that comes while an earlier verb is being stored is not part of it: the item
// may have been taken in between.
func TestEventDuringAnExchangeIsStored(t *testing.T) {
	q := still(open(t, Config{Pool: setUp(t)}))
	q.Enqueue("x")
	q.Enqueue("x")
	if n := len(q.outbox["x"]); n != 1 {
		t.Errorf("%d verbs to be stored, want one", n)
	}
	x := q.begin()
	q.Enqueue("x")
	q.fail(x) // and while it is stored again
	q.Enqueue("x")
	if n := len(q.outbox["x"]); n != 2 {
		t.Errorf("%d verbs to be stored, want two", n)
	}
	step(t, q)
	if next := step(t, q); next >= 0 || len(q.outbox) != 0 {
		t.Errorf("after two exchanges %d items are to be stored, and the next one is in %v, want none, and none in a process without a lease", len(q.outbox), next)
	}
}

// With Ahead, items are taken that no Dequeue waits for, and given back after a second. Without
// it, an item is in flight only once a worker has it.
func TestAhead(t *testing.T) {
	for ahead, want := range map[int]int{0: 1, 2: 3} {
		q := joined(t, Config{Pool: setUp(t), Ahead: ahead})
		for i := range 5 {
			q.Enqueue(fmt.Sprint(i))
		}
		q.waiting, q.took = 1, time.Now()
		step(t, q)
		if n := q.local.Len(); n != want {
			t.Errorf("with Ahead %d and one worker, %d items were taken, want %d", ahead, n, want)
		}
		q.waiting, q.took = 0, time.Now().Add(-2*time.Second)
		step(t, q) // has the give-backs
		until(t, q.cfg.Pool, 5, "SELECT count(*) FROM reconcile.item WHERE queue = $1 AND owner IS NULL AND failures = 0", q.cfg.Name)
	}
}

// While no worker waits, events stay where they are: to ask for them at once again would be a
// hot loop.
func TestBusyProcessLeavesEvents(t *testing.T) {
	q := joined(t, Config{Pool: setUp(t)})
	exec(t, q.cfg.Pool, "SELECT reconcile.enqueue($1, 'x', true)", q.cfg.Name)
	q.woken(true)
	if next := step(t, q); next < time.Second {
		t.Errorf("the next exchange is in %v, want that of the poll", next)
	}
	q.waiting = 1
	q.fail(q.begin()) // After an exchange that failed, the next one looks for them.
	if next := step(t, q); next != 0 || q.local.Len() != 1 {
		t.Errorf("the next exchange is in %v, and %d items were taken, want one, and to look for more at once", next, q.local.Len())
	}
}

// With each Poll events are looked for, also if no notification comes and if items are
// due all the time.
func TestFindsEventsWithoutNotification(t *testing.T) {
	q := joined(t, Config{Pool: setUp(t)})
	q.waiting = 1
	step(t, q)
	exec(t, q.cfg.Pool, "SELECT reconcile.enqueue($1, 'x', true)", q.cfg.Name)
	q.EnqueueAfter("y", time.Second)
	step(t, q)
	if n := q.local.Len(); n != 0 {
		t.Errorf("%d items were taken before the poll", n)
	}
	q.merged = time.Now().Add(-q.cfg.Poll)
	step(t, q)
	if item, _ := q.local.Dequeue(t.Context()); item != "x" {
		t.Errorf("took %q, want x", item)
	}
}

// A process that is busy when an item becomes due notifies others, which may not know the time.
func TestNotifiesOthersOfWhatBecomesDue(t *testing.T) {
	q := joined(t, Config{Pool: setUp(t)})
	q.EnqueueAfter("x", 4*time.Second)
	if next := step(t, q); next > 4*time.Second {
		t.Errorf("the next exchange is in %v, want that of the item", next)
	}
	exec(t, q.cfg.Pool, "UPDATE reconcile.item SET due = now() WHERE queue = $1", q.cfg.Name)
	step(t, q)
	if q.tasks.State(wake).Phase == reconcile.PhaseIdle {
		t.Error("nobody is notified")
	}
}

// An item whose row was deleted during its run, and made again by an event, is not taken by the
// same process until the run has ended. Nor is it stuck then.
func TestRunIsNotBesideItself(t *testing.T) {
	q := joined(t, Config{Pool: setUp(t)})
	enqueueNow := func() {
		q.Enqueue("x")
		q.waiting = 1
		step(t, q)
	}
	enqueueNow()
	take(t, q, "x")
	exec(t, q.cfg.Pool, "DELETE FROM reconcile.item WHERE queue = $1", q.cfg.Name)
	enqueueNow()
	if n := q.local.Len(); n != 0 {
		t.Fatal("it was taken during the run")
	}
	q.Done("x")
	step(t, q)
	if n := q.local.Len(); n != 1 {
		t.Error("it was not taken after the run")
	}
	q.lease.Term = held.NewTerm(time.Now()) // as in a process that was stopped before a worker has it
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if item, err := q.Dequeue(ctx); err == nil {
		t.Errorf("Dequeue: %q after the end of its lease, want none", item)
	}
}

// The ids of members do not follow one another: after a restore, one would be used again.
func TestMembersHaveRandomIds(t *testing.T) {
	p := setUp(t)
	a, b := joined(t, Config{Pool: p}), joined(t, Config{Pool: p})
	if d := a.lease.member - b.lease.member; -1e6 < d && d < 1e6 {
		t.Errorf("the ids are %d and %d", a.lease.member, b.lease.member)
	}
}

// hearing returns a connection that hears the notifications of queues.
func hearing(t *testing.T, queues ...*Queue[string]) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	for _, q := range queues {
		exec(t, conn, "LISTEN "+pgx.Identifier{q.channel}.Sanitize())
	}
	return conn
}

// Close notifies others of the items that it leaves, also if nothing else does.
func TestCloseNotifies(t *testing.T) {
	p := setUp(t)
	q := joined(t, Config{Pool: p})
	conn := hearing(t, q)
	q.Enqueue("x")
	q.waiting = 1
	x := q.begin()
	if err := q.send(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	q.closed = true // during an exchange
	q.finish(x)
	step(t, q)
	if n := len(q.held); n != 0 || len(x.taken) != 1 {
		t.Fatalf("an exchange has taken %d items, want one, and %d are held, want none", len(x.taken), n)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := conn.WaitForNotification(ctx); err != nil {
		t.Error(err)
	}
}

// An exchange whose answer was lost may have taken items: the next one frees them, also if the
// process holds nothing else, and so does Close.
func TestFreesItemsOfALostAnswer(t *testing.T) {
	for _, free := range []func(*Queue[string], *exchanged[string]){
		func(q *Queue[string], x *exchanged[string]) { q.fail(x); step(t, q) },
		func(q *Queue[string], _ *exchanged[string]) { q.Close(t.Context()) },
	} {
		q := joined(t, Config{Pool: setUp(t)})
		q.Enqueue("x")
		step(t, q)
		q.waiting = 1
		x := q.begin()
		if err := q.send(t.Context(), x); err != nil || len(x.taken) != 1 {
			t.Fatal(err, x.taken)
		}
		q.waiting = 0
		free(q, x)
		until(t, q.cfg.Pool, 1, "SELECT count(*) FROM reconcile.item WHERE queue = $1 AND owner IS NULL AND failures = 0", q.cfg.Name)
	}
}

// A run whose row is gone, as after a failover that lost it, ends: another process may have
// the item. However many end at once, it is one line of the log.
func TestRunEndsWhenItsRowIsGone(t *testing.T) {
	var log log
	q := open(t, Config{Pool: setUp(t), Logger: log.logger()})
	for _, item := range []string{"x", "y", "z"} {
		enqueue(t, q, item)
		take(t, q, item)
	}
	run, other := q.Lease(t.Context(), "x"), q.Lease(t.Context(), "y")
	exec(t, q.cfg.Pool, "DELETE FROM reconcile.item WHERE queue = $1 AND item <> 'y'", q.cfg.Name)
	next(t, run.Done())
	log.wait(t, "runs=2")
	q.mu.Lock()
	q.check = true // again, while the runs have not ended
	q.mu.Unlock()
	enqueue(t, q, "z")
	if n := strings.Count(log.String(), "runs="); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, log.String())
	}
	if cause := context.Cause(run); cause != reconcile.ErrLeaseLost || other.Err() != nil {
		t.Errorf("the run ends with %v, want %v; the other one with %v, want nil", cause, reconcile.ErrLeaseLost, other.Err())
	}
}

// A task that fails is logged at the 1st, 2nd, 4th … time.
func TestLogsRepeatedFailuresRarely(t *testing.T) {
	var log log
	q := still(open(t, Config{Pool: setUp(t), Logger: log.logger()}))
	for n := 1; n <= 8; n++ {
		q.report(reconcile.Result[task]{Item: exchange, Outcome: reconcile.OutcomeRetrying, Err: errors.New("no"), Failures: n})
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 4 {
		t.Errorf("%d lines, want 4:\n%s", n, log.String())
	}
}

// A commit with a NOTIFY holds a lock of the whole server while it waits for the disk, or as
// here for a standby. An exchange does not need that lock.
func TestExchangeDoesNotWaitForNotifications(t *testing.T) {
	server := pgtest.New(t, "synchronous_standby_names=none", "synchronous_commit=local")
	p := pgtest.Pool(t, server.URL())
	migrate(t, p, "")
	q := open(t, Config{Pool: p})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		p.Exec(ctx, "SET synchronous_commit = on; CREATE TABLE x (); NOTIFY x") // It waits until its context ends.
	}()
	until(t, p, 1, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	enqueue(t, q, "a", "b") // of which this process can take one
	take(t, q, "a")
	cancel()
	<-ended
}

// An event in a transaction comes when that is committed, and not if it is rolled back. In
// each isolation level, two transactions that enqueue the same items in another order, while a
// run of one is stored, wait for nothing.
func TestEnqueueTx(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			q := open(t, Config{Pool: setUp(t)})
			begin := func() pgx.Tx {
				tx, err := q.cfg.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				if err != nil {
					t.Fatal(err)
				}
				exec(t, tx, "SELECT count(*) FROM pg_class") // takes the snapshot
				return tx
			}
			events := func(tx pgx.Tx, items ...string) {
				t.Helper()
				if err := q.EnqueueTx(t.Context(), tx, items...); err != nil {
					t.Fatal(err)
				}
			}
			enqueue(t, q, "x")
			take(t, q, "x")
			a, b, never := begin(), begin(), begin()
			events(a, "x", "y")
			q.Done("x") // between the snapshot and the commit
			flush(t, q)
			events(b, "y", "x")
			events(a, "y")
			events(never, "z")
			until(t, q.cfg.Pool, 0, "SELECT count(*) FROM reconcile.item WHERE queue = $1", q.cfg.Name)
			if err := errors.Join(never.Rollback(t.Context()), a.Commit(t.Context()), b.Commit(t.Context())); err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				item, err := q.Dequeue(ctx)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				seen[item] = true
			}
			if !seen["x"] || !seen["y"] {
				t.Errorf("took %v, want x and y", seen)
			}
		})
	}
}

// EnqueueTx and the SQL function notify, unless they are to be quiet.
func TestQuiet(t *testing.T) {
	p := setUp(t)
	q, quiet := open(t, Config{Pool: p}), open(t, Config{Pool: p, Quiet: true})
	conn := hearing(t, q, quiet)
	err := pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
		return errors.Join(quiet.EnqueueTx(t.Context(), tx, "a"), q.EnqueueTx(t.Context(), tx, "a"))
	})
	exec(t, p, "SELECT reconcile.enqueue($1, 'b', true)", quiet.cfg.Name)
	exec(t, p, "SELECT reconcile.enqueue($1, 'b')", q.cfg.Name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, err := conn.WaitForNotification(t.Context()); err != nil || n.Channel != q.channel || n.Payload != "event" {
			t.Errorf("heard %v, %v, want an event of %s", n, err, q.channel)
		}
	}
	until(t, p, 2, "SELECT count(*) FROM reconcile.event WHERE queue = $1", quiet.cfg.Name)
}

// A guarded transaction keeps others from taking the item over, blocks no event, and is refused
// once the item is another's.
func TestGuard(t *testing.T) {
	p := setUp(t)
	a := joined(t, Config{Pool: p})
	a.waiting = 1
	a.Enqueue("x")
	step(t, a)
	take(t, a, "x")
	run := a.Lease(t.Context(), "x")
	tx := begin(t, p)
	if err := Guard(run, tx); err != nil {
		t.Fatal(err)
	}
	exec(t, p, "UPDATE reconcile.member SET until = now() - interval '1 s' WHERE queue = $1", a.cfg.Name)
	b := joined(t, Config{Pool: p, Name: a.cfg.Name})
	b.waiting = 1
	b.Enqueue("x")
	step(t, b)
	if n := b.local.Len(); n != 0 || len(b.outbox) != 0 {
		t.Errorf("during a guarded transaction %d items were taken over, and %d events wait for it", n, len(b.outbox))
	}
	until(t, p, 0, "SELECT failures FROM reconcile.item WHERE queue = $1", a.cfg.Name) // It is not freed either.
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.renew(t.Context()); !isRequeue(err) {
		t.Fatal(err)
	}
	step(t, b)
	take(t, b, "x")
	if f := Fence(b.Lease(t.Context(), "x")); f <= Fence(run) || Fence(t.Context()) != 0 {
		t.Errorf("the fence is %d, want more than the %d before; without a run %d", f, Fence(run), Fence(t.Context()))
	}
	late := context.WithoutCancel(run) // It does not look whether it has ended.
	err := pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error { return Guard(late, tx) })
	if !errors.Is(err, reconcile.ErrLeaseLost) {
		t.Errorf("Guard: %v after another has the item, want %v", err, reconcile.ErrLeaseLost)
	}
	err = pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error { return Guard(t.Context(), tx) })
	if !errors.Is(err, reconcile.ErrTerminal) {
		t.Errorf("Guard without a run: %v, want a terminal error", err)
	}
	for _, err := range []error{Guard(run, nil), a.EnqueueTx(t.Context(), nil, "x")} {
		if !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("without a transaction: %v, want a terminal error", err)
		}
	}

	// A run ends before its transaction: its give-back waits, and holds nothing else up.
	tx = begin(t, p)
	if err := Guard(b.Lease(t.Context(), "x"), tx); err != nil {
		t.Fatal(err)
	}
	b.waiting = 0
	b.Done("x")
	b.Enqueue("y")
	if next := step(t, b); next > 20*time.Millisecond || len(b.outbox) != 1 {
		t.Errorf("the next exchange is in %v, for %d items, want 20ms at most, for the one that is locked", next, len(b.outbox))
	}
	tx.Rollback(t.Context())
	if step(t, b); len(b.outbox) != 0 {
		t.Errorf("%d items are to be given back, want none", len(b.outbox))
	}
}

// A process that hears nothing says so, once for each connection.
func TestSaysThatItHearsNothing(t *testing.T) {
	var log log
	p := setUp(t)
	q := still(open(t, Config{Pool: p, Logger: log.logger()}))
	q.listens()
	for range 2 {
		if err := q.hello(t.Context()); !isRequeue(err) {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "LISTEN hears nothing"); n != 1 {
		t.Errorf("%d lines, want one:\n%s", n, log.String())
	}
	r := open(t, Config{Pool: p, Logger: log.logger()})
	enqueue(t, r, "x")
	take(t, r, "x")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := servers.Retry(ctx, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.heard {
			return errors.New("a process that listens has not heard itself")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Close gives back what no worker has, waits for the runs, and leaves nothing behind.
func TestClose(t *testing.T) {
	q := open(t, Config{Pool: setUp(t), Ahead: 5})
	enqueue(t, q, "a", "b", "c")
	take(t, q, "a")
	take(t, q, "b")
	q.EnqueueAfter("later", time.Hour)
	closed := make(chan error)
	go func() { closed <- q.Close(t.Context()) }()
	for {
		if _, err := q.Dequeue(t.Context()); err == reconcile.ErrClosed {
			break
		}
	}
	q.Enqueue("ignored")
	q.Done("a")
	q.Requeue("b", reconcile.RequeueOptions{Delay: time.Hour, MinDelay: time.Hour, Err: errors.New("not yet")})
	q.Done("c") // if a Dequeue above had it
	if err := next(t, closed); err != nil {
		t.Fatal(err)
	}
	until(t, q.cfg.Pool, 0, "SELECT count(*) FROM reconcile.member WHERE queue = $1", q.cfg.Name)
	until(t, q.cfg.Pool, 0, "SELECT count(*) FROM reconcile.item WHERE queue = $1 AND owner IS NOT NULL", q.cfg.Name)
	until(t, q.cfg.Pool, 2, "SELECT count(*) FROM reconcile.item WHERE queue = $1 AND item IN ('b', 'later')", q.cfg.Name)
	if err := q.Close(t.Context()); err != nil {
		t.Errorf("the second Close: %v", err)
	}
	if err := q.EnqueueContext(t.Context(), "x"); err != reconcile.ErrClosed {
		t.Errorf("EnqueueContext after Close: %v", err)
	}
	late := open(t, Config{Pool: q.cfg.Pool})
	enqueue(t, late, "run")
	take(t, late, "run")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := late.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 in flight") {
		t.Errorf("Close with a run in flight: %v", err)
	}
}

// A text that is no item is tried again later and later, and so is one for which decode panics
// or calls Goexit; others run.
func TestUnreadableItem(t *testing.T) {
	var log log
	p := setUp(t)
	cfg := Config{Pool: p, Name: newName(), Lease: time.Second, Logger: log.logger()}
	q, err := NewFunc(t.Context(), cfg, func(n int) string { return fmt.Sprint(n) }, func(s string) (n int, err error) {
		switch s {
		case "panic":
			panic("oops")
		case "exit":
			runtime.Goexit()
		}
		_, err = fmt.Sscan(s, &n)
		return n, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close(context.Background())
	exec(t, p, "SELECT reconcile.enqueue($1, unnest(array['x', 'panic', 'exit', '07', '7']))", cfg.Name)
	if n, err := q.Dequeue(t.Context()); n != 7 || err != nil {
		t.Errorf("took %d, %v, want 7", n, err)
	}
	q.Done(7)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go q.Dequeue(ctx) // so that the others are taken
	until(t, p, 4, "SELECT count(*) FROM reconcile.item WHERE queue = $1 AND not_before - since > interval '1 s' AND failures = 3", cfg.Name)
	if n := strings.Count(log.String(), "cannot be read"); n != 8 {
		t.Errorf("%d lines, want those of the 1st and 2nd failure of 4 items:\n%s", n, log.String())
	}
}

// Items that cannot be stored are refused, and no others.
func TestItemsThatCannotBeStored(t *testing.T) {
	var log log
	q := open(t, Config{Pool: setUp(t), Logger: log.logger()})
	for _, bad := range []string{strings.Repeat("x", maxItem+1), "\xff", "a\x00b"} {
		if err := q.EnqueueContext(t.Context(), "good", bad); !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("%.10q: %v, want a terminal error", bad, err)
		}
		q.Enqueue(bad)
	}
	enqueue(t, q, strings.Repeat("é", maxItem/2), "")
	if n := strings.Count(log.String(), "cannot be stored"); n != 3 {
		t.Errorf("%d lines, want 3:\n%s", n, log.String())
	}
	until(t, q.cfg.Pool, 2, "SELECT count(*) FROM reconcile.item WHERE queue = $1", q.cfg.Name)
}

// State, All and Stats say what those of a kernel queue say.
func TestStates(t *testing.T) {
	q := open(t, Config{Pool: setUp(t)})
	enqueue(t, q, "flies", "flies elsewhere")
	other := open(t, Config{Pool: q.cfg.Pool, Name: q.cfg.Name})
	take(t, q, "flies")
	take(t, other, "flies elsewhere")
	q.Enqueue("flies")
	q.EnqueueAfter("held", time.Hour)
	enqueue(t, q, "ready")
	q.Stats()
	flush(t, q)
	got := map[string]reconcile.Phase{}
	for item, s := range q.All() {
		got[item] = s.Phase
		if one := q.State(item); one.Phase != s.Phase || one.Again != s.Again || !one.Due.Equal(s.Due) || one.Pending.IsZero() || !one.Pending.Equal(s.Pending) || !one.Since.Equal(s.Since) {
			t.Errorf("%s: State says %+v, and All %+v", item, one, s)
		}
	}
	want := map[string]reconcile.Phase{"flies": reconcile.PhaseInFlight, "flies elsewhere": reconcile.PhaseInFlight, "held": reconcile.PhaseWaiting, "ready": reconcile.PhaseReady}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("All: %v, want %v", got, want)
	}
	if s := q.State("unknown"); s != (reconcile.State{}) {
		t.Errorf("an unknown item has the state %+v", s)
	}
	if err := q.count(t.Context()); err == nil || !isRequeue(err) {
		t.Fatalf("count: %v, want to count again", err)
	}
	if s := q.Stats(); s.Ready != 1 || s.Waiting != 1 || s.InFlight != 2 || s.Again != 1 || s.Taken != 1 || s.Enqueued != 5 {
		t.Errorf("Stats: %+v", s)
	}
	still(q).counted = time.Now().Add(-time.Hour)
	if err := q.count(t.Context()); err != nil {
		t.Errorf("count: %v when nobody asks, want nil", err)
	}
	if cause := context.Cause(q.Lease(t.Context(), "held")); cause != reconcile.ErrLeaseLost {
		t.Errorf("the context of an item that is not in flight ended with %v, want %v", cause, reconcile.ErrLeaseLost)
	}
}

// A status page shows the items of all processes, those of other processes too, and the counts.
func TestStatusPage(t *testing.T) {
	q := open(t, Config{Pool: setUp(t)})
	other := open(t, Config{Pool: q.cfg.Pool, Name: q.cfg.Name})
	enqueue(t, other, "vm-1")
	take(t, other, "vm-1")
	q.Stats()
	page := httptest.NewServer(statuspage.New(&statuspage.Loop[string]{Name: "vms", Queue: q}))
	defer page.Close()
	resp, err := page.Client().Get(page.URL + "/items.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), `"vm-1"`) || !strings.Contains(string(text), `"in flight"`) {
		t.Errorf("the page says %s, %v", text, err)
	}
}

// A queue can be removed from, and says whether there was a next run.
func TestRemove(t *testing.T) {
	q := open(t, Config{Pool: setUp(t)})
	q.EnqueueAfter("x", time.Hour)
	for _, want := range []bool{true, false} {
		if removed, err := q.Remove(t.Context(), "x"); removed != want || err != nil {
			t.Errorf("Remove: %t, %v, want %t", removed, err, want)
		}
	}
}

// An exchange takes an item whose give-back is locked: the lease of the run has just been
// reaped. The give-back is not sent again, which would end the holding of the new run.
func TestGiveBackOfAFreedItem(t *testing.T) {
	q := joined(t, Config{Pool: setUp(t)})
	q.Enqueue("x")
	q.waiting = 1
	step(t, q)
	take(t, q, "x")
	q.Done("x")
	q.waiting = 0
	x, h := q.begin(), &holding[string]{lease: q.lease, text: "x", item: "x", fence: q.held["x"].fence + 1}
	x.locked["x"], x.taken = true, []*holding[string]{h}
	_ = q.finish(x)
	take(t, q, "x")
	step(t, q)
	if q.held["x"] != h || len(q.outbox) > 0 {
		t.Errorf("held is %v, want %v; the outbox has %v, want nothing", q.held["x"], h, q.outbox)
	}
}
