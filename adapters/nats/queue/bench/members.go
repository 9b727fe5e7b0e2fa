// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// printMembers measures what members cost that have nothing to do, each with a
// connection of its own and the default lease, and how long an item of a process
// that is killed waits for its next run.
func printMembers(counts []int) error {
	fmt.Printf("%-10s %12s %22s %18s %18s\n", "members", "messages/s", "CPU of the server", "hand-over", "of the janitor")
	for _, n := range counts {
		rate, cpu, worker, err := members(n, false)
		if err != nil {
			return err
		}
		_, _, janitor, err := members(n, true)
		if err != nil {
			return err
		}
		fmt.Printf("%-10d %12.0f %19.1f ms/s %18v %18v\n", n, rate, cpu, worker.Round(100*time.Millisecond), janitor.Round(100*time.Millisecond))
	}
	return nil
}

// members has n members wait, and kills one more that holds an item: the first
// of all, or the last.
func members(n int, first bool) (rate, cpu float64, handOver time.Duration, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return 0, 0, 0, err
	}
	defer os.RemoveAll(dir)
	s, err := natstest.Open(dir)
	if err != nil {
		return 0, 0, 0, err
	}
	defer s.Close()
	began := time.Now()
	var holder, others *running
	start := func(what string, items int, p **running) {
		if err == nil {
			if *p, err = launch(job{What: what, URL: s.DirectURL(), Stream: "bench", Items: items}); err == nil {
				err = (*p).out.Decode(new(report))
			}
		}
	}
	if first {
		start("hold", 1, &holder)
		start("wait", n, &others)
	} else {
		start("wait", n, &others)
		start("hold", 1, &holder)
	}
	for _, p := range []*running{holder, others} {
		if p != nil {
			defer p.end()
		}
	}
	if err != nil {
		return 0, 0, 0, err
	}
	io.WriteString(others.in, "go\n")
	if err := others.out.Decode(new(report)); err != nil { // measured
		return 0, 0, 0, err
	}
	holder.cmd.Process.Kill()
	killed := time.Now()
	io.WriteString(others.in, "go\n")
	var r report
	if err := others.out.Decode(&r); err != nil { // somebody has the item
		return 0, 0, 0, err
	}
	handOver = time.Since(killed)
	holder.end()
	others.end()
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &before)
	lived := time.Since(began)
	s.Close()
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	return r.Rate, float64(used) / 1e6 / lived.Seconds(), handOver, nil
}

// hold takes an item and keeps it.
func hold(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
	q, err := openQueue(ctx, js, j)
	if err != nil {
		return report{}, err
	}
	q.Enqueue("item")
	if _, err := q.Dequeue(ctx); err != nil {
		return report{}, err
	}
	start()
	return report{}, nil
}

// wait has so many members wait for an item: at first only to join.
func wait(ctx context.Context, _ jetstream.JetStream, j job, start func()) (report, error) {
	var conns []*nats.Conn
	var queues []*queue.Queue[string]
	for range j.Items {
		nc, err := nats.Connect(j.URL)
		if err != nil {
			return report{}, err
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return report{}, err
		}
		q, err := openQueue(ctx, js, j)
		if err != nil {
			return report{}, err
		}
		conns, queues = append(conns, nc), append(queues, q)
		joined, cancel := context.WithCancel(ctx)
		go q.Dequeue(joined)
		for !q.Stats().Member {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}
	start()
	var some sync.Once
	got := make(chan struct{})
	for _, q := range queues {
		go func() {
			if _, err := q.Dequeue(ctx); err == nil {
				some.Do(func() { close(got) })
			}
		}()
	}
	messages := func() (n uint64) {
		for _, nc := range conns {
			n += nc.Stats().InMsgs + nc.Stats().OutMsgs
		}
		return n
	}
	time.Sleep(3 * time.Second) // they know each other
	before, began := messages(), time.Now()
	time.Sleep(10 * time.Second)
	rate := float64(messages()-before) / time.Since(began).Seconds()
	start()
	<-got
	return report{Rate: rate}, nil
}

// A running is a child that works.
type running struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func (r *running) end() {
	r.in.Close()
	r.cmd.Wait()
}

// launch starts a child.
func launch(j job) (*running, error) {
	cmd, err := natstest.Self(environment, j)
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &running{cmd, in, json.NewDecoder(out)}, nil
}
