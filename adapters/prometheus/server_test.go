// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package promadapter_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/supervise"
)

// TestPrometheus has a real Prometheus scrape the metrics of disks in trouble, with
// alerts.yml loaded. Alerts that this program deserves must reach
// an alert manager, and every query of the dashboard must have an answer.
func TestPrometheus(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	program := httptest.NewServer(disksHandler(t))
	defer program.Close()
	target := program.Listener.Addr().String()

	alerts := make(chan string, 100)
	manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var batch []struct{ Labels map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		for _, a := range batch {
			select {
			case alerts <- a.Labels["alertname"] + " of " + a.Labels["controller"]:
			case <-ctx.Done():
			}
		}
	}))
	defer manager.Close()
	server := "http://" + startPrometheus(ctx, t, target, manager.Listener.Addr().String())

	want := map[string]bool{"ReconcilePanics of disks": true, "ReconcileGaveUp of disks": true}
	for len(want) > 0 {
		select {
		case alert := <-alerts:
			delete(want, alert)
		case <-ctx.Done():
			t.Fatalf("alerts that never came: %v", want)
		}
	}

	at := scraped(ctx, t, server)
	for _, expr := range []string{`up`, `workqueue_depth{name="disks"}`} {
		if got := query(ctx, t, server, expr, at); len(got) != 1 {
			t.Errorf("%s: %v, want one series", expr, got)
		}
	}
	if got := query(ctx, t, server, `up`, at); len(got) == 1 && got[0] != "1" {
		t.Errorf("up is %v: Prometheus cannot read the program", got)
	}
	interval := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$controller", ".*", "$gate", ".*", "$listing", ".*")
	for _, target := range readDashboard(t).targets() {
		got := query(ctx, t, server, interval.Replace(target.Expr), at)
		if len(got) == 0 {
			t.Errorf("dashboard: no answer to %s", target.Expr)
		}
		for _, v := range got {
			if v == "NaN" {
				t.Errorf("dashboard: NaN is the answer to %s", target.Expr)
			}
		}
	}
	rules := loadedRules(ctx, t, server)
	if len(rules) == 0 {
		t.Error("Prometheus has no rules")
	}
	for _, expr := range rules {
		query(ctx, t, server, expr, at)
	}
}

// disksHandler serves the metrics of a program that keeps disks in sync that have all the
// troubles disks can have. The program ends with the test.
func disksHandler(t *testing.T) http.Handler {
	t.Helper()
	q := reconcile.NewQueue[string]()
	far := &gate.Gate{Max: 3}
	disks := &reconcile.Reconciler[string]{
		Name:      "disks",
		Queue:     q,
		Workers:   4,
		Timeout:   200 * time.Millisecond,
		Retry:     reconcile.Backoff(50*time.Millisecond, time.Second),
		Reconcile: attach,
		Admit:     far.Admit,
	}
	poll := &reconcile.Poller[string]{
		Name:     "disks",
		Queue:    q,
		Period:   500 * time.Millisecond,
		GetItems: list,
	}

	var metrics promadapter.Collector
	if err := promadapter.Instrument(&metrics, disks); err != nil {
		t.Fatal(err)
	}
	if err := metrics.AddGate("disks", far); err != nil {
		t.Fatal(err)
	}
	snapshots := newSnapshots()
	if err := metrics.AddListing("snapshots", snapshots); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&metrics)

	var group supervise.Group
	group.Add("disks", disks)
	group.Add("poll", poll)
	group.Add("snapshots", snapshots)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// newSnapshots returns a Set of snapshots, of which one is missing and one is surplus. No
// Reconciler corrects that: its listings are here for their metrics.
func newSnapshots() *keep.Set[string, string, string] {
	return &keep.Set[string, string, string]{
		Queue:  reconcile.NewQueue[string](),
		Period: time.Second,
		Desired: func(context.Context) (map[string]string, error) {
			return map[string]string{"monday": "1", "tuesday": "1"}, nil
		},
		Actual: func(context.Context) (map[string]string, error) {
			return map[string]string{"sunday": "1", "monday": "1"}, nil
		},
		InSync: func(desired, actual string) bool { return desired == actual },
		Ensure: func(context.Context, string, string) error { return nil },
		Delete: func(context.Context, string, string) error { return nil },
	}
}

// list returns the disks that there are.
func list(context.Context) ([]string, error) {
	disks := []string{"broken", "forbidden", "faulty", "slow", "young"}
	for i := range 20 {
		disks = append(disks, fmt.Sprintf("disk-%d", i))
	}
	return disks, nil
}

