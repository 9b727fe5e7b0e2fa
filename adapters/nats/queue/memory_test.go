// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/lease"
)

// A memory is the stream of one queue and its consumer, in memory. It takes no
// time: that is what links do.
type memory struct {
	name    string
	created time.Time
	ackWait time.Duration

	mu        sync.Mutex // guards the fields below; a link's mu may be locked with it held
	seq       uint64
	bySubject map[string]uint64
	bySeq     map[uint64]*kept
	order     []uint64 // sequences ever stored, for those that read in order
	bytes     int
	limit     int // 0 for none
	consumer  *memoryConsumer
}

// A kept is a message in a memory.
type kept struct {
	stored
	at time.Time
}

func (k *kept) size() int { return len(k.subject) + len(k.data) + 30 }

// A memoryConsumer hands out the records of items.
type memoryConsumer struct {
	delivered uint64
	unacked   map[uint64]*time.Timer // by sequence: until it is handed out again
	again     []uint64               // to be handed out again
	pulls     []*memoryPull          // oldest first
}

type memoryPull struct {
	link *link
	id   uint64
	left int
	beat *time.Timer
	ends time.Time
}

func newMemory(name string, ackWait time.Duration) *memory {
	m := &memory{
		name: name, created: time.Now(), ackWait: ackWait,
		bySubject: make(map[string]uint64), bySeq: make(map[uint64]*kept),
	}
	m.createConsumer()
	return m
}

var errMemoryFull = &jetstream.APIError{ErrorCode: 10077, Description: "maximum bytes exceeded"}

// publish is publishIf of a message that depends on its own subject.
func (m *memory) publish(subject string, last uint64, data []byte) (uint64, error) {
	return m.publishIf(subject, subject, last, data)
}

func (m *memory) publishIf(subject, other string, last uint64, data []byte) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bySubject[other] != last {
		return 0, errConflict
	}
	k := &kept{stored{subject, m.seq + 1, data}, time.Now()}
	if m.limit > 0 && m.bytes+k.size() > m.limit {
		return 0, errMemoryFull
	}
	if before := m.bySubject[subject]; before > 0 {
		m.deleteLocked(before)
	}
	m.seq++
	m.bySubject[subject], m.bySeq[m.seq] = m.seq, k
	m.order = append(m.order, m.seq)
	m.bytes += k.size()
	m.handOutLocked()
	return m.seq, nil
}

func (m *memory) deleteLocked(seq uint64) {
	k := m.bySeq[seq]
	delete(m.bySeq, seq)
	delete(m.bySubject, k.subject)
	m.bytes -= k.size()
	if c := m.consumer; c != nil && c.unacked[seq] != nil {
		c.unacked[seq].Stop()
		delete(c.unacked, seq)
	}
}

func (m *memory) remove(seq uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bySeq[seq] == nil {
		return errConflict
	}
	m.deleteLocked(seq)
	return nil
}

func (m *memory) last(subject string) (stored, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.bySeq[m.bySubject[subject]]; k != nil {
		return k.stored, nil
	}
	return stored{}, errNoRecord
}

func (m *memory) subjects(filter string) (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for subject := range m.bySubject {
		if part, any := strings.CutSuffix(filter, ">"); subject == filter || any && strings.HasPrefix(subject, part) {
			all = append(all, subject)
		}
	}
	return all
}

// items returns the records of items.
func (m *memory) items() (all []kept) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seq := range m.order {
		if k := m.bySeq[seq]; m.isItem(k) {
			all = append(all, *k)
		}
	}
	return all
}

func (m *memory) isItem(k *kept) bool {
	return k != nil && strings.HasPrefix(k.subject, m.name+".i.")
}

// setLimit sets how many bytes the stream may take: more than it does now.
func (m *memory) setLimit(more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit = 0; more > 0 {
		m.limit = m.bytes + more
	}
}

func (m *memory) free() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit == 0 {
		return math.MaxInt64
	}
	return int64(m.limit - m.bytes)
}

func (m *memory) createConsumer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.consumer == nil {
		m.consumer = &memoryConsumer{unacked: make(map[uint64]*time.Timer)}
	}
}

