// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A watch tells a candidate that the key was deleted, and a leader that its lease was. It
// may be stale or fail: whoever waits for it has a timer as well.
type watch struct {
	watcher jetstream.KeyWatcher
	cancel  context.CancelFunc
	quiet   int // waits in a row without a word, though a leader renews

	stopping sync.WaitGroup
}

// start begins to watch, if it does not already. It blocks for a twentieth of ttl at most.
func (w *watch) start(kv jetstream.KeyValue, name string, ttl time.Duration) {
	if w.watcher != nil && w.quiet < 3 {
		return
	}
	w.stop()
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background()) // for the watch as long as it lasts
	slow := time.AfterFunc(min(ttl/20, shortTimeout), w.cancel)
	watcher, err := kv.Watch(ctx, name, jetstream.UpdatesOnly())
	if slow.Stop(); err != nil {
		w.cancel()
		return
	}
	w.watcher, w.quiet = watcher, 0
}

// stop does not wait for the server, as Stop does: who has won a lease has it for
// a short time only.
func (w *watch) stop() {
	if w.watcher == nil {
		return
	}
	watcher, cancel := w.watcher, w.cancel
	w.watcher = nil
	w.stopping.Go(func() {
		defer cancel()
		defer time.AfterFunc(shortTimeout, cancel).Stop()
		watcher.Stop()
	})
}

// updates returns what to receive from before each call of heard; nil if there is no watch.
func (w *watch) updates() <-chan jetstream.KeyValueEntry {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Updates()
}

// heard takes note of what was received.
func (w *watch) heard(ok bool) {
	w.quiet = 0
	if !ok {
		w.stop()
	}
}

// wait returns when the key was deleted, the timer fires or ctx is done.
func (w *watch) wait(ctx context.Context, timer <-chan time.Time) {
	w.quiet++
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer:
			return
		case e, ok := <-w.updates():
			w.heard(ok)
			if e != nil && e.Operation() != jetstream.KeyValuePut {
				return
			}
		}
	}
}
