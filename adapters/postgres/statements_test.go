// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
)

// A stage is a queue of rows that tests write themselves.
type stage struct {
	t     *testing.T
	pool  *pgxpool.Pool
	queue string
}

func newStage(t *testing.T) *stage { return &stage{t, setUp(t), newName()} }

// member adds a member whose lease ends after a number of seconds.
func (s *stage) member(seconds float64) (id int64) {
	s.t.Helper()
	id = names.Add(1)
	exec(s.t, s.pool, sqlJoin, id, s.queue, "x", int64(seconds*1e6))
	return id
}

func (s *stage) ask(verb string) {
	s.t.Helper()
	exec(s.t, s.pool, sqlAsk, s.queue, []string{"x"}, []string{verb}, []int64{0})
}

// A taken run is named by its owner and its fence.
type takenRun struct{ owner, fence int64 }

// take has a member take the item.
func (s *stage) take(member int64) takenRun {
	s.t.Helper()
	var fence int64
	rows, _ := s.pool.Query(s.t.Context(), sqlTake, s.queue, member, 1, []string{})
	for rows.Next() {
		values, _ := rows.Values()
		fence = values[1].(int64)
	}
	if rows.Err() != nil || fence == 0 {
		s.t.Fatalf("took nothing: %v", rows.Err())
	}
	return takenRun{member, fence}
}

func (s *stage) done(r takenRun) {
	s.t.Helper()
	exec(s.t, s.pool, sqlGive, s.giveArgs(r)...)
}

func (s *stage) giveArgs(r takenRun) []any {
	return []any{s.queue, []string{"x"}, []int64{r.owner}, []int64{r.fence}, []string{"done"}, []int64{0}, []int64{0}, []string{""}}
}

