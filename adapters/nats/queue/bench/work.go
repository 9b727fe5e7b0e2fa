// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// work is what children can be told to do.
var work = map[string]struct {
	before string // what is done first, and not measured
	do     func(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error)
}{
	"fill": {"", fill},
	"drain": {"fill", func(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
		return loop(ctx, js, j, start, false)
	}},
	"loop": {"", func(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
		return loop(ctx, js, j, start, true)
	}},
	"latency":   {"", latency},
	"hold":      {"", hold},
	"wait":      {"", wait},
	"bare loop": {"", bare},
	"plain fill": {"", func(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
		return plain(ctx, js, j, start, true, false)
	}},
	"plain drain": {"plain fill", func(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
		return plain(ctx, js, j, start, false, true)
	}},
	"plain loop": {"", func(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
		return plain(ctx, js, j, start, true, true)
	}},
	"plain latency": {"", func(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
		return plain(ctx, js, j, start, true, true)
	}},
}

func child(j job) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	ctx := context.Background()
	nc, err := nats.Connect(j.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	var before time.Duration
	r, err := work[j.What].do(ctx, js, j, func() {
		out.Encode(report{})
		lines.ReadString('\n')
		before = processorTime()
	})
	if err != nil {
		return err
	}
	r.Processor = processorTime() - before
	out.Encode(r)
	lines.ReadString('\n') // until the others are done as well
	return nil
}

// processorTime returns what this process has had of the processors.
func processorTime() time.Duration {
	var use syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &use) // its only error is a wrong argument
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

func openQueue(ctx context.Context, js jetstream.JetStream, j job) (*queue.Queue[string], error) {
	return queue.New[string](ctx, js, queue.Config{Name: j.Stream, Replicas: j.Replicas})
}

func name(j job, i int) string { return fmt.Sprintf("item-%d-%d", j.Process, i) }

func fill(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
	q, err := openQueue(ctx, js, j)
	if err != nil {
		return report{}, err
	}
	start()
	for i := range j.Items {
		q.Enqueue(name(j, i))
	}
	return report{}, q.Close(ctx)
}

// over waits until a stream has no message on the subjects of filter, or none at
// all if that is empty. It asks now and then; for the subjects only when there
// are few messages, as the server has to look at all of them.
func over(ctx context.Context, js jetstream.JetStream, stream, filter string) error {
	const few = 32 // members, and the reserve
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		info, err := s.Info(ctx)
		if err != nil {
			return err
		}
		if filter == "" && info.State.Msgs > 0 || info.State.Msgs > few {
			continue
		}
		if filter == "" {
			return nil
		}
		if info, err = s.Info(ctx, jetstream.WithSubjectFilter(filter)); err != nil || len(info.State.Subjects) == 0 {
			return err
		}
	}
}

// loop works until nothing is left in the queue.
func loop(ctx context.Context, js jetstream.JetStream, j job, start func(), enqueue bool) (report, error) {
	q, err := openQueue(ctx, js, j)
	if err != nil {
		return report{}, err
	}
	start()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var ran atomic.Int64
	r := reconcile.Reconciler[string]{
		Queue: q, Workers: j.Slots,
		Reconcile: func(context.Context, string) error {
			ran.Add(1)
			return nil
		},
	}
	var all sync.WaitGroup
	all.Go(func() { r.Run(ctx) })
	if enqueue {
		for i := range j.Items {
			q.Enqueue(name(j, i))
		}
		if err := q.Flush(ctx); err != nil {
			return report{}, err
		}
	}
	for s := q.Stats(); s.Idle < j.Slots || s.InFlight > 0 || s.Outbox > 0; s = q.Stats() {
		time.Sleep(time.Millisecond)
	}
	if err := over(ctx, js, j.Stream, "$KV.queue="+j.Stream+".i.>"); err != nil {
		return report{}, err
	}
	go func() { // is not measured
		stop()
		all.Wait()
		q.Close(context.Background())
	}()
	return report{}, nil
}

