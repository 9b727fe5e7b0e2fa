// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A logbook keeps what is logged at Info or above.
type logbook struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines returns how many lines have a text.
func (l *logbook) lines(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// inMemory returns a queue on a memory, behind what wrap makes of its link.
func inMemory(t *testing.T, m *memory, log *logbook, wrap func(wire) wire) (*Queue[string], *link) {
	t.Helper()
	cfg, err := Config{Name: "q", Lease: playLease, Logger: slog.New(slog.NewTextHandler(log, nil))}.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCodec[string]()
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(m, cfg.Lease/4, 1)
	return openQueue(cfg, wrap(l), c, cfg.Lease/4), l
}

// While nothing can be stored that is said after ten seconds and then once a minute,
// and once when it is over.
func TestWarnsWhileNothingIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logbook)
		q, l := inMemory(t, newMemory("q", playLease), log, func(w wire) wire { return w })
		defer q.end()
		const warning, over = "level=WARN msg=\"the server stores nothing", "the server stores again"
		l.tear()
		q.Enqueue("x")
		for _, after := range []struct {
			d    time.Duration
			want int
		}{{9 * time.Second, 0}, {5 * time.Second, 1}, {50 * time.Second, 1}, {20 * time.Second, 2}} {
			time.Sleep(after.d)
			if n := log.lines(warning); n != after.want {
				t.Errorf("%d warnings after %v more, want %d", n, after.d, after.want)
			}
		}
		l.reconnect()
		time.Sleep(2 * time.Second)
		if n := log.lines(over); n != 1 || q.Stats().Outbox != 0 {
			t.Errorf("%d lines say that it is over, and %d items are in the outbox", n, q.Stats().Outbox)
		}
		q.end()
		q.running.Wait()
	})
}

// What failed hours ago, and was tried by nobody since, does not last since then.
func TestAlarmForgetsOldFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logbook)
		q, _ := inMemory(t, newMemory("q", playLease), log, func(w wire) wire { return w })
		defer q.end()
		var a alarm
		fail := func() { q.alarm(&a, time.Now(), time.Minute, "it fails", errors.New("no")) }
		fail()
		time.Sleep(3 * time.Hour)
		fail()
		if n := log.lines("it fails"); n != 0 {
			t.Errorf("%d warnings of a failure that has just begun", n)
		}
		time.Sleep(time.Minute)
		fail()
		if n := log.lines("for=1m0s"); n != 1 {
			t.Errorf("%d warnings that it lasts a minute:\n%s", n, log.text.String())
		}
		began := time.Now()
		time.Sleep(time.Hour) // one try that takes so long is the same failure
		q.alarm(&a, began, time.Minute, "it fails", errors.New("no"))
		if n := log.lines("for=1h1m0s"); n != 1 {
			t.Errorf("%d warnings that it lasts an hour:\n%s", n, log.text.String())
		}

		// The janitor checks every three leases, which may be more than a minute.
		q.cfg.Lease = time.Minute
		var settings alarm
		for range 3 {
			q.alarm(&settings, time.Now(), 0, "other settings", errors.New("MaxAge"))
			time.Sleep(3*time.Minute + time.Second)
		}
		if n := log.lines("for=6m2s"); n != 1 {
			t.Errorf("%d warnings that other settings last two checks:\n%s", n, log.text.String())
		}
		q.end()
		q.running.Wait()
	})
}

// An account with no consumer to spare lets nobody read all records.
type noConsumerToSpare struct {
	wire
	spare *atomic.Bool
}

func (w noConsumerToSpare) scan(ctx context.Context, fn func(m stored, at time.Time)) (moved bool, err error) {
	if !w.spare.Load() {
		return false, &jetstream.APIError{ErrorCode: 10026, Description: "maximum consumers limit reached"}
	}
	return w.wire.scan(ctx, fn)
}

