// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/internal/servers"
)

// TestSmoke runs the command of the README and the statements of its first steps, and finds
// the series of the alerts. The program leaves nothing behind.
func TestSmoke(t *testing.T) {
	tmp, err := os.MkdirTemp("", "buckets-smoke-") // t.TempDir is closed to the user postgres
	if err == nil {
		err = os.Chmod(tmp, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &servers.Process{Path: path, Args: []string{"-local", "-period", "100ms"}, Env: []string{"TMPDIR=" + tmp}}
	p.Ready = func(context.Context) error {
		if !strings.Contains(p.Output(), "postgres: leads") {
			return errors.New("no replica leads")
		}
		return nil
	}
	t.Cleanup(p.Kill)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	find := func(pattern string) []string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(p.Output())
		if found == nil {
			t.Fatalf("the program printed nothing as %s:\n%s", pattern, p.Output())
		}
		return found[1:]
	}
	store := find(`store: curl --user example:(\S+) .* (http\S+)\n`)
	c := newClient(t, find(`table: psql '(.*)'`)[0], store[1], store[0])

	steps := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(steps) != 3 {
		t.Fatalf("the README has %d statements, want 3: an insert, a mark, and a loss", len(steps))
	}
	c.exec(steps[0][1])
	c.status("ok", "payroll", "logs")
	c.want("payroll", "reconcile-owner=example team=finance Enabled")
	c.want("logs", "reconcile-owner=example")
	c.exec(steps[1][1])
	c.status("deleted", "logs")
	c.want("logs", "none")
	c.exec(steps[2][1])

	// The leader has the page, and both have metrics.
	pages := regexp.MustCompile(`leads: (http://\S+)`).FindAllStringSubmatch(p.Output(), -1)
	var all string
	leaders := 0
	for _, page := range pages {
		if code, text := get(t, page[1]); code == http.StatusOK && strings.Contains(text, "Buckets") {
			leaders++
		}
		_, text := get(t, page[1]+"/metrics")
		all += text
	}
	if leaders != 1 || len(pages) != 2 {
		t.Errorf("%d of %d replicas have the page of a leader, want 1 of 2", leaders, len(pages))
	}
	alerts := read(t, "alerts.yml") + read(t, "../../adapters/prometheus/alerts.yml")
	for _, series := range []string{"buckets_leader", "reconcile_oldest_pending_seconds", "reconcile_listing_age_seconds", "reconcile_listing_rejected_seconds", "workqueue_depth"} {
		if !strings.Contains(alerts, series) || !strings.Contains(all, "\n"+series) {
			t.Errorf("the series %s is not one of the alerts, or no replica has it", series)
		}
	}

	p.Stop()
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 || fmt.Sprint(p.Wait()) != "<nil>" {
		t.Errorf("at the end: %v, and it leaves %v, %v; it printed\n%s", p.Wait(), left, err, p.Output())
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
