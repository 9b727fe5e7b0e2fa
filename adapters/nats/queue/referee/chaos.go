// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// A scenario is a way to break things.
type scenario struct {
	Name    string
	Short   time.Duration // how long in a short run; 0 leaves it out
	Servers int           // 0 means 1
	Naive   string        // see job
	RunMax  time.Duration // 0 means 4 ms
	Every   time.Duration // between two breakages
	Break   func(*stage)  // breaks something, and repairs it again

	Members    int           // in each worker process; 0 means 1
	Bucket     bool          // feeders write to a bucket, and another process reads it into the queue
	Poison     bool          // some runs kill their process
	Pad        int           // bytes that an item, or a value of the bucket, has more
	MaxBytes   int64         // of the queue
	MaxStore   int64         // bytes that the one server keeps; 0 means what the machine has
	MaxPayload int32         // of the one server; 0 means 1 MiB
	Slots      int           // of each worker process; 0 means 8, or 32 if runs are long
	Rate       int           // bursts a second of each feeder; 0 means 40, or 8 if runs are long
	Delay      time.Duration // of the links, each way, but not of those who write to a bucket
	Bytes      int           // a second that enter them; 0 means no limit
}

const (
	lease         = 2 * time.Second
	startPatience = 2 * time.Minute // until something runs
)

var scenarios = []scenario{
	{Name: "control: limit, discard new", Naive: "new", Short: 2 * time.Second},
	{Name: "control: limit, discard old", Naive: "old", Short: 2 * time.Second},
	{Name: "calm", Short: 2 * time.Second},
	{Name: "calm, 3 servers", Servers: 3},
	{Name: "kill a worker", Short: 4 * time.Second, Every: 700 * time.Millisecond, Break: (*stage).killWorker},
	{Name: "kill a feeder", Every: 700 * time.Millisecond, Break: (*stage).killFeeder},
	{Name: "kill the server", Short: 4 * time.Second, Every: 2 * time.Second, Break: (*stage).killServer},
	{Name: "kill the server, runs of 0-4 s", Every: 3 * time.Second, RunMax: 4 * time.Second, Break: (*stage).killServer},
	{Name: "kill workers and server", Every: time.Second, Break: (*stage).killAny},
	{Name: "terminate the server", Every: 2 * time.Second, Break: (*stage).stopServer},
	{Name: "server down for 2 leases", Every: 4 * lease, RunMax: lease, Break: (*stage).longOutage},
	{Name: "runs of 0-12 s", RunMax: 6 * lease},
	{Name: "terminate a worker", Every: time.Second, Break: (*stage).stopWorker},
	{Name: "stop a worker for 2 leases", Every: lease, RunMax: lease / 4, Break: (*stage).freezeWorker},
	{Name: "stop the server for a while", Every: lease, RunMax: lease / 4, Break: (*stage).freezeServer},
	{Name: "cut a worker off for 2 leases", Short: 4 * time.Second, Every: lease, RunMax: lease / 2, Break: (*stage).partitionWorker},
	{Name: "cut anybody off in one direction", Every: lease, Break: func(st *stage) { st.deafen(2 * lease) }},
	{Name: "cut off for long in one direction", Every: lease, Break: func(st *stage) { st.deafen(6 * lease) }},
	{Name: "slow links now and then", Every: lease, Break: (*stage).slowLink},
	{Name: "reset links", Every: 500 * time.Millisecond, Break: (*stage).resetLinks},
	{Name: "far: 100 ms a round trip", Delay: 50 * time.Millisecond, Every: 3 * time.Second, Break: (*stage).killWorker},
	{Name: "slow and far: 100 KB/s", Delay: 50 * time.Millisecond, Bytes: 100_000, Every: 5 * time.Second, Break: (*stage).killServer},
	{Name: "30 members, kill anything", Members: 10, Every: time.Second, Break: (*stage).killAny},
	{Name: "full stream drains", MaxBytes: 1 << 20, Pad: 3000, Every: time.Second, Break: (*stage).fillStream},
	{Name: "full server drains", MaxStore: 16 << 20, Every: 2 * lease, Break: (*stage).fillServer},
	{Name: "delete the consumer", Every: time.Second, Break: (*stage).deleteConsumer},
	{Name: "edit the stream", Every: 2 * lease, RunMax: lease / 4, Break: (*stage).editStream},
	{Name: "messages of 12 KB at most", MaxPayload: 12 << 10, Slots: 300, Rate: 150, RunMax: 2 * lease, Pad: 200, Every: 3 * time.Second, Break: (*stage).killWorker},
	{Name: "records of another version", Every: lease / 2, Break: (*stage).foreignRecord},
	{Name: "poison", Short: 4 * time.Second, Poison: true},
	{Name: "poison, kill the server", Poison: true, Every: 3 * time.Second, Break: (*stage).killServer},
	{Name: "stream made anew", Short: 4 * time.Second, Every: 2 * lease, Break: (*stage).makeAnew},
	{Name: "bucket, kill anything", Bucket: true, Every: 2 * time.Second, Break: (*stage).killAny},
	{Name: "bucket, reset links", Bucket: true, Every: 500 * time.Millisecond, Break: (*stage).resetLinks},
	{Name: "bucket, slow and far link", Bucket: true, Pad: 10_000, Delay: 100 * time.Millisecond, Bytes: 500_000, RunMax: lease / 2},
	{Name: "3 servers, step down", Servers: 3, Every: 2 * time.Second, Break: (*stage).stepDown},
	{Name: "3 servers, kill one", Servers: 3, Every: 4 * time.Second, Break: (*stage).killServer},
	{Name: "3 servers, kill all", Servers: 3, Every: 3 * lease, Break: (*stage).killServers},
	{Name: "3 servers, delete the consumer", Servers: 3, Every: 2 * time.Second, Break: (*stage).deleteConsumer},
	{Name: "3 servers, cut one off", Servers: 3, Every: 4 * time.Second, Break: (*stage).partitionServer},
	{Name: "3 servers, stop one for a while", Servers: 3, Every: lease, Break: (*stage).freezeServer},
	{Name: "3 servers, kill anything", Servers: 3, Every: 2 * time.Second, Break: (*stage).killAny},
	{Name: "3 servers, full stream drains", Servers: 3, MaxBytes: 1 << 20, Pad: 3000, Every: time.Second, Break: (*stage).fillStream},
	{Name: "3 servers, poison", Servers: 3, Poison: true},
	{Name: "3 servers, stream made anew", Servers: 3, Every: 2 * lease, Break: (*stage).makeAnew},
	{Name: "3 servers, bucket, kill anything", Servers: 3, Bucket: true, Every: 4 * time.Second, Break: (*stage).killAny},
}