// If the janitor cannot check all records it says so, and that the items of a
// process that is gone do not run; when it can, they do.
func TestWarnsIfNoConsumerIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, m, spare := new(logbook), newMemory("q", playLease), new(atomic.Bool)
		plain := func(w wire) wire { return w }
		dies, l := inMemory(t, m, new(logbook), plain)
		lives, _ := inMemory(t, m, log, func(w wire) wire { return noConsumerToSpare{w, spare} })
		defer lives.end()
		dies.Enqueue("x")
		if _, err := dies.Dequeue(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.dies()
		dies.end()
		dies.running.Wait()
		taken := make(chan string, 1)
		go func() {
			item, _ := lives.Dequeue(t.Context())
			taken <- item
		}()
		time.Sleep(4 * playLease)
		if log.lines("level=WARN msg=\"cannot check all records") != 1 || log.lines("maximum consumers limit reached") != 1 {
			t.Errorf("the log does not say that all records cannot be checked, once:\n%s", log.text.String())
		}
		if n := log.lines("requeued: the process that ran it died"); n != 0 {
			t.Errorf("%d lines say that an item runs again", n)
		}
		spare.Store(true)
		if item := <-taken; item != "x" {
			t.Errorf("Dequeue: %q", item)
		}
		if n := log.lines("all records are checked again"); n != 1 {
			t.Errorf("%d lines say that it is over", n)
		}
		lives.end()
		lives.running.Wait()
	})
}

// A server that denies what stores something, for a while.
type denying struct {
	wire
	denies *atomic.Bool
}

func (w denying) publish(ctx context.Context, subject string, last uint64, data []byte) (uint64, error) {
	if w.denies.Load() {
		return 0, fmt.Errorf("%w: %s", nats.ErrPermissionViolation, subject)
	}
	return w.wire.publish(ctx, subject, last, data)
}

// Who waits for what is denied is told so. Once it is allowed it is stored, and
// nobody is told so any more.
func TestDeniedIsStoredOnceAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, denies := new(logbook), new(atomic.Bool)
		q, _ := inMemory(t, newMemory("q", playLease), log, func(w wire) wire { return denying{w, denies} })
		defer q.end()
		denies.Store(true)
		for _, item := range []string{"x", "x", "y"} {
			if err := q.EnqueueContext(t.Context(), item); !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("EnqueueContext of %s: %v, want one that wraps %v", item, err, nats.ErrPermissionViolation)
			}
		}
		synctest.Wait()
		if n := log.lines("level=WARN msg=\"a permission is missing"); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
		denies.Store(false)
		time.Sleep(2 * time.Second) // the longest pause between two attempts is one
		if n := q.Stats().Outbox; n != 0 {
			t.Errorf("%d items are in the outbox", n)
		}
		if err := q.EnqueueContext(t.Context(), "z"); err != nil {
			t.Error(err)
		}
		q.end()
		q.running.Wait()
	})
}

// The janitor reads all records again and again. A record that no Queue writes is logged
// once, however often it is read, and of a flood of them only the first ones are.
func TestUnreadableIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, m := new(logbook), newMemory("q", playLease)
		q, _ := inMemory(t, m, log, func(w wire) wire { return w })
		defer q.end()
		publish := func(subject string) {
			if _, err := m.publish(subject, 0, []byte("poison")); err != nil {
				t.Error(err)
			}
		}
		publish("q.i.=61")
		publish("q.m." + strings.Repeat("m", 5000))
		ctx, cancel := context.WithCancel(t.Context())
		var taking sync.WaitGroup
		taking.Go(func() { _, _ = q.Dequeue(ctx) })
		wait := func() { time.Sleep(100 * playLease) }
		wait()
		for _, subject := range []string{"q.i.=61", "q.m.mmm"} {
			if n := log.lines(subject); n != 1 {
				t.Errorf("%d lines of %s, want 1", n, subject)
			}
		}
		for i := range 1000 {
			publish(fmt.Sprintf("q.i.=x%d", i))
		}
		wait()
		if n := log.lines("unreadable record is ignored"); n < 90 || n > 150 {
			t.Errorf("%d lines of 1,000 records, want about 100", n)
		}
		if n := q.Stats().Unreadable; n < 1002 {
			t.Errorf("%d records were counted, want all", n)
		}
		cancel()
		taking.Wait()
		q.end()
		q.running.Wait()
	})
}