func (m *memory) deleteConsumer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.consumer == nil {
		return
	}
	for _, p := range m.consumer.pulls {
		p.beat.Stop()
		p.link.tell(arrival{status: "409", text: "Consumer Deleted"})
	}
	for _, t := range m.consumer.unacked {
		t.Stop()
	}
	m.consumer = nil
}

func (m *memory) progress() (progress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.consumer
	if c == nil {
		return progress{}, jetstream.ErrConsumerNotFound
	}
	p := progress{delivered: c.delivered, floor: c.delivered}
	for seq := range c.unacked {
		p.floor = min(p.floor, seq-1)
	}
	for _, seq := range c.again {
		p.floor = min(p.floor, seq-1)
	}
	at, _ := slices.BinarySearch(m.order, c.delivered+1)
	for _, seq := range m.order[at:] {
		if m.isItem(m.bySeq[seq]) {
			p.pending++
		}
	}
	return p, nil
}

func (m *memory) pull(l *link, id uint64, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.consumer == nil {
		l.tell(arrival{status: "503"})
		return
	}
	p := &memoryPull{link: l, id: id, left: n, ends: time.Now().Add(pullExpires)}
	p.beat = time.AfterFunc(pullHeartbeat, func() { m.beat(p) })
	m.consumer.pulls = append(m.consumer.pulls, p)
	m.handOutLocked()
}

// beat tells the client that its request stands.
func (m *memory) beat(p *memoryPull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.consumer == nil || !slices.Contains(m.consumer.pulls, p):
	case time.Now().Before(p.ends):
		p.link.tell(arrival{status: "100"})
		p.beat.Reset(pullHeartbeat)
	default:
		m.endPullLocked(p)
		p.link.tell(arrival{status: "408", text: "Request Timeout", id: p.id, left: p.left})
	}
}

func (m *memory) endPullLocked(p *memoryPull) {
	p.beat.Stop()
	if c := m.consumer; c != nil {
		c.pulls = slices.DeleteFunc(c.pulls, func(o *memoryPull) bool { return o == p })
	}
}

// forget ends the requests of a link: nobody is at its other end.
func (m *memory) forget(l *link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.consumer == nil {
		return
	}
	for _, p := range slices.Clone(m.consumer.pulls) {
		if p.link == l {
			m.endPullLocked(p)
		}
	}
}

// handOutLocked hands out what there is to those who ask, the oldest first.
func (m *memory) handOutLocked() {
	c := m.consumer
	if c == nil {
		return
	}
	for len(c.pulls) > 0 {
		k := m.toHandOutLocked()
		if k == nil {
			return
		}
		p := c.pulls[0]
		if p.left--; p.left == 0 {
			m.endPullLocked(p)
		}
		seq := k.seq
		c.unacked[seq] = time.AfterFunc(m.ackWait, func() { m.answer(c, seq, "-NAK") })
		p.link.tell(arrival{stored: k.stored, reply: strconv.FormatUint(seq, 10)})
	}
}

func (m *memory) toHandOutLocked() *kept {
	c := m.consumer
	for len(c.again) > 0 {
		k := m.bySeq[c.again[0]]
		c.again = c.again[1:]
		if k != nil {
			return k
		}
	}
	at, _ := slices.BinarySearch(m.order, c.delivered+1)
	for _, seq := range m.order[at:] {
		c.delivered = seq
		if k := m.bySeq[seq]; m.isItem(k) {
			return k
		}
	}
	return nil
}

// answer does what a client says of a message. A client does not say of which
// consumer it had it.
func (m *memory) answer(c *memoryConsumer, seq uint64, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c != nil && c != m.consumer {
		return
	}
	c = m.consumer
	if c == nil || c.unacked[seq] == nil {
		return
	}
	c.unacked[seq].Stop()
	if after, ok := strings.CutPrefix(what, "-NAK "); ok {
		var nak struct{ Delay time.Duration }
		if err := json.Unmarshal([]byte(after), &nak); err != nil {
			panic(err)
		}
		c.unacked[seq] = time.AfterFunc(nak.Delay, func() { m.answer(c, seq, "-NAK") })
		return
	}
	delete(c.unacked, seq)
	if what == "-NAK" && m.bySeq[seq] != nil {
		c.again = append(c.again, seq)
		m.handOutLocked()
	}
}