// An outcome is what a scenario came to.
type outcome struct {
	score
	seconds   float64
	left      int // records that are left when all is done
	latencies []time.Duration
}

func (o *outcome) quantile(p float64) string {
	if len(o.latencies) == 0 {
		return "-"
	}
	d := o.latencies[int(p*float64(len(o.latencies)-1))]
	return d.Round(100 * time.Microsecond).String()
}

func (o *outcome) counts(name string) string {
	return fmt.Sprintf("%-34s %8.0f %9d %9d %8d %8d %6d %6d %6d %5d", name, o.seconds, o.Events, o.Runs,
		o.Overlaps, o.WhileStopped, o.Late, o.Lost, o.Fences, o.left)
}

func (o *outcome) add(p outcome) {
	o.seconds += p.seconds
	o.left += p.left
	o.Events += p.Events
	o.Runs += p.Runs
	o.Overlaps += p.Overlaps
	o.WhileStopped += p.WhileStopped
	o.Late += p.Late
	o.Lost += p.Lost
	o.Fences += p.Fences
}

// A stage is what a scenario plays on.
type stage struct {
	scenario
	monitor *monitor
	servers []*natstest.Server
	verbose bool
	seed    uint64
	rand    *rand.Rand

	children int
	workers  []*process
	feeders  []*process
	readers  []*process // of the bucket
}

// A process is a child with a network of its own.
type process struct {
	job
	cmd     *exec.Cmd
	stdin   io.Closer
	proxies []*natstest.Proxy
}

