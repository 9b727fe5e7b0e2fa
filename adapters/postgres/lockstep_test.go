// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
	"github.com/reconkernel/reconcile/internal/model"
)

// start is the time of the database's clock when that of the model is zero.
var start = time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC)

// A twin is a model and the statements, with an item that both know. The statements read the
// time from a table, so it stands still between two operations.
type twin struct {
	t     *testing.T
	conn  *pgx.Conn
	model model.Queue[string]
	item  string
	fence int64
}

func newTwin(t *testing.T) *twin {
	setUp(t)
	conn, err := pgx.Connect(t.Context(), pgtest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	w := &twin{t: t, conn: conn}
	w.exec("CREATE TEMP TABLE clock (now timestamptz)")
	w.exec("INSERT INTO clock VALUES ($1)", start)
	w.exec("INSERT INTO reconcile.member (id, queue, name, until) VALUES (-1, 'lockstep', 'x', 'infinity') ON CONFLICT (id) DO NOTHING")
	return w
}

// begin begins anew, at the start of the clock.
func (w *twin) begin(item string) {
	w.model, w.item, w.fence = model.Queue[string]{}, item, 0
	w.exec("UPDATE clock SET now = $1", start)
	w.exec("DELETE FROM reconcile.item WHERE queue = 'lockstep'")
}

func (w *twin) now() time.Time { return start.Add(w.model.Now()) }

func (w *twin) in(sql string) string {
	return strings.ReplaceAll(sql, "statement_timestamp()", "(SELECT now FROM clock)")
}

func (w *twin) exec(sql string, args ...any) int64 {
	w.t.Helper()
	tag, err := w.conn.Exec(context.Background(), w.in(sql), args...)
	if err != nil {
		w.t.Fatalf("%v, of %s", err, w.in(sql))
	}
	return tag.RowsAffected()
}

// do carries an operation out on both.
func (w *twin) do(o model.Op[string]) error {
	verbs := map[model.Verb]string{model.Offer: "offer", model.Enqueue: "within", model.EnqueueAfter: "after", model.EnqueueWithin: "within", model.EnqueueNow: "now"}
	o.Item = w.item
	removed := false
	switch o.Verb {
	case model.Advance:
		w.model.Advance(o.Options.Delay)
		w.exec("UPDATE clock SET now = $1", w.now())
		return nil
	case model.Dequeue:
		_, answer := w.model.TryDequeue()
		return w.take(answer == model.Taken)
	case model.Remove:
		if err := w.conn.QueryRow(context.Background(), sqlRemove, "lockstep", w.item).Scan(&removed); err != nil {
			return err
		}
	case model.Done, model.Requeue:
		options := reconcile.RequeueOptions(o.Options)
		if o.Verb == model.Done {
			options = reconcile.RequeueOptions{Done: true}
		}
		w.give(options)
	default:
		delay := max(0, o.Options.Delay).Microseconds()
		if o.Verb != model.EnqueueAfter && o.Verb != model.EnqueueWithin {
			delay = 0
		}
		verb := verbs[o.Verb]
		if verb == "after" && delay == 0 {
			verb = "within"
		}
		w.exec(sqlAsk, "lockstep", []string{w.item}, []string{verb}, []int64{delay})
	}
	if want, _ := o.Do(&w.model); removed != want {
		return fmt.Errorf("Remove: %t, want %t", removed, want)
	}
	return w.compare()
}

func (w *twin) take(taken bool) error {
	rows, _ := w.conn.Query(context.Background(), w.in(sqlTake), "lockstep", int64(-1), 5, []string{})
	n := 0
	for rows.Next() {
		var item, err string
		var failures int
		var since, pending time.Time
		if err := rows.Scan(&item, &w.fence, &failures, &err, &since, &pending); err != nil {
			return err
		}
		n++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if (n == 1) != taken {
		return fmt.Errorf("took %d items, and the model hands one out: %t", n, taken)
	}
	return w.compare()
}

func (w *twin) give(options reconcile.RequeueOptions) {
	o := giveBackOf(options)
	delay := max(0, options.Delay, options.MinDelay).Microseconds()
	w.exec(sqlGive, "lockstep", []string{w.item}, []int64{-1}, []int64{w.fence}, []string{o.verb}, []int64{delay}, []int64{max(0, options.MinDelay).Microseconds()}, []string{o.err})
}

// compare returns an error if the row of the item is not what the model says.
func (w *twin) compare() error {
	rows, _ := w.conn.Query(context.Background(), w.in(sqlState), "lockstep", w.item)
	defer rows.Close()
	entry, known := w.model.Entry(w.item)
	if rows.Next() != known {
		return fmt.Errorf("there is a row: %t, known to the model: %t", !known, known)
	}
	if !known {
		return rows.Err()
	}
	_, got, err := scanState(rows)
	if err != nil {
		return err
	}
	want := stateOf(w.model.State(w.item))
	if got.Phase == reconcile.PhaseInFlight {
		got.Again = want.Again // It says less than next, below.
	}
	if text(got) != text(want) {
		return fmt.Errorf("State:\n got %s\nwant %s", text(got), text(want))
	}
	rows.Close()
	return w.compareNext(entry)
}

// compareNext compares the next run.
func (w *twin) compareNext(e model.Entry[string]) error {
	var due, notBefore *time.Time
	var atOnce, recheck bool
	err := w.conn.QueryRow(context.Background(), `SELECT due, CASE WHEN isfinite(not_before) THEN not_before END, COALESCE(not_before = '-infinity', false), recheck
		FROM reconcile.item WHERE queue = 'lockstep' AND item = $1`, w.item).Scan(&due, &notBefore, &atOnce, &recheck)
	if err != nil {
		return err
	}
	n, now := e.Next, w.model.Now()
	got := fmt.Sprint("due ", due != nil, " ready ", due != nil && !due.After(w.now()))
	want := fmt.Sprint("due ", n.Exists, " ready ", n.Exists && n.Ready(now))
	if got == want && due != nil && due.After(w.now()) {
		got += fmt.Sprint(" at ", *due, " recheck ", recheck)
		want += fmt.Sprint(" at ", start.Add(n.Due).Local(), " recheck ", n.Recheck)
		if notBefore != nil && notBefore.After(w.now()) {
			got += fmt.Sprint(" not before ", *notBefore)
		}
		if n.NotBefore > now {
			want += fmt.Sprint(" not before ", start.Add(n.NotBefore).Local())
		}
	}
	if e.InFlight {
		got += fmt.Sprint(" now ", atOnce)
		want += fmt.Sprint(" now ", n.Now)
	}
	if got != want {
		return fmt.Errorf("next run:\n got %s\nwant %s", got, want)
	}
	return nil
}

// stateOf translates a State of the model.
func stateOf(m model.State) reconcile.State {
	at := func(d time.Duration) time.Time {
		if d == 0 {
			return time.Time{}
		}
		return start.Add(d)
	}
	s := reconcile.State{
		Phase: reconcile.Phase(m.Phase), Since: start.Add(m.Since), Due: at(m.Due), NotBefore: at(m.NotBefore),
		Again: m.Again, Recheck: m.Recheck, Failures: m.Failures, Err: m.Err,
	}
	if !m.Recheck {
		s.Pending = start.Add(m.Pending)
	}
	return s
}

func text(s reconcile.State) string {
	zone := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.UTC().Format("15:04:05.000000")
	}
	return fmt.Sprintf("%v since %s due %s not before %s again %t recheck %t pending %s failures %d err %v",
		s.Phase, zone(s.Since), zone(s.Due), zone(s.NotBefore), s.Again, s.Recheck, zone(s.Pending), s.Failures, s.Err)
}

// TestLockstep carries random programs out on the model and on the statements. After each
// step, both say the same of the item and of its next run.
func TestLockstep(t *testing.T) {
	const programs, steps = 3000, 30
	w := newTwin(t)
	r := rand.New(rand.NewPCG(1, 2))
	for n := range programs {
		w.begin(fmt.Sprint("x", n))
		var ops []model.Op[string]
		for range steps {
			ops = append(ops, randomOp(r))
			if err := w.do(ops[len(ops)-1]); err != nil {
				t.Fatalf("program %d, after %v: %v", n, ops, err)
			}
		}
	}
}

func randomOp(r *rand.Rand) model.Op[string] {
	o := model.Op[string]{Verb: model.Verb(r.IntN(int(model.Dequeue) + 1))}
	switch r.IntN(6) {
	case 0:
		o.Verb = model.Advance
	case 1:
		o.Verb = model.Dequeue
	}
	o.Options.Delay = time.Duration(r.IntN(5)-1) * time.Hour
	if o.Verb == model.Advance {
		o.Options.Delay = time.Duration(r.IntN(150)) * time.Minute
	}
	if r.IntN(2) == 0 {
		o.Options.MinDelay = []time.Duration{o.Options.Delay, time.Second, 2 * time.Hour}[r.IntN(3)]
	}
	if o.Verb != model.Requeue {
		return o
	}
	o.Options.Recheck = r.IntN(2) == 0
	switch r.IntN(4) {
	case 0:
		o.Options.Err = errors.New("oops")
	case 1:
		o.Options.Aborted = true
	case 2:
		o.Options.Reason = errors.New("it is being made")
	}
	o.Options.Done = r.IntN(6) == 0
	return o
}

// TestTable runs every cell of the kernel's state table on the statements, except those of
// Close, which TestClose has. A cell that is the same in a queue with a Background and in one
// without is one here.
func TestTable(t *testing.T) {
	w := newTwin(t)
	cells := 0
	for _, c := range model.Cells() {
		if c.Closed || c.Op.Verb == model.Close {
			continue
		}
		cells++
		t.Run(c.Name(), func(t *testing.T) {
			w.t = t
			w.begin("x")
			for _, o := range append(c.Setup, c.Op) {
				if err := w.do(o); err != nil {
					t.Fatalf("%v: %v", o, err)
				}
			}
		})
	}
	if cells < 600 {
		t.Errorf("%d cells, want those of the table", cells)
	}
}
