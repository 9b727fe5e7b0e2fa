// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// A call is what a worker or a feeder tells the monitor. Each is answered.
type call struct {
	Op      string // enter, leave, issue, accept, gap
	Key     string
	Fence   uint64 // of enter, and of what a run itself asks for
	Process int    // who calls
	Version uint64 // of accept
	Gap     time.Duration
}

// A reply answers a call.
type reply struct{ Version uint64 }

// A monitor is told of each event and of each run, and finds out which runs of a
// key overlap and which events are not followed by a run. It sees connections
// end, so it knows when the runs of a killed process are over.
type monitor struct {
	listener net.Listener
	running  chan struct{} // closed when something runs

	mu        sync.Mutex // guards the fields below
	keys      map[string]*key
	pending   int // keys with an accepted event that no run has seen
	stopped   map[int]time.Time
	latencies []time.Duration
	progress  time.Time // when a run last began
	score
}

// A key is what the monitor knows of one item.
type key struct {
	issued, accepted, observed uint64
	since                      time.Time // of the first event not observed
	fence                      uint64    // the greatest seen
	inside                     []*visit
}

// A visit is a run of a key.
type visit struct {
	conn    net.Conn
	process int
	stopped bool // its process was stopped meanwhile
}

// A score is what is counted.
type score struct {
	Events, Runs int
	Overlaps     int // of runs in processes that were not stopped
	WhileStopped int // of runs in processes that were
	Fences       int // runs whose number was not greater than that of the one before
	Lost         int
	Late         int           // what a run asked for after another had begun
	Gap          time.Duration // the longest that a process stood still which we did not stop
	Example      string
}

func newMonitor() (*monitor, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &monitor{
		listener: l, keys: make(map[string]*key), stopped: make(map[int]time.Time), progress: time.Now(), running: make(chan struct{}),
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go m.serve(c)
		}
	}()
	return m, nil
}

func (m *monitor) close() { m.listener.Close() }

func (m *monitor) serve(c net.Conn) {
	in, out := json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c)
	for {
		var a call
		if in.Decode(&a) != nil {
			break
		}
		if out.Encode(m.note(c, a)) != nil {
			break
		}
	}
	c.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.keys {
		k.inside = slices.DeleteFunc(k.inside, func(v *visit) bool { return v.conn == c })
	}
}

func (m *monitor) note(c net.Conn, a call) reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.Op == "gap" {
		if time.Since(m.stopped[a.Process]) > a.Gap {
			m.Gap = max(m.Gap, a.Gap)
		}
		return reply{}
	}
	k := m.keys[a.Key]
	if k == nil {
		k = new(key)
		m.keys[a.Key] = k
	}
	if a.Op != "enter" && a.Fence != 0 && a.Fence < k.fence {
		// What a run asks for counts no more once another has begun elsewhere.
		// Who writes to the outside world does the same by the fence.
		m.Late++
		return reply{}
	}
	behind := k.accepted > k.observed
	switch a.Op {
	case "issue":
		if k.issued == k.observed {
			k.since = time.Now()
		}
		k.issued++
		return reply{k.issued}
	case "accept":
		m.Events++
		k.accepted = max(k.accepted, a.Version)
	case "enter":
		m.enter(c, k, a)
	case "leave":
		k.inside = slices.DeleteFunc(k.inside, func(v *visit) bool { return v.conn == c })
	}
	switch now := k.accepted > k.observed; {
	case now && !behind:
		m.pending++
	case behind && !now:
		m.pending--
	}
	return reply{k.issued}
}

func (m *monitor) enter(c net.Conn, k *key, a call) {
	if m.Runs == 0 {
		close(m.running)
	}
	m.Runs++
	m.progress = time.Now()
	if k.issued > k.observed && len(m.latencies) < 1<<20 {
		m.latencies = append(m.latencies, time.Since(k.since))
	}
	k.observed = k.issued
	v := &visit{conn: c, process: a.Process, stopped: time.Since(m.stopped[a.Process]) < time.Second}
	for _, other := range k.inside {
		if v.stopped || other.stopped {
			m.WhileStopped++
			continue
		}
		m.Overlaps++
		m.Example = fmt.Sprintf("%s: process %d entered with fence %d while process %d was inside with %d",
			a.Key, a.Process, a.Fence, other.process, k.fence)
	}
	if a.Fence != 0 && a.Fence <= k.fence && !v.stopped {
		m.Fences++
		m.Example = fmt.Sprintf("%s: process %d entered with fence %d after %d", a.Key, a.Process, a.Fence, k.fence)
	}
	k.fence = max(k.fence, a.Fence)
	k.inside = append(k.inside, v)
}

// stop notes that a process is stopped by a signal, or goes on after one.
func (m *monitor) stop(process int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped[process] = time.Now()
	for _, k := range m.keys {
		for _, v := range k.inside {
			if v.process == process {
				v.stopped = true
			}
		}
	}
}

// forget notes that the queue has lost all it had, and that its runs have the
// fences of a stream that was made after a time.
func (m *monitor) forget(after time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = 0
	for _, k := range m.keys {
		k.observed, k.fence = k.issued, uint64(after.UnixNano())
		for _, v := range k.inside {
			v.stopped = true
		}
	}
}

// settled waits until all accepted events are followed by a run, or nothing has
// run for so long that nothing will.
func (m *monitor) settled(patience time.Duration) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for range tick.C {
		m.mu.Lock()
		over := m.pending == 0 || time.Since(m.progress) > patience && time.Since(began) > patience
		m.mu.Unlock()
		if over {
			return
		}
	}
}

// result returns the score, and the times from event to run.
func (m *monitor) result() (score, []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.score
	for name, k := range m.keys {
		if k.accepted > k.observed {
			s.Lost++
			s.Example = fmt.Sprintf("%s: event %d accepted, %d observed", name, k.accepted, k.observed)
		}
	}
	slices.Sort(m.latencies)
	return s, m.latencies
}

// A client tells the monitor of what happens in this process, and makes its
// choices. It is for one goroutine.
type client struct {
	conn    net.Conn
	in      *json.Decoder
	out     *json.Encoder
	process int
	rand    *rand.Rand
}

func dial(j job, slot int) (*client, error) {
	c, err := net.Dial("tcp", j.Monitor)
	if err != nil {
		return nil, err
	}
	choices := rand.New(rand.NewPCG(j.Seed, uint64(j.Process)<<32|uint64(slot)))
	return &client{c, json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c), j.Process, choices}, nil
}

// below returns a time from 0 to just below d.
func below(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// watch tells of the times when this process stood still, because the machine
// had no time for it or somebody stopped it: then no lease is kept.
func (c *client) watch() {
	last := time.Now()
	for {
		time.Sleep(50 * time.Millisecond)
		gap := time.Since(last)
		last = time.Now()
		if gap > lease/4 {
			c.tell(call{Op: "gap", Gap: gap})
		}
	}
}

// tell ends the process if the monitor is gone: then nothing here makes sense any
// more.
func (c *client) tell(a call) uint64 {
	a.Process = c.process
	var r reply
	if err := c.out.Encode(a); err != nil {
		os.Exit(1) // the monitor is gone
	}
	if err := c.in.Decode(&r); err != nil {
		os.Exit(1) // the monitor is gone
	}
	return r.Version
}
