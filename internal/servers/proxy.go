// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// A Proxy passes TCP connections on to a server, and can be told not to. It is made
// by [NewProxy]. Its methods may be called from any goroutine.
type Proxy struct {
	listener net.Listener
	target   string
	ended    sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]struct{}
	mode   mode
	turned chan struct{} // closed when mode changes
	delay  time.Duration // of each byte, in each direction
	rate   int           // bytes a second in each direction; 0 means no limit
}

type mode int

const (
	open mode = iota
	cut
	hung
	deaf
	closed
)

// NewProxy listens on a loopback port and passes connections on to target, which is a
// host:port. Close it when done.
func NewProxy(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, conns: make(map[net.Conn]struct{}), turned: make(chan struct{})}
	p.ended.Go(p.accept)
	return p, nil
}

// Addr returns the host:port that the proxy listens on. It never changes.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections, and each new one at once.
func (p *Proxy) Cut() { p.turn(cut) }

// Hang keeps all connections, and accepts new ones, but passes no more bytes
// on, in both directions: what a lost cable looks like.
func (p *Proxy) Hang() { p.turn(hung) }

// Deafen keeps all connections, and passes on what clients send, but nothing
// that comes back: a link that is half open.
func (p *Proxy) Deafen() { p.turn(deaf) }

// Link makes the connections that follow ones over a long or slow link: each
// byte takes delay to the other side, and no more than rate bytes a second enter
// it, in each direction. A delay of 0 is none, a rate of 0 no limit. Connections
// that are there stay as they are.
func (p *Proxy) Link(delay time.Duration, rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.rate = delay, rate
}

// Heal undoes Cut, Hang and Deafen. Bytes that came in meanwhile are passed on.
func (p *Proxy) Heal() { p.turn(open) }

// Close closes all connections and the port.
func (p *Proxy) Close() {
	p.turn(closed)
	p.listener.Close()
	p.ended.Wait()
}

func (p *Proxy) turn(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == closed || p.mode == m {
		return
	}
	p.mode = m
	close(p.turned)
	p.turned = make(chan struct{})
	if m == cut || m == closed {
		for c := range p.conns {
			abort(c)
		}
		clear(p.conns)
	}
}

// abort closes a connection so that the other side sees it reset.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.ended.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(c net.Conn) {
	defer abort(c)
	if !p.track(c) || !p.wait(false) {
		return
	}
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer abort(s)
	if !p.track(s) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { p.copy(c, s, true) })
	p.copy(s, c, false)
	back.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, s)
	p.mu.Unlock()
}

// track makes a connection one of those that Cut closes.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == cut || p.mode == closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// copy passes bytes on, to the server or back.
func (p *Proxy) copy(to, from net.Conn, back bool) {
	defer abort(to)
	defer abort(from)
	p.mu.Lock()
	delay, rate := p.delay, p.rate
	p.mu.Unlock()
	if delay > 0 || rate > 0 {
		p.copyLink(to, from, back, delay, rate)
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.wait(back) {
			return
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// copyLink is copy over a link, see [Proxy.Link].
func (p *Proxy) copyLink(to, from net.Conn, back bool, delay time.Duration, rate int) {
	type piece struct {
		data []byte
		due  time.Time
	}
	way := make(chan piece, 4096) // what is on its way
	var arrive sync.WaitGroup
	arrive.Go(func() {
		defer abort(from) // so that nothing more enters
		broken := false
		for b := range way {
			if broken {
				continue
			}
			time.Sleep(time.Until(b.due))
			if !p.wait(back) {
				broken = true
				abort(from)
				continue
			}
			if _, err := to.Write(b.data); err != nil {
				broken = true
				abort(from)
			}
		}
	})
	defer arrive.Wait()
	defer close(way)
	free := time.Now() // when the link takes the next byte
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if rate > 0 {
				if now := time.Now(); free.Before(now) {
					free = now
				}
				free = free.Add(time.Duration(n) * time.Second / time.Duration(rate))
				time.Sleep(time.Until(free))
			}
			way <- piece{bytes.Clone(buf[:n]), time.Now().Add(delay)}
		}
		if err != nil {
			return
		}
	}
}

// wait blocks while the proxy hangs, or is deaf for what comes back, and reports
// whether to go on after it.
func (p *Proxy) wait(back bool) bool {
	for {
		p.mu.Lock()
		m, turned := p.mode, p.turned
		p.mu.Unlock()
		if m != hung && (m != deaf || !back) {
			return m == open || m == deaf
		}
		<-turned
	}
}
