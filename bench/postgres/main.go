// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command postgres measures the queue beside River and a plain table with SKIP LOCKED, on the same
// server. The implementations take turns in each round, and a figure is the median of the
// rounds. A run does nothing, so the figures are those of the queue alone.
//
//	go run ./postgres -rounds 5     # all figures but those of bloat
//	go run ./postgres -only bloat   # 100,000 runs each
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile/internal/servers"
)

const (
	workers     = 8 // of each process
	childQueue  = "RECONCILE_BENCH_QUEUE"
	childServer = "RECONCILE_BENCH_URL"
)

func main() {
	if name, ok := os.LookupEnv(childQueue); ok {
		if err := child(name, os.Getenv(childServer)); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		return
	}
	rounds := flag.Int("rounds", 3, "how often to measure")
	only := flag.String("only", "speed latency idle", "the figures: speed, latency, idle, bloat")
	flag.Parse()
	if err := measure(*rounds, strings.Fields(*only)); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// child works until its standard input ends. It prints how long each event waited.
func child(name, url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	q := queues[slices.IndexFunc(queues, func(q queue) bool { return q.name == name })]
	waits := make(chan time.Duration, 100_000)
	err = q.work(ctx, pool, workers, func(item string) {
		if at, ok := strings.CutPrefix(item, "at "); ok {
			n, _ := strconv.ParseInt(at, 10, 64)
			waits <- time.Since(time.Unix(0, n))
		}
	})
	close(waits)
	out := json.NewEncoder(os.Stdout)
	for d := range waits {
		_ = out.Encode(d)
	}
	return err
}

// A bench is a queue in a database of its own.
type bench struct {
	queue
	url   string
	pool  *pgxpool.Pool
	event func(string)
	batch func(context.Context, []string) error
	items int // stored so far
}

func measure(rounds int, only []string) error {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, address, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	url := func(database string) string {
		return "postgres://postgres@" + address + "/" + database + "?sslmode=disable"
	}
	admin, err := pgxpool.New(ctx, url("postgres"))
	if err != nil {
		return err
	}
	var all []*bench
	for i, q := range queues {
		b := &bench{queue: q, url: url(fmt.Sprint("bench", i))}
		if _, err := admin.Exec(ctx, fmt.Sprint("CREATE DATABASE bench", i)); err != nil {
			return err
		}
		if b.pool, err = pgxpool.New(ctx, b.url); err != nil {
			return err
		}
		if _, err := b.pool.Exec(ctx, "CREATE SCHEMA stats; CREATE EXTENSION pg_stat_statements SCHEMA stats"); err != nil {
			return err
		}
		if err := b.create(ctx, b.pool); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if b.event, b.batch, err = b.open(ctx, b.pool); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		all = append(all, b)
	}
	figures := []struct {
		kind, name string
		of         func(*bench, context.Context) ([]float64, error)
	}{
		{"speed", "runs/s, 1 process", func(b *bench, ctx context.Context) ([]float64, error) { return b.speed(ctx, 1) }},
		{"speed", "runs/s, 4 processes", func(b *bench, ctx context.Context) ([]float64, error) { return b.speed(ctx, 4) }},
		{"latency", "300 events/s, 1 process: p50 ms, p99 ms", func(b *bench, ctx context.Context) ([]float64, error) { return b.latency(ctx, 1) }},
		{"latency", "300 events/s, 4 processes: p50 ms, p99 ms", func(b *bench, ctx context.Context) ([]float64, error) { return b.latency(ctx, 4) }},
		{"idle", "idle process: statements/s", (*bench).idle},
		{"bloat", "100,000 runs: dead rows left, dead rows made, MB of tables and indexes, WAL bytes a run", (*bench).bloat},
	}
	for _, f := range figures {
		if !slices.Contains(only, f.kind) {
			continue
		}
		results := make([][][]float64, len(all))
		for range rounds {
			for i, b := range all {
				r, err := f.of(b, ctx)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", b.name, f.name, err)
				}
				results[i] = append(results[i], r)
			}
		}
		load, _ := os.ReadFile("/proc/loadavg")
		fmt.Printf("%s (load %s)\n", f.name, strings.Fields(string(load) + " ?")[0])
		for i, b := range all {
			fmt.Printf("  %-24s", b.name)
			for column := range results[i][0] {
				var values []float64
				for _, r := range results[i] {
					values = append(values, r[column])
				}
				slices.Sort(values)
				fmt.Printf(" %9.1f", values[len(values)/2])
			}
			fmt.Println()
		}
	}
	return nil
}