// A link is the wire from one process to a memory. What is sent in one direction
// arrives in order, after the delay of that direction, unless a fault is on it.
type link struct {
	m       *memory
	timeout time.Duration // of one request
	*linkState
}

type linkState struct {
	atOnce bool // outside of a bubble: what is sent arrives at once

	mu       sync.Mutex // guards the fields below
	rand     *rand.Rand
	dirs     [2]direction
	loss     float64 // of messages, in either direction
	twice    float64
	broken   bool // and the client knows: what it sends waits until the link is back
	gone     bool // the process is
	breaks   int  // how often it broke: what was on its way is lost
	buffered []func()
	again    []chan nats.Status
	receive  func(arrival)
}

const (
	toServer = iota
	toClient
)

type direction struct {
	delay time.Duration
	stuck int // nothing arrives while it is more than 0
	held  []func()
	last  time.Time // when the last that was sent arrives
}

func newLink(m *memory, timeout time.Duration, seed uint64) *link {
	s := &linkState{rand: rand.New(rand.NewPCG(seed, 1))}
	for d := range s.dirs {
		s.dirs[d].delay = time.Millisecond / 4
	}
	return &link{m: m, timeout: timeout, linkState: s}
}

// send has fn called when it arrives.
func (s *linkState) send(dir int, fn func()) {
	if s.atOnce {
		fn()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone, s.broken && dir == toClient, s.rand.Float64() < s.loss:
	case s.broken:
		s.buffered = append(s.buffered, fn)
	default:
		s.sendLocked(dir, fn)
		if s.rand.Float64() < s.twice {
			s.sendLocked(dir, fn)
		}
	}
}

func (s *linkState) sendLocked(dir int, fn func()) {
	d := &s.dirs[dir]
	at := time.Now().Add(d.delay)
	if !at.After(d.last) {
		at = d.last.Add(1)
	}
	d.last = at
	breaks := s.breaks
	time.AfterFunc(time.Until(at), func() {
		s.mu.Lock()
		lost, late := s.gone || s.breaks != breaks, d.stuck > 0
		if !lost && late {
			d.held = append(d.held, fn)
		}
		s.mu.Unlock()
		if !lost && !late {
			fn()
		}
	})
}

// stick lets nothing arrive in a direction; unstick undoes one stick.
func (s *linkState) stick(dir int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs[dir].stuck++
}

func (s *linkState) unstick(dir int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.dirs[dir]
	if d.stuck--; d.stuck > 0 || s.gone {
		return
	}
	held := d.held
	d.held = nil
	delay := d.delay
	d.delay = 0
	for _, fn := range held {
		s.sendLocked(dir, fn)
	}
	d.delay = delay
}

// tear ends the connection, which both ends notice, and reconnect creates a new one.
func (l *link) tear() {
	l.mu.Lock()
	l.broken = true
	l.breaks++
	for d := range l.dirs {
		l.dirs[d].held = nil
	}
	l.mu.Unlock()
	l.m.forget(l)
}

func (l *link) reconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.broken || l.gone {
		return
	}
	l.broken = false
	for _, fn := range l.buffered {
		l.sendLocked(toServer, fn)
	}
	l.buffered = nil
	for _, again := range l.again {
		select {
		case again <- nats.CONNECTED:
		default:
		}
	}
}

// dies ends the process at this end.
func (l *link) dies() {
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
	l.m.forget(l)
}

// tell sends what the consumer has to say.
func (l *link) tell(a arrival) {
	l.send(toClient, func() {
		l.mu.Lock()
		receive := l.receive
		l.mu.Unlock()
		if receive != nil {
			receive(a)
		}
	})
}

