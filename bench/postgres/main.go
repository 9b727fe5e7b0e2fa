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
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

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
		child(name, os.Getenv(childServer))
		return
	}
	rounds := flag.Int("rounds", 3, "how often to measure")
	only := flag.String("only", "speed latency idle", "the figures: speed, latency, idle, bloat")
	flag.Parse()
	measure(*rounds, strings.Fields(*only))
}

// must ends the program if something does not work.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func get[T any](v T, err error) T {
	must(err)
	return v
}

// child works until its standard input ends. It prints how long each event waited.
func child(name, url string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	q := queues[slices.IndexFunc(queues, func(q queue) bool { return q.name == name })]
	waits := make(chan time.Duration, 100_000)
	must(q.work(ctx, get(pgxpool.New(context.Background(), url)), workers, func(item string) {
		if at, ok := strings.CutPrefix(item, "at "); ok {
			waits <- time.Since(time.Unix(0, get(strconv.ParseInt(at, 10, 64))))
		}
	}))
	close(waits)
	for d := range waits {
		fmt.Println(d)
	}
}

// A bench is a queue in a database of its own.
type bench struct {
	queue
	url   string
	pool  *pgxpool.Pool
	event func(string)
	batch func([]string)
	items int // stored so far
}

func measure(rounds int, only []string) {
	ctx := context.Background()
	// A commit is on the disk when it is done.
	server := get(servers.NewPostgres("fsync=on", "max_connections=300", "shared_buffers=512MB",
		"max_wal_size=4GB", "autovacuum_naptime=10s", "shared_preload_libraries=pg_stat_statements"))
	defer server.Close()
	must(server.Start(ctx))
	admin := get(pgxpool.New(ctx, server.URL()))
	var all []*bench
	for i, q := range queues {
		database := fmt.Sprint("bench", i)
		get(admin.Exec(ctx, "CREATE DATABASE "+database))
		b := &bench{queue: q, url: strings.Replace(server.URL(), "/postgres?", "/"+database+"?", 1)}
		b.pool = get(pgxpool.New(ctx, b.url))
		get(b.pool.Exec(ctx, "CREATE SCHEMA stats; CREATE EXTENSION pg_stat_statements SCHEMA stats"))
		must(b.create(ctx, b.pool))
		b.event, b.batch = b.open(ctx, b.pool)
		all = append(all, b)
	}
	for _, f := range []struct {
		kind, name string
		of         func(*bench, context.Context) []float64
	}{
		{"speed", "runs/s, 1 process", func(b *bench, ctx context.Context) []float64 { return b.speed(ctx, 1) }},
		{"speed", "runs/s, 4 processes", func(b *bench, ctx context.Context) []float64 { return b.speed(ctx, 4) }},
		{"latency", "300 events/s, 1 process: p50 ms, p99 ms", func(b *bench, ctx context.Context) []float64 { return b.latency(ctx, 1) }},
		{"latency", "300 events/s, 4 processes: p50 ms, p99 ms", func(b *bench, ctx context.Context) []float64 { return b.latency(ctx, 4) }},
		{"idle", "idle process: statements/s", (*bench).idle},
		{"bloat", "100,000 runs: dead rows left, dead rows made, MB of tables and indexes, WAL bytes a run", (*bench).bloat},
	} {
		if !slices.Contains(only, f.kind) {
			continue
		}
		results := make([][][]float64, len(all))
		for range rounds {
			for i, b := range all {
				results[i] = append(results[i], f.of(b, ctx))
			}
		}
		load := strings.Fields(string(get(os.ReadFile("/proc/loadavg"))))[0]
		fmt.Printf("%s (load %s)\n", f.name, load)
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
}

// start starts processes that work. The function that it returns ends them and returns how long
// each event has waited.
func (b *bench) start(processes int) (stop func() []time.Duration) {
	var stops []func() []time.Duration
	for range processes {
		c := exec.Command(get(os.Executable()))
		c.Env = append(os.Environ(), childQueue+"="+b.name, childServer+"="+b.url+"&pool_max_conns=12")
		c.Stderr = os.Stderr
		in, out := get(c.StdinPipe()), get(c.StdoutPipe())
		must(c.Start())
		stops = append(stops, func() (waits []time.Duration) {
			must(in.Close())
			for lines := bufio.NewScanner(out); lines.Scan(); {
				waits = append(waits, get(time.ParseDuration(lines.Text())))
			}
			must(c.Wait())
			return waits
		})
	}
	return func() (all []time.Duration) {
		for _, stop := range stops {
			all = append(all, stop()...)
		}
		return all
	}
}

func (b *bench) number(ctx context.Context, query string) (n float64) {
	must(b.pool.QueryRow(ctx, query).Scan(&n))
	return n
}

// store stores so many new items.
func (b *bench) store(n int) {
	items := make([]string, n)
	for i := range items {
		b.items++
		items[i] = fmt.Sprintf("item-%09d", b.items)
	}
	for some := range slices.Chunk(items, 1000) {
		b.batch(some)
	}
}

// drain has processes run what is stored, for so long, and returns the runs a second.
func (b *bench) drain(ctx context.Context, processes int, longest time.Duration) float64 {
	first := b.number(ctx, b.left)
	stop := b.start(processes)
	defer stop()
	left := first
	for left == first { // until they have started
		time.Sleep(5 * time.Millisecond)
		left = b.number(ctx, b.left)
	}
	first = left
	began := time.Now()
	for left > 0 && time.Since(began) < longest {
		time.Sleep(20 * time.Millisecond)
		left = b.number(ctx, b.left)
	}
	return (first - left) / time.Since(began).Seconds()
}

func (b *bench) speed(ctx context.Context, processes int) []float64 {
	get(b.pool.Exec(ctx, b.clear))
	b.store(20_000)
	return []float64{b.drain(ctx, processes, 4*time.Second)}
}

func (b *bench) latency(ctx context.Context, processes int) []float64 {
	get(b.pool.Exec(ctx, b.clear))
	stop := b.start(processes)
	time.Sleep(2 * time.Second) // until all have started
	const n = 300 * 6
	events := make(chan string, n)
	for range 4 { // Most wait until the event is stored.
		go func() {
			for item := range events {
				b.event(item)
			}
		}()
	}
	tick := time.NewTicker(time.Second / 300)
	for range n {
		<-tick.C
		events <- fmt.Sprint("at ", time.Now().UnixNano())
	}
	tick.Stop()
	close(events)
	// An item that was stored last may not be seen yet.
	for quiet := 0; quiet < 20; quiet++ {
		time.Sleep(50 * time.Millisecond)
		if b.number(ctx, b.left) > 0 {
			quiet = 0
		}
	}
	waits := stop()
	if len(waits) != n {
		panic(fmt.Sprintf("%s: %d of %d events were followed by a run", b.name, len(waits), n))
	}
	slices.Sort(waits)
	at := func(part int) float64 { return float64(waits[n*part/100]) / float64(time.Millisecond) }
	return []float64{at(50), at(99)}
}

// idle counts the statements of processes that have nothing to do.
func (b *bench) idle(ctx context.Context) []float64 {
	get(b.pool.Exec(ctx, b.clear))
	const processes, length = 2, 20
	stop := b.start(processes)
	defer stop()
	time.Sleep(3 * time.Second)
	const calls = `SELECT COALESCE(sum(calls), 0)::float8 FROM stats.pg_stat_statements JOIN pg_database d ON d.oid = dbid
		WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'`
	before := b.number(ctx, calls)
	time.Sleep(length * time.Second)
	return []float64{(b.number(ctx, calls) - before) / processes / length}
}

// bloat runs 100,000 items in four processes, with autovacuum.
func (b *bench) bloat(ctx context.Context) []float64 {
	if b.name == defaults {
		return make([]float64, 4) // the statements of the least cool-down, for 20 minutes
	}
	get(b.pool.Exec(ctx, b.clear))
	b.store(100_000)
	const (
		dead = "SELECT sum(n_dead_tup)::float8 FROM pg_stat_user_tables"
		made = "SELECT sum(n_tup_upd + n_tup_del)::float8 FROM pg_stat_user_tables"
		size = "SELECT sum(pg_total_relation_size(relid))::float8 / 1e6 FROM pg_stat_user_tables"
		wal  = "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8"
	)
	madeBefore, walBefore := b.number(ctx, made), b.number(ctx, wal)
	b.drain(ctx, 4, 10*time.Minute)
	return []float64{b.number(ctx, dead), b.number(ctx, made) - madeBefore, b.number(ctx, size), (b.number(ctx, wal) - walBefore) / 100_000}
}
