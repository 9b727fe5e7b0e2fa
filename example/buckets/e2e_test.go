// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"
)

// many inserts rows of so many buckets, and waits for them. It returns their names.
func (w *world) many(n int) []string {
	w.t.Helper()
	w.exec("INSERT INTO bucket (name) SELECT 'many-' || i FROM generate_series(1, $1) i", n)
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("many-%d", i+1))
	}
	w.status("ok", names...)
	return names
}

// Each change by another client is corrected, and tags of others stay.
func TestDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.exec("INSERT INTO bucket (name, team, versioning) VALUES ('payroll', 'finance', true), ('logs', '', false)")
	w.status("ok", "payroll", "logs")
	w.tag("payroll", map[string]string{"reconcile-owner": "example", "team": "product", "cost": "7"})
	w.becomes("payroll", "cost=7 reconcile-owner=example team=finance Enabled")
	w.must(w.s3.SuspendVersioning(t.Context(), "payroll"))
	w.becomes("payroll", "cost=7 reconcile-owner=example team=finance Enabled")
	w.must(w.s3.RemoveBucket(t.Context(), "logs"))
	w.becomes("logs", "reconcile-owner=example")
	w.exec("UPDATE bucket SET team = '', versioning = false WHERE name = 'payroll'")
	w.becomes("payroll", "cost=7 reconcile-owner=example Suspended")
	w.status("ok", "payroll", "logs")
}

// Buckets of others are neither changed nor deleted, and a bucket with objects stays.
func TestNotOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	make := func(name string, tags map[string]string, objects ...string) {
		w.must(w.s3.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}))
		if tags != nil {
			w.tag(name, tags)
		}
		for _, key := range objects {
			w.put(name, key)
		}
	}
	make("theirs", map[string]string{"reconcile-owner": "them"})
	make("tagged", map[string]string{"cost": "7"})
	make("full", nil, "data")
	make("empty", nil)
	make("unnamed", nil)
	make("ours", map[string]string{"reconcile-owner": "example"}, "data")
	w.start("-delete-after", "10ms")
	w.exec("INSERT INTO bucket (name, deleted) VALUES ('theirs', false), ('tagged', false), ('full', false), ('empty', false), ('ours', true)")
	w.status("the bucket exists, and its tag reconcile-owner is", "theirs", "tagged")
	w.status("the bucket exists, has the object data", "full")
	w.status("deleting the bucket: The bucket you tried to delete is not empty", "ours")
	w.status("ok", "empty")
	w.exec("UPDATE bucket SET deleted = true WHERE name = 'theirs'")
	w.status("deleted", "theirs") // of ours there is none
	w.want("theirs", "reconcile-owner=them")
	w.want("tagged", "cost=7")
	w.want("full", "")
	w.want("unnamed", "")
	w.want("ours", "reconcile-owner=example")

	w.tag("full", map[string]string{"reconcile-owner": "example"}) // handed over
	w.status("ok", "full")
	w.must(w.s3.RemoveObject(t.Context(), "ours", "data", minio.RemoveObjectOptions{}))
	w.status("deleted", "ours")
	w.want("ours", "none")
}

// Rows that get lost delete no bucket, also if an operator accepts that. With the rows back,
// all is in sync.
func TestLostRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start("-delete-after", "10ms")
	names := w.many(12)
	check := func() {
		for _, name := range names {
			w.want(name, "reconcile-owner=example")
		}
	}
	w.exec("DELETE FROM bucket WHERE name = 'many-7'") // 9 % of them
	r.logs(1, "run failed, retrying", "item=many-7", "failures=3", "the table has no row of it")
	check()

	w.exec("TRUNCATE bucket")
	r.logs(1, "listings rejected")
	check()
	_, status := get(t, "http://"+r.address+"/status.json")
	shown := regexp.MustCompile(`"shown": ?"([^"]+)"`).FindStringSubmatch(status)
	if shown == nil {
		t.Fatalf("the page shows no rejected listing: %s", status)
	}
	resp, err := http.PostForm("http://"+r.address+"/listing.json", url.Values{"listing": {"buckets"}, "action": {"accept"}, "shown": {shown[1]}})
	w.must(err)
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Fatalf("accept: %s", resp.Status)
	}
	r.logs(1, "run failed, retrying", "item=many-1 ", "the table has no row of it")
	check()

	w.exec("INSERT INTO bucket (name) SELECT 'many-' || i FROM generate_series(1, 12) i")
	w.status("ok", names...)
	check()
}

