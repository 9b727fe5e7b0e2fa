// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
)

func TestConfigErrors(t *testing.T) {
	p := setUp(t)
	repeatable := pgtest.Pool(t, pgtest.Shared(t).URL()+"&default_transaction_isolation=repeatable%20read")
	exec(t, p, "CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0")
	latin := pgtest.Pool(t, strings.Replace(pgtest.Shared(t).URL(), "/postgres?", "/latin?", 1))
	for want, cfg := range map[string]Config{
		"Config.Pool is nil":                                    {Name: "x"},
		`Config.Name is "", want 1 to 32 letters`:               {Pool: p},
		`Config.Name is "a b", want`:                            {Pool: p, Name: "a b"},
		`Config.Name is "` + strings.Repeat("x", 33):            {Pool: p, Name: strings.Repeat("x", 33)},
		"Config.Lease is 30ns, want 1s to 1h":                   {Pool: p, Name: "x", Lease: 30},
		"Config.Lease is -1s, want":                             {Pool: p, Name: "x", Lease: -time.Second},
		"Config.Lease is 1h0m1s, want 1s to 1h":                 {Pool: p, Name: "x", Lease: time.Hour + time.Second},
		"Config.Poll is 5ns, want 100ms to 1h":                  {Pool: p, Name: "x", Poll: 5},
		"Config.Poll is 1h0m1s, want 100ms to 1h":               {Pool: p, Name: "x", Poll: time.Hour + time.Second},
		"Config.Ahead is -1, want 0":                            {Pool: p, Name: "x", Ahead: -1},
		`the schema is named "A", want 1 to 20 lower-case`:      {Pool: p, Name: "x", Schema: "A"},
		"is \"repeatable read\" for Config.Pool, want":          {Pool: repeatable, Name: "x"},
		"the database has the encoding LATIN1, want UTF8":       {Pool: latin, Name: "x"},
		"there are no tables in schema elsewhere, call Migrate": {Pool: p, Name: "x", Schema: "elsewhere"},
	} {
		_, err := New[string](t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
		waits := strings.Contains(want, "Migrate")
		if errors.Is(err, reconcile.ErrTerminal) == waits {
			t.Errorf("%v: terminal %t", err, !waits)
		}
		if waits { // as does a Candidate
			continue
		}
		if err := Elect(cfg, reconcile.RunFunc(nil)).Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Elect: %v, want %q", err, want)
		}
	}
	if _, err := New[struct{}](t.Context(), Config{Pool: p, Name: "x"}); err == nil || !strings.Contains(err.Error(), "want a string or an integer; NewFunc takes others") {
		t.Errorf("New of structs: %v", err)
	}
	if _, err := NewFunc[int](t.Context(), Config{Pool: p, Name: "x"}, nil, nil); err == nil || !strings.Contains(err.Error(), "one is nil") {
		t.Errorf("NewFunc without functions: %v", err)
	}
}

// Many processes may migrate at once and again. Two schemas in one database do not meet, and
// one that is newer than this package is refused.
func TestMigrate(t *testing.T) {
	p := setUp(t)
	strict := pgtest.Pool(t, pgtest.Shared(t).URL()+"&default_transaction_isolation=serializable")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := Migrate(context.Background(), strict, "user"); err != nil { // a word of SQL
				t.Error(err)
			}
		})
	}
	all.Wait()
	a, b := open(t, Config{Pool: p, Name: "same"}), open(t, Config{Pool: p, Name: "same", Schema: "user"})
	enqueue(t, a, "a")
	enqueue(t, b, "b")
	exec(t, p, `SELECT "user".enqueue('same', 'c')`)
	take(t, a, "a")
	take(t, b, "b")
	take(t, b, "c")

	// Two versions of the schema side by side: each program finds its own.
	migrate(t, p, "newer")
	exec(t, p, "INSERT INTO newer.version VALUES (2)")
	want := "the tables have version 2, this program needs version 1"
	for _, err := range []error{Migrate(t.Context(), p, "newer"), newError(p, "newer")} {
		if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "newer") {
			t.Errorf("%v, want a terminal error with %q", err, want)
		}
	}
	enqueue(t, a, "still")
	take(t, a, "still")

	// A role without rights on the database may call Migrate once the tables are there.
	exec(t, p, "CREATE ROLE worker LOGIN; GRANT USAGE ON SCHEMA reconcile TO worker; GRANT ALL ON ALL TABLES IN SCHEMA reconcile TO worker; GRANT ALL ON SEQUENCE reconcile.fence TO worker")
	w := pgtest.Pool(t, strings.Replace(pgtest.Shared(t).URL(), "postgres@", "worker@", 1))
	migrate(t, w, "")
	if err := Migrate(t.Context(), w, "forbidden"); err == nil || !strings.Contains(err.Error(), "migrating schema forbidden: ERROR: permission denied") {
		t.Errorf("Migrate without rights: %v", err)
	}
	q := open(t, Config{Pool: w})
	enqueue(t, q, "x")
	take(t, q, "x")
}

func newError(p *pgxpool.Pool, schema string) error {
	_, err := New[string](context.Background(), Config{Pool: p, Name: "x", Schema: schema})
	return err
}

func TestCodecs(t *testing.T) {
	type id uint8
	encode, decode := codecOf[id]()
	if s := encode(200); s != "200" {
		t.Errorf("encoded as %q", s)
	}
	if n, err := decode("200"); n != 200 || err != nil {
		t.Error(n, err)
	}
	if _, err := decode("300"); err == nil {
		t.Error("300 is no uint8, and is decoded")
	}
	type name string
	if s, _ := codecOf[name](); s("ä") != "ä" {
		t.Error("a string is not itself")
	}
	if negative, back := codecOf[int64](); negative(-5) != "-5" {
		t.Error("-5 is not encoded as such")
	} else if n, err := back("-5"); n != -5 || err != nil {
		t.Error(n, err)
	}
	if f, _ := codecOf[any](); f != nil {
		t.Error("an interface has a codec")
	}
}
