// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/reconkernel/reconcile/explore"
)

// Two mistakes that the example with a database handle does not make.
func TestFaultsOfADatabase(t *testing.T) {
	for _, c := range []struct {
		mistake  string
		noteDone noting
		plan     string
	}{
		{"it has no transaction", func(ctx context.Context, db *sql.DB, id string) error {
			_, err := db.ExecContext(ctx, setDone, id)
			if err == nil {
				_, err = db.ExecContext(ctx, addLog, id)
			}
			return err
		}, "call " + setDone + " a #1: answer lost"},
		{"it repeats a commit whose response was lost", func(ctx context.Context, db *sql.DB, id string) error {
			note := func() error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }()
				for _, statement := range []string{setDone, addLog} {
					if _, err := tx.ExecContext(ctx, statement, id); err != nil {
						return err
					}
				}
				return tx.Commit()
			}
			err := note()
			if err != nil {
				err = note()
			}
			return err
		}, "call commit #1: answer lost"},
	} {
		r, err := explore.Search(t, jobs(c.noteDone))
		if err != nil || r.Found == nil || !slices.Equal(r.Found.Plan, []string{c.plan}) {
			t.Errorf("%s: exploring finds %v, %v, want %s", c.mistake, r.Found, err, c.plan)
		}
	}
}
