// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A give-back that waits in a long outbox while another process reclaims its item, and
// this one takes it anew, counts no more once it is stored: else this process takes no
// items after maxGiving of them.
func TestLateGiveBackIsCountedOff(t *testing.T) {
	for _, together := range []bool{false, true} { // with the give-back of the next run
		t.Run(fmt.Sprintf("together=%t", together), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory("q", playLease)
				asIs := func(w wire) wire { return w }
				late, cable := inMemory(t, m, new(logbook), asIs)
				other, _ := inMemory(t, m, new(logbook), asIs)
				defer func() {
					for _, q := range []*Queue[string]{late, other} {
						q.end()
						q.running.Wait()
					}
				}()
				takeX := func() {
					if item, err := late.Dequeue(t.Context()); err != nil || item != "x" {
						t.Fatalf("Dequeue: %q, %v, want x", item, err)
					}
				}
				late.Enqueue("x")
				takeX()
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				other.Dequeue(short) // it takes nothing, and is a member from now on
				cable.tear()
				for i := range 5000 {
					late.Enqueue(fmt.Sprint(i))
				}
				late.Done("x")
				time.Sleep(3 * playLease) // the other declares it gone and reclaims x
				cable.reconnect()
				takeX()
				late.mu.Lock()
				giving, line := late.giving, len(late.outbox.line)
				late.mu.Unlock()
				if giving != 1 || line < maxSenders {
					t.Fatalf("x was taken while %d give-backs and %d items were in line, want the give-back of x behind many", giving, line)
				}
				if !together {
					time.Sleep(playLease)
				}
				late.Done("x")
				time.Sleep(playLease)
				if n := late.Stats().Outbox; n > 0 {
					t.Fatalf("%d items in the outbox", n)
				}
				late.mu.Lock()
				giving, held := late.giving, len(late.held)
				late.mu.Unlock()
				if giving != 0 || held != 0 {
					t.Errorf("once all is stored %d items are being given back and %d are held, want none", giving, held)
				}
			})
		})
	}
}

// A doneHook is a context that calls hook when somebody asks for its end: Close does once
// it has begun.
type doneHook struct {
	context.Context
	hook func()
}

func (c doneHook) Done() <-chan struct{} {
	c.hook()
	return c.Context.Done()
}

// Remove works while Close waits, and not once all is stored: else it would depend on
// the goroutine that is faster whether the run is cancelled, and Close reported an item
// that is not stored.
func TestRemoveWorksUntilAllIsStored(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprintf("waits=%t", waits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory("q", playLease)
				q, _ := inMemory(t, m, new(logbook), func(w wire) wire { return w })
				if err := q.EnqueueContext(t.Context(), "x"); err != nil {
					t.Fatal(err)
				}
				if waits {
					q.Enqueue("y")
				}
				var found bool
				var removed error
				err := q.Close(doneHook{t.Context(), func() { found, removed = q.Remove(t.Context(), "x") }})
				want := error(nil)
				if !waits {
					want = reconcile.ErrClosed
				}
				if err != nil || removed != want || found != waits {
					t.Errorf("Remove during Close = %t, %v, want %t, %v; Close = %v, want nil", found, removed, waits, want, err)
				}
			})
		})
	}
}