// startServer starts a PostgreSQL server whose commits are on the disk when they are done.
func startServer(ctx context.Context, dir string) (*servers.Process, string, error) {
	address, _, err := servers.HoldPort() // until this process ends
	if err != nil {
		return nil, "", err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	data := filepath.Join(dir, "data")
	initdb := &servers.Process{Args: []string{"-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C"}}
	server := &servers.Process{Args: []string{"-D", data}}
	for _, setting := range []string{
		"listen_addresses=" + host, "port=" + port, "unix_socket_directories=", "max_connections=300", "shared_buffers=512MB",
		"max_wal_size=4GB", "autovacuum_naptime=10s", "shared_preload_libraries=pg_stat_statements",
	} {
		server.Args = append(server.Args, "-c", setting)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		return nil, "", errors.New("PostgreSQL is missing: install what Debian has in the package postgresql")
	}
	bin := found[len(found)-1]
	initdb.Path, server.Path = filepath.Join(bin, "initdb"), filepath.Join(bin, "postgres")
	if os.Geteuid() == 0 { // PostgreSQL does not run as root.
		initdb.User, server.User = "postgres", "postgres"
		if err := os.Chmod(dir, 0o777); err != nil {
			return nil, "", err
		}
	}
	initdb.Ready = func(context.Context) error { return nil }
	server.Ready = func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, "postgres://postgres@"+address+"/postgres?sslmode=disable")
		if err != nil {
			return err
		}
		return c.Close(ctx)
	}
	if err := errors.Join(initdb.Start(ctx), initdb.Wait()); err != nil {
		return nil, "", fmt.Errorf("initdb: %w; it printed:\n%s", err, initdb.Output())
	}
	return server, address, server.Start(ctx)
}