func (s scenario) play(d time.Duration, seed, number uint64, verbose bool) (o outcome, err error) {
	dir, err := os.MkdirTemp("", "referee")
	if err != nil {
		return o, err
	}
	defer os.RemoveAll(dir)
	st := &stage{scenario: s, verbose: verbose, seed: seed, rand: rand.New(rand.NewPCG(seed, number))}
	if st.monitor, err = newMonitor(); err != nil {
		return o, err
	}
	defer st.monitor.close()
	c, err := dial(st.job(""), 0)
	if err != nil {
		return o, err
	}
	go c.watch()
	var url string
	if s.Servers > 1 {
		c, err := natstest.OpenCluster(dir, s.Servers)
		if err != nil {
			return o, err
		}
		defer c.Close()
		st.servers, url = c.Servers, c.URL()
	} else {
		one, err := natstest.OpenSmall(dir, s.MaxStore, s.MaxPayload)
		if err != nil {
			return o, err
		}
		defer one.Close()
		st.servers, url = []*natstest.Server{one}, one.URL()
	}

	for range 3 {
		if err := st.start(&st.workers, st.job("work")); err != nil {
			return o, err
		}
	}
	if s.Bucket {
		if err := st.start(&st.readers, st.job("read")); err != nil {
			return o, err
		}
	}
	for range 2 {
		if err := st.start(&st.feeders, st.job("feed")); err != nil {
			return o, err
		}
	}
	defer st.killAll()
	select {
	case <-st.monitor.running:
	case <-time.After(startPatience):
		return o, fmt.Errorf("nothing has run within %v", startPatience)
	}
	began := time.Now()
	end := time.After(d)
	if s.Break != nil {
		tick := time.NewTicker(s.Every)
		defer tick.Stop()
		for over := false; !over; {
			select {
			case <-end:
				over = true
			case <-tick.C:
				if time.Since(began) < d {
					s.Break(st)
				}
			}
		}
	} else {
		<-end
	}
	for _, f := range st.feeders {
		f.end(syscall.SIGTERM)
	}
	patience := time.Minute
	if s.Naive != "" {
		patience = 2 * lease
	}
	st.monitor.settled(patience)
	o.seconds = time.Since(began).Seconds()
	o.score, o.latencies = st.monitor.result()
	if s.Naive == "" {
		o.left, err = st.left(url)
	}
	for _, p := range slices.Concat(st.readers, st.workers) {
		p.end(syscall.SIGTERM)
	}
	return o, err
}

// left waits until the queue knows no item, and returns how many it knows if
// that does not come to be.
func (st *stage) left(url string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	nc, err := connect(url)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	q, err := queue.New[string](ctx, js, st.job("").config())
	if err != nil {
		return 0, err
	}
	defer q.Close(ctx)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for since := time.Now(); ; {
		all, err := q.All(ctx)
		if err == nil && len(all) == 0 || time.Since(since) > 2*time.Minute {
			if len(all) > 0 {
				fmt.Printf("  left: %+v\n", all[:min(3, len(all))])
			}
			return len(all), err
		}
		<-tick.C
	}
}

func (st *stage) job(role string) job {
	j := job{
		Role: role, Monitor: st.monitor.listener.Addr().String(), Queue: "referee", Naive: st.Naive,
		Replicas: len(st.servers), Lease: lease, Slots: 8, RunMax: st.RunMax, Rate: 40, Seed: st.seed, Verbose: st.verbose,
		Members: 1, Bucket: st.Bucket, Poison: st.Poison, Pad: st.Pad, MaxBytes: st.MaxBytes,
	}
	if role == "work" {
		j.Members = max(1, st.Members)
	}
	if j.RunMax == 0 {
		j.RunMax = 4 * time.Millisecond
	} else if j.RunMax > lease/4 { // so that the workers keep up
		j.Slots, j.Rate = 32, 8
	}
	j.Slots, j.Rate = cmp.Or(st.Slots, j.Slots), cmp.Or(st.Rate, j.Rate)
	return j
}

// start starts a child, and adds it to a list.
func (st *stage) start(list *[]*process, j job) error {
	p := &process{job: j}
	var urls []string
	for _, s := range st.servers {
		x, err := natstest.NewProxy(s.URL())
		if err != nil {
			return err
		}
		if !(st.Bucket && j.Role == "feed") {
			x.Link(st.Delay, st.Bytes)
		}
		p.proxies = append(p.proxies, x)
		urls = append(urls, x.URL())
	}
	p.URL = strings.Join(urls, ",")
	*list = append(*list, p)
	return st.launch(p)
}

// launch starts the process of a child.
func (st *stage) launch(p *process) error {
	st.children++
	p.Process = st.children
	var err error
	if p.cmd, err = natstest.Self(environment, p.job); err != nil {
		return err
	}
	p.cmd.Env = append(p.cmd.Env, "GOMAXPROCS=2")
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	return p.cmd.Start()
}

// end ends the process and waits for it.
func (p *process) end(sig syscall.Signal) {
	p.cmd.Process.Signal(sig)
	slow := time.AfterFunc(30*time.Second, func() { p.cmd.Process.Kill() })
	p.cmd.Wait()
	slow.Stop()
	p.stdin.Close()
}

func (st *stage) killAll() {
	for _, p := range slices.Concat(st.workers, st.feeders, st.readers) {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		for _, x := range p.proxies {
			x.Close()
		}
	}
}