// attach attaches a disk, if it is a good one, and looks at it again every second.
func attach(ctx context.Context, disk string) error {
	switch disk {
	case "broken":
		return errors.New("disk is broken")
	case "forbidden":
		return reconcile.Terminal(errors.New("not ours"))
	case "faulty":
		panic("a fault of the program")
	case "slow":
		<-ctx.Done()
		return context.Cause(ctx)
	case "young":
		return fmt.Errorf("being made: %w", reconcile.RequeueAfter(300*time.Millisecond))
	}
	select {
	case <-time.After(rand.N(20 * time.Millisecond)):
		return reconcile.RecheckWithin(time.Second)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startPrometheus starts Prometheus for one target, and returns its address
// once it serves.
func startPrometheus(ctx context.Context, t *testing.T, target, manager string) string {
	t.Helper()
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`
global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}
rule_files: [%q]
scrape_configs: [{job_name: disks, static_configs: [{targets: [%q]}]}]
alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}
`, rules, target, manager)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	return start(ctx, t, cmd,
		regexp.MustCompile(`msg="Listening on" address="?([0-9.:]+)`),
		regexp.MustCompile(`msg="Server is ready to receive web requests\."`))[0]
}

// start starts a program that ends with the test, and waits until it has
// printed a line for each of the patterns, in this order. It returns what their
// parentheses matched.
func start(ctx context.Context, t *testing.T, cmd *exec.Cmd, lines ...*regexp.Regexp) []string {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	err = cmd.Start()
	_ = writer.Close()
	if err != nil {
		t.Fatalf("%v (ci.sh installs Prometheus)", err)
	}

	var text strings.Builder
	found := make(chan []string, 1)
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		var matches []string
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			if len(lines) == 0 {
				continue // it must not have to wait for a reader
			}
			text.WriteString(scanner.Text() + "\n")
			if m := lines[0].FindStringSubmatch(scanner.Text()); m != nil {
				matches = append(matches, m[1:]...)
				if lines = lines[1:]; len(lines) == 0 {
					found <- matches
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Cancel()
		_ = cmd.Wait() // its exit status does not matter any more
		<-printed
		_ = reader.Close()
	})
	select {
	case matches := <-found:
		return matches
	case <-printed:
		t.Fatalf("%s ended before it said that it serves:\n%s", cmd.Path, text.String())
	case <-ctx.Done():
		t.Fatalf("%s does not say that it serves", cmd.Path)
	}
	return nil
}

// scraped returns when Prometheus last read the program, within a minute. Each
// time that it does not get an answer soon, from a machine under load, there is
// nothing to query until the next. It asks for the samples themselves: steps of a
// subquery could all be before the last one, which the alerts are about.
func scraped(ctx context.Context, t *testing.T, server string) string {
	t.Helper()
	var answer struct {
		Result []struct{ Values [][2]any }
	}
	get(ctx, t, server+"/api/v1/query?query="+url.QueryEscape("up[1m]"), &answer)
	if len(answer.Result) != 1 {
		t.Fatalf("%d programs are read, want one", len(answer.Result))
	}
	for _, v := range slices.Backward(answer.Result[0].Values) {
		if v[1] == "1" {
			return fmt.Sprintf("%.3f", v[0])
		}
	}
	t.Fatal("Prometheus cannot read the program")
	return ""
}

// query asks Prometheus how it is at a time, or now, and returns the values of
// the answer.
func query(ctx context.Context, t *testing.T, server, expr, at string) []string {
	t.Helper()
	values := url.Values{"query": {expr}}
	if at != "" {
		values.Set("time", at)
	}
	var answer struct {
		Result []struct{ Value [2]any }
	}
	get(ctx, t, server+"/api/v1/query?"+values.Encode(), &answer)
	var found []string
	for _, r := range answer.Result {
		found = append(found, fmt.Sprint(r.Value[1]))
	}
	return found
}

// loadedRules returns the expressions of the alerts that Prometheus has loaded.
func loadedRules(ctx context.Context, t *testing.T, server string) []string {
	t.Helper()
	var answer struct {
		Groups []struct{ Rules []struct{ Query string } }
	}
	get(ctx, t, server+"/api/v1/rules", &answer)
	var exprs []string
	for _, g := range answer.Groups {
		for _, r := range g.Rules {
			exprs = append(exprs, r.Query)
		}
	}
	return exprs
}

// get reads the data of an answer of Prometheus.
func get(ctx context.Context, t *testing.T, link string, data any) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %v", link, err)
	}
	if answer.Status != "success" {
		t.Errorf("%s: %s", link, answer.Error)
	}
}