// start starts processes that work. The function that it returns ends them and returns how long
// each event has waited.
func (b *bench) start(processes int) (stop func() ([]time.Duration, error), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var stops []func() ([]time.Duration, error)
	for range processes {
		c := exec.Command(self)
		c.Env = append(os.Environ(), childQueue+"="+b.name, childServer+"="+b.url+"&pool_max_conns=12")
		c.Stderr = os.Stderr
		in, inErr := c.StdinPipe()
		out, outErr := c.StdoutPipe()
		if inErr != nil || outErr != nil {
			return nil, fmt.Errorf("%w %w", inErr, outErr)
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		stops = append(stops, func() (waits []time.Duration, err error) {
			in.Close()
			for d := json.NewDecoder(bufio.NewReader(out)); ; {
				var wait time.Duration
				if d.Decode(&wait) != nil {
					return waits, c.Wait()
				}
				waits = append(waits, wait)
			}
		})
	}
	return func() (all []time.Duration, err error) {
		for _, stop := range stops {
			waits, stopErr := stop()
			if stopErr != nil {
				err = stopErr
			}
			all = append(all, waits...)
		}
		return all, err
	}, nil
}

func (b *bench) number(ctx context.Context, query string) (n float64, err error) {
	err = b.pool.QueryRow(ctx, query).Scan(&n)
	return n, err
}

// store stores so many new items.
func (b *bench) store(ctx context.Context, n int) error {
	items := make([]string, n)
	for i := range items {
		b.items++
		items[i] = fmt.Sprintf("item-%09d", b.items)
	}
	for some := range slices.Chunk(items, 1000) {
		if err := b.batch(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// drain has processes run what is stored, for so long, and returns the runs a second.
func (b *bench) drain(ctx context.Context, processes int, longest time.Duration) (speed float64, err error) {
	before, err := b.number(ctx, b.left)
	if err != nil {
		return 0, err
	}
	stop, err := b.start(processes)
	if err != nil {
		return 0, err
	}
	left := before
	var began time.Time
	for left > 0 && (began.IsZero() || time.Since(began) < longest) {
		time.Sleep(20 * time.Millisecond)
		if left, err = b.number(ctx, b.left); err != nil {
			return 0, err
		}
		if began.IsZero() && left < before {
			began, before = time.Now(), left
		}
	}
	speed = (before - left) / time.Since(began).Seconds()
	_, err = stop()
	return speed, err
}

func (b *bench) speed(ctx context.Context, processes int) ([]float64, error) {
	n, err := b.number(ctx, b.left)
	if err == nil && n < 40_000 {
		err = b.store(ctx, 40_000-int(n))
	}
	if err != nil {
		return nil, err
	}
	speed, err := b.drain(ctx, processes, 4*time.Second)
	return []float64{speed}, err
}

func (b *bench) clear(ctx context.Context) error {
	tables := map[string]string{"reconcile": "reconcile.item, reconcile.event"}[b.tables]
	if tables == "" {
		tables = map[bool]string{true: "job", false: "river_job"}[b.name == skipLocked.name]
	}
	_, err := b.pool.Exec(ctx, "TRUNCATE "+tables)
	return err
}

func (b *bench) latency(ctx context.Context, processes int) ([]float64, error) {
	if err := b.clear(ctx); err != nil {
		return nil, err
	}
	stop, err := b.start(processes)
	if err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Second) // until all have started
	events := make(chan string, 100_000)
	for range 4 { // Those of the others wait until the event is stored.
		go func() {
			for item := range events {
				b.event(item)
			}
		}()
	}
	const n = 300 * 6
	tick := time.NewTicker(time.Second / 300)
	for range n {
		<-tick.C
		events <- fmt.Sprint("at ", time.Now().UnixNano())
	}
	tick.Stop()
	close(events)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if left, err := b.number(ctx, b.left); err != nil || left == 0 || time.Now().After(deadline) {
			break
		}
	}
	waits, err := stop()
	if err != nil || len(waits) != n {
		return nil, fmt.Errorf("%d of %d events were followed by a run: %w", len(waits), n, err)
	}
	slices.Sort(waits)
	at := func(part int) float64 { return float64(waits[n*part/100]) / float64(time.Millisecond) }
	return []float64{at(50), at(99)}, nil
}

// idle counts the statements of processes that have nothing to do.
func (b *bench) idle(ctx context.Context) ([]float64, error) {
	if err := b.clear(ctx); err != nil {
		return nil, err
	}
	const processes, length = 2, 20
	stop, err := b.start(processes)
	if err != nil {
		return nil, err
	}
	time.Sleep(3 * time.Second)
	const calls = "SELECT COALESCE(sum(calls), 0) FROM stats.pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'"
	before, err := b.number(ctx, calls)
	if err != nil {
		return nil, err
	}
	time.Sleep(length * time.Second)
	after, err := b.number(ctx, calls)
	if err != nil {
		return nil, err
	}
	_, err = stop()
	return []float64{(after - before) / processes / length}, err
}

// bloat runs 100,000 items in four processes, with autovacuum.
func (b *bench) bloat(ctx context.Context) ([]float64, error) {
	if b.name == "River, defaults" {
		return []float64{0, 0, 0, 0}, nil // the same statements, for 20 minutes
	}
	if err := b.clear(ctx); err != nil {
		return nil, err
	}
	if err := b.store(ctx, 100_000); err != nil {
		return nil, err
	}
	const (
		stats = " FROM pg_stat_user_tables"
		dead  = "SELECT sum(n_dead_tup)::float8" + stats
		made  = "SELECT sum(n_tup_upd + n_tup_del)::float8" + stats
		size  = "SELECT sum(pg_total_relation_size(relid))::float8 / 1e6" + stats
		wal   = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
	)
	madeBefore, err := b.number(ctx, made)
	if err != nil {
		return nil, err
	}
	walBefore, err := b.number(ctx, wal)
	if err != nil {
		return nil, err
	}
	if _, err := b.drain(ctx, 4, 10*time.Minute); err != nil {
		return nil, err
	}
	var result []float64
	for _, query := range []string{wal, dead, made, size} {
		n, err := b.number(ctx, query)
		if err != nil {
			return nil, err
		}
		result = append(result, n)
	}
	return []float64{result[1], result[2] - madeBefore, result[3], (result[0] - walBefore) / 100_000}, nil
}
