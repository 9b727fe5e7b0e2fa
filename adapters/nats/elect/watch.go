// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A watch tells a candidate that the key was deleted. It may be stale or fail:
// whoever waits for it has a timer as well.
type watch struct {
	watcher jetstream.KeyWatcher
	cancel  context.CancelFunc
	quiet   int // waits in a row without a word, though a leader renews

	stopping *sync.WaitGroup
}

func (w *watch) start(ctx context.Context, kv jetstream.KeyValue, name string) {
	if w.watcher != nil && w.quiet < 3 {
		return
	}
	w.stop()
	ctx, w.cancel = context.WithCancel(ctx) // for the watch as long as it lasts
	slow := time.AfterFunc(shortTimeout, w.cancel)
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

// wait returns when the key was deleted, the timer fires or ctx is done.
func (w *watch) wait(ctx context.Context, timer <-chan time.Time) {
	w.quiet++
	var updates <-chan jetstream.KeyValueEntry
	if w.watcher != nil {
		updates = w.watcher.Updates()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer:
			return
		case e, ok := <-updates:
			if !ok {
				updates = nil
				w.stop()
				continue
			}
			w.quiet = 0
			if e != nil && e.Operation() != jetstream.KeyValuePut {
				return
			}
		}
	}
}