// latency enqueues at a rate, and measures how long each item takes to its run.
func latency(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
	q, err := openQueue(ctx, js, j)
	if err != nil {
		return report{}, err
	}
	var mu sync.Mutex
	var rep report
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := reconcile.Reconciler[string]{
		Queue: q, Workers: j.Slots,
		Reconcile: func(_ context.Context, item string) error {
			d := since(item)
			mu.Lock()
			rep.Latencies = append(rep.Latencies, d)
			mu.Unlock()
			return nil
		},
	}
	var all sync.WaitGroup
	all.Go(func() { r.Run(ctx) })
	time.Sleep(200 * time.Millisecond) // to join
	start()
	pace(j, func(item string) { q.Enqueue(item) })
	if err := over(ctx, js, j.Stream, "$KV.queue="+j.Stream+".i.>"); err != nil {
		return rep, err
	}
	stop()
	all.Wait()
	return rep, q.Close(context.Background())
}

// pace calls fn at the rate of the job with names that tell the time.
func pace(j job, fn func(item string)) {
	tick := time.NewTicker(time.Second / time.Duration(j.Rate))
	defer tick.Stop()
	for range j.Items {
		<-tick.C
		fn(fmt.Sprintf("%d-%d", time.Now().UnixNano(), j.Process))
	}
}

func since(item string) time.Duration {
	text, _, _ := strings.Cut(item, "-")
	ns, _ := strconv.ParseInt(text, 10, 64)
	return time.Since(time.Unix(0, ns))
}

// plain does the same with a work queue of JetStream, in the way that its client
// recommends.
func plain(ctx context.Context, js jetstream.JetStream, j job, start func(), publish, consume bool) (rep report, err error) {
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: j.Stream, Subjects: []string{j.Stream + ".>"}, Retention: jetstream.WorkQueuePolicy,
		Replicas: j.Replicas,
	}); err != nil {
		return rep, err
	}
	cons, err := js.CreateOrUpdateConsumer(ctx, j.Stream, jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1,
	})
	if err != nil {
		return rep, err
	}
	start()
	if consume {
		var mu sync.Mutex
		cc, err := cons.Consume(func(m jetstream.Msg) {
			if j.Rate > 0 {
				mu.Lock()
				rep.Latencies = append(rep.Latencies, since(string(m.Data())))
				mu.Unlock()
			}
			m.Ack()
		})
		if err != nil {
			return rep, err
		}
		defer cc.Stop()
	}
	send := func(item string) { js.PublishAsync(j.Stream+"."+item, []byte(item)) }
	switch {
	case j.Rate > 0:
		pace(j, send)
	case publish:
		for i := range j.Items {
			send(name(j, i))
		}
	}
	<-js.PublishAsyncComplete()
	if consume {
		return rep, over(ctx, js, j.Stream, "")
	}
	return rep, nil
}

// bare makes the requests of a run that does nothing, on the stream and the
// consumer of a queue, and no more.
func bare(ctx context.Context, js jetstream.JetStream, j job, start func()) (report, error) {
	if _, err := openQueue(ctx, js, j); err != nil {
		return report{}, err
	}
	s, err := js.Stream(ctx, j.Stream)
	if err != nil {
		return report{}, err
	}
	cons, err := s.Consumer(ctx, "workers")
	if err != nil {
		return report{}, err
	}
	long := strings.Repeat(" ", 120) // as a record is
	ready, claimed := []byte("ready"+long), []byte("claimed"+long)
	slots := make(chan struct{}, j.Slots)
	start()
	cc, err := cons.Consume(func(m jetstream.Msg) {
		if string(m.Data()) == string(claimed) {
			m.Ack()
			return
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			meta, err := m.Metadata()
			if err != nil {
				panic(err)
			}
			ack, err := js.Publish(ctx, m.Subject(), claimed, jetstream.WithExpectLastSequencePerSubject(meta.Sequence.Stream))
			if err == nil {
				err = s.DeleteMsg(ctx, ack.Sequence)
			}
			if err != nil {
				panic(err)
			}
		}()
	}, jetstream.PullMaxMessages(2*j.Slots))
	if err != nil {
		return report{}, err
	}
	defer cc.Stop()
	for i := range j.Items {
		if _, err := js.PublishAsync(j.Stream+".i."+name(j, i), ready, jetstream.WithExpectLastSequencePerSubject(0), jetstream.WithStallWait(time.Minute)); err != nil {
			return report{}, err
		}
	}
	<-js.PublishAsyncComplete()
	if err := over(ctx, js, j.Stream, j.Stream+".i.>"); err != nil {
		return report{}, err
	}
	for range j.Slots { // until the last answers are here
		slots <- struct{}{}
	}
	return report{}, nil
}
