// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// A call is a worker's message to the monitor. Each is answered.
type call struct {
	Op      string // enter, leave, refused, stalled
	Item    string
	Fence   int64
	Process int
	Gap     time.Duration // of stalled
}

// A monitor is notified of the begin and the end of each run. It counts the runs of an item
// that overlap. It sees a connection end, so it knows when the runs of a killed process have
// ended.
type monitor struct {
	listener net.Listener

	mu       sync.Mutex // guards the fields below
	items    map[string]*item
	breaches []breach
	excuses  []excuse
	runs     int
	late     int // runs that ended after a later run of the item had begun
	refused  int // transactions that Guard refused
}

// An item is what the monitor knows of one.
type item struct {
	fence  int64 // the greatest
	inside []visit
}

// A visit is a run that has not ended.
type visit struct {
	conn    net.Conn
	process int
	fence   int64
}

// A breach is an overlap, or a fence that is not greater than the one before.
type breach struct {
	at        time.Time
	processes []int
	overlap   bool
	text      string
}

// An excuse is a time in which breaches are expected, because a process was stopped, or
// because of what was done to the database.
type excuse struct {
	process  int // 0 means all
	from, to time.Time
	why      string
}

// The reasons of excuses.
const (
	frozen  = "frozen"   // SIGSTOP
	stalled = "stalled"  // the machine had no time for the process
	clock   = "clock"    // the database's clock was set forward
	lossy   = "failover" // to a standby that lacked commits
)

func newMonitor() *monitor {
	m := &monitor{listener: get(net.Listen("tcp", "127.0.0.1:0")), items: make(map[string]*item)}
	go func() {
		for {
			c, err := m.listener.Accept()
			if err != nil {
				return
			}
			go m.serve(c)
		}
	}()
	return m
}

func (m *monitor) serve(c net.Conn) {
	in, out := json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c)
	for {
		var a call
		if in.Decode(&a) != nil {
			break
		}
		m.note(c, a)
		if out.Encode(true) != nil {
			break
		}
	}
	c.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.items {
		i.leave(c)
	}
}

func (i *item) leave(c net.Conn) {
	i.inside = slices.DeleteFunc(i.inside, func(v visit) bool { return v.conn == c })
}

func (m *monitor) note(c net.Conn, a call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	i := m.items[a.Item]
	if i == nil {
		i = new(item)
		m.items[a.Item] = i
	}
	switch a.Op {
	case "enter":
		m.runs++
		for _, v := range i.inside {
			m.breaches = append(m.breaches, breach{now, []int{a.Process, v.process}, true, fmt.Sprintf(
				"%s: process %d entered with fence %d while process %d was inside with fence %d", a.Item, a.Process, a.Fence, v.process, v.fence)})
		}
		if a.Fence <= i.fence {
			m.breaches = append(m.breaches, breach{now, []int{a.Process}, false, fmt.Sprintf(
				"%s: process %d entered with fence %d after fence %d", a.Item, a.Process, a.Fence, i.fence)})
		}
		i.fence = max(i.fence, a.Fence)
		i.inside = append(i.inside, visit{c, a.Process, a.Fence})
	case "leave":
		i.leave(c)
		if a.Fence < i.fence {
			m.late++
		}
	case "refused":
		m.refused++
	case stalled:
		m.excuses = append(m.excuses, excuse{a.Process, now.Add(-a.Gap), now.Add(lease / 4), stalled})
	}
}

// excuse excuses the breaches of a process, or of all if it is 0, from now on until the
// returned function is called, and for a while after that.
func (m *monitor) excuse(process int, why string) (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.excuses)
	m.excuses = append(m.excuses, excuse{process, time.Now(), time.Now().Add(time.Hour), why})
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.excuses[n].to = time.Now().Add(lease / 4)
	}
}

// forgetFences notes that fences begin anew.
func (m *monitor) forgetFences() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.items {
		i.fence = 0
	}
}

// A score is what is counted.
type score struct {
	runs, late, refused int
	excused             map[string]int // overlaps, by the reason
	live, order         int            // overlaps, and fences that are not greater, that are not excused
	example             string
}

func (m *monitor) result() score {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := score{runs: m.runs, late: m.late, refused: m.refused, excused: make(map[string]int)}
	for _, b := range m.breaches {
		i := slices.IndexFunc(m.excuses, func(e excuse) bool {
			return !b.at.Before(e.from) && !b.at.After(e.to) && (e.process == 0 || slices.Contains(b.processes, e.process))
		})
		switch {
		case i >= 0 && b.overlap:
			s.excused[m.excuses[i].why]++
		case i >= 0:
		case b.overlap:
			s.live++
			s.example = b.at.Format(time.TimeOnly) + " " + b.text
		default:
			s.order++
			s.example = b.at.Format(time.TimeOnly) + " " + b.text
		}
	}
	return s
}

// A client notifies the monitor. It is for one goroutine.
type client struct {
	in      *json.Decoder
	out     *json.Encoder
	process int
}

func dial(j job) *client {
	c := get(net.Dial("tcp", j.Monitor))
	return &client{json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c), j.Process}
}

// notify returns when the monitor has answered. Without a monitor the process ends.
func (c *client) notify(a call) {
	a.Process = c.process
	var ok bool
	if c.out.Encode(a) != nil || c.in.Decode(&ok) != nil {
		os.Exit(1)
	}
}

// watch reports the times in which this process stood still: then it keeps no lease.
func (c *client) watch() {
	for last := time.Now(); ; {
		time.Sleep(50 * time.Millisecond)
		gap := time.Since(last)
		last = time.Now()
		if gap > lease/8 {
			c.notify(call{Op: stalled, Gap: gap})
		}
	}
}
