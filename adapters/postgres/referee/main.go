// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command referee breaks the queue on purpose and counts what that does to its guarantees.
// Four workers are processes of their own, one of them behind PgBouncer. They and the server
// are killed, stopped, cut off and filled up while events come in.
//
// A monitor in this process is notified of each run, so it sees from outside whether two
// runs of an item overlap. Each event is a new version of a row, and each run writes the
// version that it has read, in a transaction that [postgres.Guard] guards. When all is quiet,
// a row whose versions differ has lost an event, or the run of a killed process was not
// followed by another.
//
//	go run ./referee -for 1h
//
// It ends with status 1 if a guarantee was broken. It needs PostgreSQL, PgBouncer and
// libfaketime as Debian has them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const environment = "RECONCILE_REFEREE"

func main() {
	if text, ok := os.LookupEnv(environment); ok {
		var j job
		err := json.Unmarshal([]byte(text), &j)
		if err == nil {
			err = work(j)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "process %d: %v\n", j.Process, err)
			os.Exit(1)
		}
		return
	}
	length := flag.Duration("for", 3*time.Minute, "how long to break things")
	rate := flag.Int("rate", 200, "events a second")
	seed := flag.Uint64("seed", uint64(time.Now().Unix()), "of the choices of the faults")
	verbose := flag.Bool("v", false, "print each fault")
	flag.Parse()
	if flag.NArg() > 0 || *rate < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ok, err := referee(*length, *rate, *seed, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "referee:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func referee(length time.Duration, rate int, seed uint64, verbose bool) (ok bool, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "referee")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil { // the servers are those of another user
		return false, err
	}
	st, err := newStage(ctx, dir)
	if err != nil {
		return false, err
	}
	defer st.close()
	fmt.Printf("seed %d\n%8s %8s %8s | %5s %6s %6s | %6s %7s %6s %8s | %5s %7s | %7s\n", seed, "seconds", "events", "runs",
		"live", "fences", "lost", frozen, stalled, clock, failover, "late", "refused", "quiet")
	for range 8 {
		go st.feed(time.Second * 8 / time.Duration(rate))
	}
	choices := []*rand.Rand{rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))}
	began := time.Now()
	for time.Since(began) < length {
		var lanes sync.WaitGroup
		for i, faults := range [][]fault{clientFaults, serverFaults} {
			l := &lane{st, choices[i]}
			lanes.Go(func() {
				for _, i := range l.rand.Perm(len(faults)) {
					if time.Since(began) > length {
						return
					}
					time.Sleep(l.below(lease))
					if verbose {
						fmt.Println(time.Now().Format(time.TimeOnly), faults[i].name)
					}
					faults[i].play(l)
				}
			})
		}
		lanes.Wait()
		quiet, lost, left, err := st.settle(ctx)
		if err != nil {
			return false, err
		}
		s := st.monitor.result()
		fmt.Printf("%8.0f %8d %8d | %5d %6d %6d | %6d %7d %6d %8d | %5d %7d | %7.1f\n", time.Since(began).Seconds(), st.events.Load(), s.runs,
			s.live, s.fences, lost, s.overlaps[frozen], s.overlaps[stalled], s.overlaps[clock], s.overlaps[failover], s.late, s.refused, quiet.Seconds())
		if s.live+s.fences+lost+left > 0 {
			fmt.Println("BROKEN:", left, "items are left;", s.example)
			for _, w := range st.workers {
				fmt.Printf("process %d printed:\n%s\n", w.job.Process, w.Output())
			}
			return false, nil
		}
	}
	return true, nil
}

// feed makes events until the process ends.
func (st *stage) feed(pause time.Duration) {
	ctx := context.Background()
	for {
		time.Sleep(below(2 * pause))
		st.feeding.RLock()
		item := anyItem()
		var err error
		switch rand.IntN(4) {
		case 0: // a trigger, or another language
			err = st.changeTx(ctx, item, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT reconcile.enqueue($1, $2)", queueName, item)
				return err
			})
		case 1:
			err = st.changeTx(ctx, item, func(tx pgx.Tx) error { return st.queue.EnqueueTx(ctx, tx, item) })
		case 2:
			_ = st.changeTx(ctx, item, func(pgx.Tx) error { return nil })
			st.queue.Enqueue(item) // even if it is not known whether there is a change
		default:
			_ = st.changeTx(ctx, item, func(pgx.Tx) error { return nil })
			for {
				attempt, cancel := context.WithTimeout(ctx, 2*lease)
				err = st.queue.EnqueueContext(attempt, item)
				cancel()
				if err == nil {
					break
				}
			}
		}
		if err == nil {
			st.events.Add(1)
		}
		st.feeding.RUnlock()
	}
}

// changeTx commits a change and what enqueue does, now and then late or not at all.
func (st *stage) changeTx(ctx context.Context, item string, enqueue func(pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*lease)
	defer cancel()
	return pgx.BeginFunc(ctx, st.feeder, func(tx pgx.Tx) error {
		if err := change(ctx, tx, item, func(string) error { return enqueue(tx) }); err != nil {
			return err
		}
		switch rand.IntN(100) {
		case 0:
			return errors.New("rolled back")
		case 1:
			time.Sleep(below(lease / 4))
		}
		return nil
	})
}

// settle stops the feeders and waits until no item has anything left to do. It returns how
// long that took, how many events are lost, and how many items are left that do not run.
func (st *stage) settle(ctx context.Context) (quiet time.Duration, lost, left int, err error) {
	st.feeding.Lock()
	defer st.feeding.Unlock()
	began := time.Now()
	stored, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := st.queue.Flush(stored); err != nil {
		return 0, 0, 0, fmt.Errorf("the feeders' events are not stored: %w", err)
	}
	for {
		err = st.setup.QueryRow(ctx, `WITH behind AS (
				SELECT item FROM desired LEFT JOIN actual USING (item) WHERE actual.version IS DISTINCT FROM desired.version
			), known AS (
				SELECT item FROM reconcile.item WHERE NOT (recheck AND due > now()) UNION ALL SELECT item FROM reconcile.event
			)
			SELECT (SELECT count(*) FROM behind), (SELECT count(*) FROM known)`).Scan(&lost, &left)
		quiet = time.Since(began)
		if err != nil || left == 0 || quiet > 4*time.Minute {
			return quiet, lost, left, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
