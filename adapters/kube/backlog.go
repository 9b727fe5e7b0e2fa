// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter

import (
	"context"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// backlogPause is how often a backlog looks whether the queue got shorter. A
// queue tells nobody that it did.
const backlogPause = 2 * time.Millisecond

// A backlog keeps observations back while the queue is long. The nil backlog
// has nothing.
type backlog[T comparable] struct {
	q    reconcile.Enqueuer[T]
	len  func() int
	most int
	tell chan struct{} // told that there is something; room for one

	mu    sync.Mutex // guards what follows
	order []T        // in the order of add; what was removed is in it still
	kept  map[T]bool // whether it is an event; else it is an observation
}

func newBacklog[T comparable](q reconcile.Enqueuer[T], length func() int, most int) *backlog[T] {
	return &backlog[T]{q: q, len: length, most: most, tell: make(chan struct{}, 1), kept: make(map[T]bool)}
}

func (b *backlog[T]) add(item T, event bool) {
	b.mu.Lock()
	was, known := b.kept[item]
	b.kept[item] = was || event
	if !known {
		b.order = append(b.order, item)
	}
	b.mu.Unlock()
	select {
	case b.tell <- struct{}{}:
	default:
	}
}

// remove drops an item that an event is about to bring in anyway.
func (b *backlog[T]) remove(item T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.kept, item)
}

// more is ready when there may be something to trickle.
func (b *backlog[T]) more() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.tell
}

// trickle passes on what there is room for, and returns when to go on, if that
// is not all.
func (b *backlog[T]) trickle(ctx context.Context) <-chan time.Time {
	for ctx.Err() == nil {
		if b.len() >= b.most {
			return time.After(backlogPause)
		}
		item, event, ok := b.next()
		switch {
		case !ok:
			return nil
		case event:
			b.q.Enqueue(item)
		default:
			b.q.Offer(item)
		}
	}
	return nil
}

// next takes the oldest item.
func (b *backlog[T]) next() (item T, event, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, item := range b.order {
		if event, ok := b.kept[item]; ok {
			delete(b.kept, item)
			b.order = b.order[i+1:]
			return item, event, true
		}
	}
	b.order = nil
	return item, false, false
}