func (st *stage) anyWorker() *process         { return st.workers[st.rand.IntN(len(st.workers))] }
func (st *stage) anyServer() *natstest.Server { return st.servers[st.rand.IntN(len(st.servers))] }

func (st *stage) relaunch(p *process, sig syscall.Signal) {
	p.end(sig)
	if err := st.launch(p); err != nil {
		panic(err)
	}
}

func (st *stage) killWorker() { st.relaunch(st.anyWorker(), syscall.SIGKILL) }
func (st *stage) stopWorker() { st.relaunch(st.anyWorker(), syscall.SIGTERM) }

// killFeeder kills one of those who put into the queue.
func (st *stage) killFeeder() {
	some := st.feeders
	if st.Bucket {
		some = st.readers
	}
	st.relaunch(some[st.rand.IntN(len(some))], syscall.SIGKILL)
}

func (st *stage) killServer() {
	s := st.anyServer()
	s.Kill()
	time.Sleep(below(st.rand, 500*time.Millisecond))
	s.Start()
}

func (st *stage) stopServer() {
	s := st.anyServer()
	s.Stop()
	s.Start()
}

// killServers kills all of them, and starts them again.
func (st *stage) killServers() {
	for _, s := range st.servers {
		s.Kill()
	}
	time.Sleep(below(st.rand, lease))
	for _, s := range st.servers {
		s.Start()
	}
}

// editStream has an operator limit the stream to less than it has, or pause its
// consumer, for up to two leases.
func (st *stage) editStream() {
	pause := st.rand.IntN(3) == 0
	bytes := st.rand.IntN(2) == 0
	edit := func(undo bool) {
		st.ask(func(ctx context.Context, js jetstream.JetStream) error {
			name := st.job("").Queue
			if pause {
				if undo {
					_, err := js.ResumeConsumer(ctx, name, "workers")
					return err
				}
				_, err := js.PauseConsumer(ctx, name, "workers", time.Now().Add(time.Hour))
				return err
			}
			s, err := js.Stream(ctx, name)
			if err != nil {
				return err
			}
			cfg := s.CachedInfo().Config
			cfg.MaxBytes, cfg.MaxMsgs = -1, -1
			switch {
			case undo:
			case bytes:
				cfg.MaxBytes = max(1, int64(s.CachedInfo().State.Bytes)/2)
			default:
				cfg.MaxMsgs = max(1, int64(s.CachedInfo().State.Msgs)/2)
			}
			_, err = js.UpdateStream(ctx, cfg)
			return err
		})
	}
	edit(false)
	time.Sleep(below(st.rand, 2*lease))
	edit(true)
}

// foreignRecord stores what no member can read under the subject of an item that nobody
// enqueues.
func (st *stage) foreignRecord() {
	st.ask(func(ctx context.Context, js jetstream.JetStream) error {
		subject := fmt.Sprintf("$KV.queue=%s.i.foreign%d", st.job("").Queue, st.rand.IntN(10))
		_, err := js.Publish(ctx, subject, []byte(`{"v":99,"next":"a kind of later"}`))
		return err
	})
}