// ask makes a request, which happens even if nobody waits for the answer any more.
func ask[R any](ctx context.Context, l *link, timeout time.Duration, do func() (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type answer struct {
		r   R
		err error
	}
	answers := make(chan answer, 1)
	l.send(toServer, func() {
		r, err := do()
		l.send(toClient, func() {
			select {
			case answers <- answer{r, err}:
			default: // it is the same twice
			}
		})
	})
	select {
	case a := <-answers:
		return a.r, a.err
	case <-ctx.Done():
		var none R
		return none, ctx.Err()
	}
}

// defaultAnswer is how long nats.go waits if it is not told.
const defaultAnswer = 5 * time.Second

func (l *link) publish(ctx context.Context, subject string, last uint64, data []byte) (uint64, error) {
	return ask(ctx, l, l.timeout, func() (uint64, error) { return l.m.publish(subject, last, data) })
}

func (l *link) publishBriefly(ctx context.Context, subject string, last uint64, data []byte) (uint64, error) {
	return ask(ctx, l, l.timeout, func() (uint64, error) {
		seq, err := l.m.publish(subject, last, data)
		if err == nil {
			time.AfterFunc(time.Minute, func() { l.m.remove(seq) })
		}
		return seq, err
	})
}

func (l *link) publishIf(ctx context.Context, subject, other string, last uint64) error {
	_, err := ask(ctx, l, l.timeout, func() (uint64, error) { return l.m.publishIf(subject, other, last, nil) })
	return err
}

func (l *link) last(ctx context.Context, subject string) (stored, error) {
	return ask(ctx, l, l.timeout, func() (stored, error) { return l.m.last(subject) })
}

func (l *link) subjects(ctx context.Context, filter string) ([]string, error) {
	return ask(ctx, l, l.timeout, func() ([]string, error) { return l.m.subjects(filter), nil })
}

func (l *link) purge(ctx context.Context, subject string) error {
	_, err := ask(ctx, l, l.timeout, func() (int, error) {
		if k, err := l.m.last(subject); err == nil {
			l.m.remove(k.seq)
		}
		return 0, nil
	})
	return err
}

func (l *link) room(ctx context.Context, subject string) (free int64, there bool, err error) {
	type answer struct {
		free  int64
		there bool
	}
	a, err := ask(ctx, l, l.timeout, func() (answer, error) {
		_, err := l.m.last(subject)
		return answer{l.m.free(), err == nil}, nil
	})
	return a.free, a.there, err
}

func (l *link) drop(seq uint64) { l.send(toServer, func() { l.m.remove(seq) }) }

func (l *link) scan(ctx context.Context, fn func(m stored, at time.Time)) (moved bool, err error) {
	// As the consumer is made, and then as it is read.
	if _, err := ask(ctx, l, defaultAnswer, func() (int, error) { return 0, nil }); err != nil {
		return false, err
	}
	all, err := ask(ctx, l, 2*time.Second, func() ([]kept, error) { return l.m.items(), nil })
	for _, k := range all {
		fn(k.stored, k.at)
	}
	return false, err
}

func (l *link) epoch(ctx context.Context) (uint64, error) {
	return ask(ctx, l, l.timeout, func() (uint64, error) { return lease.Epoch(l.m.created), nil })
}

func (l *link) consumer(ctx context.Context) (progress, error) {
	return ask(ctx, l, defaultAnswer, l.m.progress)
}

func (l *link) wrongSettings(ctx context.Context) ([]string, error) {
	return ask(ctx, l, l.timeout, func() ([]string, error) { return nil, nil })
}

func (l *link) createConsumer(ctx context.Context) error {
	_, err := ask(ctx, l, l.timeout, func() (int, error) { l.m.createConsumer(); return 0, nil })
	return err
}

func (l *link) subscribe(receive func(arrival)) (unsubscribe func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receive = receive
	return func() {
		l.mu.Lock()
		l.receive = nil
		l.mu.Unlock()
		l.send(toServer, func() { l.m.forget(l) })
	}, nil
}

func (l *link) pull(id uint64, n int) { l.send(toServer, func() { l.m.pull(l, id, n) }) }

func (l *link) answer(a arrival, what string) {
	seq, err := strconv.ParseUint(a.reply, 10, 64)
	if err != nil {
		panic(err)
	}
	l.send(toServer, func() { l.m.answer(nil, seq, what) })
}

func (l *link) patient() wire {
	p := *l
	p.timeout = slowAnswer
	return &p
}

func (l *link) largest() int { return 20_000 } // so that the reserve is small

func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.broken
}

func (l *link) outages() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(l.breaks)
}

func (l *link) closed() error { return nil }

func (l *link) connects() (again chan nats.Status, stop func()) {
	again = make(chan nats.Status, 10)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = append(l.again, again)
	return again, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.again = slices.DeleteFunc(l.again, func(c chan nats.Status) bool { return c == again })
	}
}