// row is how the item stands: none, ready, waiting, or in flight in a member and perhaps with
// a next run.
func (s *stage) row() (state string) {
	s.t.Helper()
	err := s.pool.QueryRow(s.t.Context(), `SELECT CASE WHEN owner IS NOT NULL THEN 'in flight' || CASE WHEN due IS NOT NULL THEN ', again' ELSE '' END
		WHEN due <= now() THEN 'ready' ELSE 'waiting' END FROM reconcile.item WHERE queue = $1`, s.queue).Scan(&state)
	if err == pgx.ErrNoRows {
		return "none"
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

// during executes a statement that stops after it has taken its snapshot, just before the
// condition cond, and lets it continue when meanwhile has returned.
func (s *stage) during(sql, cond string, args []any, meanwhile func()) {
	s.t.Helper()
	const gate = 4242
	if strings.Count(sql, cond) != 1 {
		s.t.Fatalf("%q is not once in %s", cond, sql)
	}
	sql = strings.Replace(sql, cond, "(SELECT pg_advisory_xact_lock(4242)) IS NOT NULL AND "+cond, 1)
	keeper, err := pgx.Connect(s.t.Context(), pgtest.Shared(s.t).URL())
	if err != nil {
		s.t.Fatal(err)
	}
	defer keeper.Close(context.Background())
	if _, err := keeper.Exec(s.t.Context(), "SELECT pg_advisory_lock($1)", gate); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.pool.Exec(s.t.Context(), sql, args...)
		ended <- err
	}()
	until(s.t, s.pool, true, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted)", gate)
	meanwhile()
	if _, err := keeper.Exec(s.t.Context(), "SELECT pg_advisory_unlock($1)", gate); err != nil {
		s.t.Fatal(err)
	}
	if err := next(s.t, ended); err != nil {
		s.t.Fatal(err)
	}
}

// renewedLate returns a member that has the item, and whose renewal began in time and is to be
// committed now that its lease is over.
func (s *stage) renewedLate() (id int64, tx pgx.Tx) {
	s.t.Helper()
	id = s.member(0.3)
	s.ask("within")
	s.take(id)
	tx = begin(s.t, s.pool)
	exec(s.t, tx, sqlRenew, id, int64(60e6))
	until(s.t, s.pool, true, "SELECT until < clock_timestamp() FROM reconcile.member WHERE id = $1", id)
	return id, tx
}

// A statement sees the rows of its beginning, and locks rows as they are later. Each of these
// cases changes the row between the two.
func TestRowsChangeDuringAStatement(t *testing.T) {
	t.Run("freeing: another member has the item by now", func(t *testing.T) {
		s := newStage(t)
		dead := s.member(60)
		s.ask("within")
		s.take(dead)
		exec(t, s.pool, "UPDATE reconcile.member SET until = now() - interval '1 s' WHERE id = $1", dead)
		s.during(sqlReap, "queue = $1\n\tFOR UPDATE OF i SKIP LOCKED", []any{s.queue, errDied, 60}, func() {
			exec(t, s.pool, sqlReap, s.queue, errDied, 60)
			s.take(s.member(60)) // of which the statement cannot see the lease
		})
		if got := s.row(); got != "in flight" {
			t.Errorf("the item is %s, want in flight in the member that lives", got)
		}
	})
	t.Run("freeing: a renewal began in time", func(t *testing.T) {
		s := newStage(t)
		id, tx := s.renewedLate()
		exec(t, s.pool, sqlReap, s.queue, errDied, 60)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.row(); got != "in flight" {
			t.Errorf("the item is %s, though the lease was renewed", got)
		}
		until(t, s.pool, true, "SELECT until > clock_timestamp() FROM reconcile.member WHERE id = $1", id)
	})
	t.Run("freeing: the member is renewed while its row is judged", func(t *testing.T) {
		s := newStage(t)
		_, tx := s.renewedLate()
		s.during(sqlReap, "queue = $1 AND until <= clock_timestamp()", []any{s.queue, errDied, 60}, func() {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if got := s.row(); got != "in flight" {
			t.Errorf("the item is %s, though the lease was renewed", got)
		}
	})
	t.Run("renewing: the member was ended", func(t *testing.T) {
		s := newStage(t)
		id := s.member(60)
		s.ask("within")
		s.take(id)
		exec(t, s.pool, "UPDATE reconcile.member SET until = now() - interval '1 s' WHERE id = $1", id)
		exec(t, s.pool, sqlReap, s.queue, errDied, 60)
		// As if the clock of the database were set back: it is before any time but this one.
		back := strings.ReplaceAll(sqlRenew, "clock_timestamp()", "timestamptz '2000-01-01'")
		if n := exec(t, s.pool, back, id, int64(60e6)); n != 0 {
			t.Error("the lease was renewed after its items were freed")
		}
	})
	t.Run("giving back: an event comes", func(t *testing.T) {
		s := newStage(t)
		s.ask("within")
		run := s.take(s.member(60))
		s.during(sqlGive, "i.owner = g.owner AND i.fence = g.fence\n\tFOR UPDATE", s.giveArgs(run), func() { s.ask("within") })
		if got := s.row(); got != "ready" {
			t.Errorf("the item is %s, want ready: the event is lost", got)
		}
	})
	t.Run("giving back: another member has it by now", func(t *testing.T) {
		s := newStage(t)
		s.ask("within")
		run := s.take(s.member(60))
		s.during(sqlGive, "i.owner = g.owner AND i.fence = g.fence\n\tFOR UPDATE", s.giveArgs(run), func() {
			s.done(run)
			s.ask("within")
			s.take(s.member(60))
		})
		if got := s.row(); got != "in flight" {
			t.Errorf("the item is %s, want in flight in the other member", got)
		}
	})
	t.Run("taking: it is taken by another member", func(t *testing.T) {
		s := newStage(t)
		s.ask("within")
		a, b := s.member(60), s.member(60)
		s.during(sqlTake, "queue = $1 AND owner IS NULL", []any{s.queue, a, 1, []string{}}, func() { s.take(b) })
		until(t, s.pool, b, "SELECT owner FROM reconcile.item WHERE queue = $1", s.queue)
	})
	t.Run("taking: its time is put off", func(t *testing.T) {
		s := newStage(t)
		s.ask("within")
		id := s.member(60)
		s.during(sqlTake, "queue = $1 AND owner IS NULL", []any{s.queue, id, 1, []string{}}, func() {
			s.done(s.take(id))
			exec(t, s.pool, sqlAsk, s.queue, []string{"x"}, []string{"after"}, []int64{3600e6})
		})
		if got := s.row(); got != "waiting" {
			t.Errorf("the item is %s, want waiting", got)
		}
	})
	t.Run("removing: it is taken", func(t *testing.T) {
		s := newStage(t)
		s.ask("within")
		id := s.member(60)
		s.during(sqlRemove, "queue = $1 AND item = $2 FOR UPDATE", []any{s.queue, "x"}, func() { s.take(id) })
		if got := s.row(); got != "in flight" {
			t.Errorf("the item is %s, want in flight", got)
		}
	})
	t.Run("merging: its run ends", func(t *testing.T) {
		s := newStage(t)
		s.ask("within")
		run := s.take(s.member(60))
		exec(t, s.pool, "SELECT reconcile.enqueue($1, 'x', true)", s.queue)
		s.during(sqlMerge, "queue = $1 ORDER BY id", []any{s.queue}, func() { s.done(run) })
		if got := s.row(); got != "ready" {
			t.Errorf("the item is %s, want ready: the event is lost", got)
		}
	})
	t.Run("merging: another process merges", func(t *testing.T) {
		s := newStage(t)
		exec(t, s.pool, "SELECT reconcile.enqueue($1, 'y', true)", s.queue)
		exec(t, begin(t, s.pool), sqlMerge, s.queue)
		exec(t, s.pool, "SELECT reconcile.enqueue($1, 'x', true)", s.queue)
		exec(t, s.pool, sqlMerge, s.queue)
		if got := s.row(); got != "ready" {
			t.Errorf("the item is %s, want ready", got)
		}
	})
	t.Run("comparing: another member has the item by now", func(t *testing.T) {
		s := newStage(t)
		s.ask("within")
		a := s.member(60)
		s.take(a)
		s.during(sqlCheck, "queue = $1 AND owner = $2 AND (item", []any{s.queue, a, []string{}, []int64{}}, func() {
			exec(t, s.pool, "UPDATE reconcile.member SET until = now() - interval '1 s' WHERE id = $1", a)
			exec(t, s.pool, sqlReap, s.queue, errDied, 60)
			s.take(s.member(60))
		})
		if got := s.row(); got != "in flight" {
			t.Errorf("the item is %s, want in flight in the other member", got)
		}
	})
}

// Fences begin again after a failover that lost commits, or a restore. Then a run is still told
// from another of the same item with the same fence, and from one of another item.
func TestFenceIsUsedAgain(t *testing.T) {
	s := newStage(t)
	s.ask("within")
	a, b := s.member(60), s.member(60)
	lost := s.take(a)
	exec(t, s.pool, "UPDATE reconcile.item SET owner = $2 WHERE queue = $1", s.queue, b)
	if n := exec(t, s.pool, sqlGuard, s.queue, "x", a, lost.fence); n != 0 {
		t.Error("Guard accepts the run that was lost")
	}
	s.done(lost)
	if got := s.row(); got != "in flight" {
		t.Errorf("after the give-back of the run that was lost, the item is %s, want in flight in the other member", got)
	}
	if n := exec(t, s.pool, sqlCheck, s.queue, b, []string{"another item", "x"}, []int64{lost.fence, lost.fence + 1}); n != 2 {
		t.Errorf("the table lacks %d runs of the member, want 2", n)
	}
	if got := s.row(); got != "ready" {
		t.Errorf("the item, of which its member has no run, is %s, want ready", got)
	}
}

// Statements lock their rows in the same order, whatever the collation of the database. In that
// of English, "a" comes before "B".
func TestLocksAreInOneOrder(t *testing.T) {
	setUp(t)
	server := pgtest.Shared(t)
	exec(t, pgtest.Pool(t, server.URL()), "CREATE DATABASE english TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'")
	p := pgtest.Pool(t, strings.Replace(server.URL(), "/postgres?", "/english?", 1))
	migrate(t, p, "")
	ask := func() {
		exec(t, p, sqlAsk, "q", []string{"a", "B"}, []string{"after", "after"}, []int64{3600e6, 3600e6})
	}
	ask()
	exec(t, p, "UPDATE reconcile.item SET owner = 7")
	check := func() { exec(t, p, sqlCheck, "q", 7, []string{}, []int64{}) }
	for _, statement := range []func(){ask, check} {
		tx := begin(t, p)
		exec(t, tx, "SELECT FROM reconcile.item WHERE item = 'a' FOR UPDATE")
		ended := make(chan bool)
		go func() {
			defer close(ended)
			statement()
		}()
		until(t, p, 1, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'english' AND wait_event_type = 'Lock'")
		if n := exec(t, p, "SELECT FROM reconcile.item WHERE item = 'B' FOR UPDATE SKIP LOCKED"); n != 0 {
			t.Error("it waits for a before it has locked B")
		}
		tx.Rollback(t.Context())
		next(t, ended)
	}
}

// What a process has taken whose member was deleted, or ended without items, is freed. It takes
// nothing more.
func TestItemsOfADeletedMemberAreFreed(t *testing.T) {
	s := newStage(t)
	id := s.member(60)
	s.ask("within")
	s.take(id)
	exec(t, s.pool, sqlLeave, id)
	if n := exec(t, s.pool, sqlReap, s.queue, errDied, 60); n != 1 || s.row() != "ready" {
		t.Errorf("freed %d items, and it is %s", n, s.row())
	}
	for _, id := range []int64{id, s.member(-1)} {
		if n := exec(t, s.pool, sqlTake, s.queue, id, 1, []string{}); n != 0 {
			t.Error("a member without a lease took it")
		}
	}
}

// After its first failure an item whose process died is ready at once, and held after others, or
// not at all for a leader. A member without items is deleted.
func TestHoldsItemsWhoseProcessesDie(t *testing.T) {
	s := newStage(t)
	s.ask("within")
	die := func(maxHold float64) {
		t.Helper()
		id := s.member(60)
		s.take(id)
		exec(t, s.pool, "UPDATE reconcile.member SET until = now() - interval '1 s' WHERE id = $1", id)
		if n := exec(t, s.pool, sqlReap, s.queue, errDied, maxHold); n != 1 {
			t.Fatalf("freed %d items, want 1", n)
		}
		exec(t, s.pool, sqlReap, s.queue, errDied, maxHold)
		until(t, s.pool, 0, "SELECT count(*) FROM reconcile.member WHERE queue = $1", s.queue)
	}
	for failures, want := range []float64{0, 1, 2, 4, 8, 16, 32, 60, 60} {
		die(60)
		until(t, s.pool, want, "SELECT EXTRACT(epoch FROM due - since)::float8 FROM reconcile.item WHERE queue = $1", s.queue)
		until(t, s.pool, failures+1, "SELECT failures FROM reconcile.item WHERE queue = $1", s.queue)
		exec(t, s.pool, "UPDATE reconcile.item SET due = now(), not_before = NULL WHERE queue = $1", s.queue)
	}
	die(0)
	if got := s.row(); got != "ready" {
		t.Errorf("the item of a leader is %s, want ready", got)
	}
}

// TestRowsGuide runs the statements of docs/guides/rows.md. A row is written only if it is as it
// was read. Of two transactions that reserve at once, one waits, and counts what the other wrote.
func TestRowsGuide(t *testing.T) {
	blocks := pgtest.Blocks(t, "../../docs/guides/rows.md")
	lock, reserve, _ := strings.Cut(blocks[2], ";\n")
	p := pgtest.Pool(t, pgtest.New(t).URL())
	exec(t, p, blocks[0]+"INSERT INTO scan (id) VALUES ('a'), ('b'), ('c')")
	start := func(id string) []any { return []any{id, "running", time.Now(), true, "pending", false} }
	for _, want := range []int64{1, 0} {
		if n := exec(t, p, blocks[1], start("a")...); n != want {
			t.Errorf("put has written %d rows, want %d", n, want)
		}
	}
	first, later, ended := begin(t, p), begin(t, p), make(chan error)
	exec(t, first, lock)
	if n := exec(t, first, reserve, start("b")...); n != 1 {
		t.Errorf("reserve has written %d rows, want 1", n)
	}
	go func() {
		_, err := later.Exec(t.Context(), lock)
		ended <- err
	}()
	until(t, p, true, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
	if err := errors.Join(first.Commit(t.Context()), next(t, ended)); err != nil {
		t.Fatal(err)
	}
	if n := exec(t, later, reserve, start("c")...); n != 0 {
		t.Errorf("a third row has reserved a machine")
	}
}