// deleteConsumer deletes the consumer of the queue, unless that is gone already.
func (st *stage) deleteConsumer() {
	st.ask(func(ctx context.Context, js jetstream.JetStream) error {
		err := js.DeleteConsumer(ctx, st.job("").Queue, "workers")
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}

func (st *stage) longOutage() {
	s := st.anyServer()
	s.Kill()
	time.Sleep(2 * lease)
	s.Start()
}

func (st *stage) killAny() {
	switch st.rand.IntN(3) {
	case 0:
		st.killServer()
	case 1:
		st.killFeeder()
	default:
		st.killWorker()
	}
}

func (st *stage) freezeServer() {
	s := st.anyServer()
	s.Pause()
	time.Sleep(below(st.rand, lease))
	s.Resume()
}

func (st *stage) freezeWorker() {
	p := st.anyWorker()
	p.cmd.Process.Signal(syscall.SIGSTOP)
	st.monitor.stop(p.Process)
	time.Sleep(2 * lease)
	st.monitor.stop(p.Process)
	p.cmd.Process.Signal(syscall.SIGCONT)
	time.Sleep(100 * time.Millisecond) // a run that was about to begin
	st.monitor.stop(p.Process)
}

func (st *stage) partitionWorker() {
	p := st.anyWorker()
	for _, x := range p.proxies {
		x.Hang()
	}
	time.Sleep(2 * lease)
	for _, x := range p.proxies {
		x.Heal()
	}
}

func (st *stage) partitionServer() {
	s := st.anyServer()
	s.Routes().Hang()
	time.Sleep(2 * lease)
	s.Routes().Heal()
}

func (st *stage) anybody() *process {
	all := slices.Concat(st.workers, st.feeders, st.readers)
	return all[st.rand.IntN(len(all))]
}

func (st *stage) deafen(longest time.Duration) {
	p := st.anybody()
	for _, x := range p.proxies {
		x.Deafen()
	}
	time.Sleep(below(st.rand, longest))
	for _, x := range p.proxies {
		x.Heal()
	}
}

// slowLink has somebody connect again over a link with a round trip of up to a
// lease, and after a while over a quick one.
func (st *stage) slowLink() {
	p := st.anybody()
	reconnect := func(delay time.Duration) {
		for _, x := range p.proxies {
			x.Link(delay, 0)
			x.Cut()
			x.Heal()
		}
	}
	reconnect(below(st.rand, lease/2))
	time.Sleep(below(st.rand, 5*lease))
	reconnect(0)
}

func (st *stage) resetLinks() {
	p := st.anybody()
	for _, x := range p.proxies {
		x.Cut()
	}
	time.Sleep(below(st.rand, lease/4))
	for _, x := range p.proxies {
		x.Heal()
	}
}

// fillStream has nobody work until the stream is full.
func (st *stage) fillStream() {
	for _, w := range st.workers {
		w.end(syscall.SIGTERM)
	}
	time.Sleep(3*lease + below(st.rand, lease))
	for _, w := range st.workers {
		if err := st.launch(w); err != nil {
			panic(err)
		}
	}
	time.Sleep(lease)
}

// fillServer fills the server with messages of somebody else, and takes them away
// again.
func (st *stage) fillServer() {
	st.ask(func(ctx context.Context, js jetstream.JetStream) error {
		other, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "other", Subjects: []string{"other"}})
		for err == nil {
			_, err = js.Publish(ctx, "other", make([]byte, 10_000))
		}
		time.Sleep(lease + below(st.rand, lease))
		return other.Purge(ctx)
	})
}

// makeAnew deletes the stream with all that is in it, as its feeders are gone,
// and has somebody make it again. The workers live on, or not.
func (st *stage) makeAnew() {
	for _, f := range st.feeders {
		f.end(syscall.SIGKILL)
	}
	restart := st.rand.IntN(2) == 0
	if restart {
		for _, w := range st.workers {
			w.end(syscall.SIGKILL)
		}
	}
	// From the deletion until its lease ends, a process that lives on may begin a run of
	// the deleted stream, also while another one begins runs of the new stream.
	forgotten := make(chan struct{})
	var marked sync.WaitGroup
	if !restart {
		marked.Go(func() {
			for {
				for _, w := range st.workers {
					st.monitor.stop(w.Process)
				}
				select {
				case <-forgotten:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	before := time.Now()
	st.ask(func(ctx context.Context, js jetstream.JetStream) error {
		err := js.DeleteStream(ctx, st.job("").Queue)
		if errors.Is(err, jetstream.ErrStreamNotFound) { // nobody was in time to make it
			return nil
		}
		return err
	})
	st.monitor.forget(before)
	var gone []*process
	if restart {
		gone = st.workers
	}
	for _, p := range append(gone, st.feeders...) {
		if err := st.launch(p); err != nil {
			panic(err)
		}
	}
	time.Sleep(lease)
	close(forgotten)
	marked.Wait()
}

// connect connects to a server that may be slow, or about to start.
func connect(url string) (*nats.Conn, error) {
	return nats.Connect(url, nats.Timeout(startPatience), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
}

// ask does something with a connection of its own, until it succeeds.
func (st *stage) ask(fn func(context.Context, jetstream.JetStream) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := connect(st.servers[0].URL())
	if err != nil {
		panic(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	for err == nil {
		if err = fn(ctx, js); err == nil {
			return
		}
		fmt.Println("  again, as", err)
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(50 * time.Millisecond):
			err = nil
		}
	}
	panic(err)
}

// stepDown has the leader of the stream, or of the consumer, give up.
func (st *stage) stepDown() {
	nc, err := connect(st.servers[0].URL())
	if err != nil {
		return
	}
	defer nc.Close()
	what := "$JS.API.STREAM.LEADER.STEPDOWN.referee"
	if st.rand.IntN(2) == 0 {
		what = "$JS.API.CONSUMER.LEADER.STEPDOWN.referee.workers"
	}
	nc.Request(what, nil, 2*time.Second)
}