// The other replica goes on when the leader is killed, and when it is frozen. A leader that
// continues after that is a candidate.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start("-lease", "2s")
	first.logs(1, "postgres: leads")
	second := w.start("-lease", "2s")
	w.many(3)
	first.Kill()
	w.exec("INSERT INTO bucket (name, deleted) VALUES ('after-the-kill', false), ('never', true)") // nobody listens
	second.logs(1, "postgres: leads")
	w.status("ok", "after-the-kill")
	w.status("deleted", "never")

	w.must(first.Start(t.Context()))
	second.Pause()
	w.exec("INSERT INTO bucket (name) VALUES ('after-the-freeze')")
	first.logs(2, "postgres: leads")
	w.status("ok", "after-the-freeze")
	second.Resume()
	w.until(func(context.Context) error {
		if code, text := get(t, "http://"+second.address); code != http.StatusServiceUnavailable {
			return fmt.Errorf("the page of the former leader: %d, %s", code, text)
		}
		return nil
	})

	// At SIGTERM the next one leads at once.
	w.must(syscall.Kill(first.PID(), syscall.SIGTERM))
	if err := first.Wait(); err != nil {
		t.Errorf("the leader ends with %v:\n%s", err, first.Output())
	}
	second.logs(2, "postgres: leads")
	w.exec("INSERT INTO bucket (name) VALUES ('after-the-end')")
	w.status("ok", "after-the-end")
}

// The servers restart, also without a shutdown, and nothing is lost: a replica that has lost
// its connection lists when it listens again.
func TestServersRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("-period", "1h")
	w.many(3)
	for i, end := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} { // fast, immediate
		name := fmt.Sprintf("restart-%d", i)
		w.must(syscall.Kill(w.postgres.PID(), end))
		_ = w.postgres.Wait()
		w.must(w.postgres.Start(t.Context()))
		w.pool.Reset() // its connections are dead
		w.exec("INSERT INTO bucket (name) VALUES ($1)", name)
		w.status("ok", name)
	}
	w.gateway.Kill()
	w.exec("INSERT INTO bucket (name) VALUES ('no-store')")
	w.status("reading the tags: ", "no-store")
	w.must(w.gateway.Start(t.Context()))
	w.status("ok", "no-store")
}

// A status is that of the row as it is, and not as it was when the run began.
func TestStatusIsOfTheLatestRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start("-period", "1h") // only events
	w.exec(`
		CREATE TABLE written (id serial, status text);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO written (status) VALUES (NEW.status);
			RETURN NULL;
		END $$;
		CREATE TRIGGER note AFTER UPDATE OF status ON bucket FOR EACH ROW EXECUTE FUNCTION note()`)
	w.many(1) // the listings of the start are over
	w.exec("INSERT INTO bucket (name, team) VALUES ('payroll', 'a')")
	w.status("ok", "payroll")
	w.put("payroll", "data")
	w.gateway.Pause()
	w.exec("UPDATE bucket SET team = 'b' WHERE name = 'payroll'")
	r.metric("reconcile_queue_in_flight", 1) // its run waits for the store
	w.exec("UPDATE bucket SET deleted = true WHERE name = 'payroll'")
	w.gateway.Resume()
	r.metric("reconcile_queue_waiting", 1) // for the second listing that shows the mark
	w.status("pending", "payroll")
	var written int
	w.must(w.pool.QueryRow(t.Context(), "SELECT count(*) FROM written").Scan(&written))
	if written != 2 {
		t.Errorf("a status was written %d times, want 2: ok for each bucket", written)
	}
}

// A status is written under the lease of the leader, or not at all.
func TestStatusIsGuarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	table := table{w.pool}
	w.must(table.create(t.Context()))
	w.exec("INSERT INTO bucket (name) VALUES ('late')")
	err := table.report(t.Context(), row{Name: "late"}, nil) // outside of a term
	if err == nil || !strings.Contains(err.Error(), "writing the status: postgres: Guard") {
		t.Errorf("report: %v, want the error of Guard", err)
	}
	w.status("pending", "late")
}
