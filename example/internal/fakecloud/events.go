// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fakecloud

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// A hub passes events to those who listen. One who does not keep up is cut off,
// and has to look at everything again.
type hub struct {
	mu        sync.Mutex
	closed    bool
	listeners map[chan cloud.Event]string // and their tenants
}

// join returns a channel that is closed when the listener has to go.
func (h *hub) join(tenant string) chan cloud.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := make(chan cloud.Event, 4096)
	if h.closed {
		close(events)
		return events
	}
	if h.listeners == nil {
		h.listeners = map[chan cloud.Event]string{}
	}
	h.listeners[events] = tenant
	return events
}

func (h *hub) leave(events chan cloud.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.listeners[events]; ok {
		delete(h.listeners, events)
		close(events)
	}
}

func (h *hub) publish(tenant string, e cloud.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for events, t := range h.listeners {
		if t != tenant {
			continue
		}
		select {
		case events <- e:
		default:
			delete(h.listeners, events)
			close(events)
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for events := range h.listeners {
		delete(h.listeners, events)
		close(events)
	}
}

// events serves a stream of server-sent events. If the cloud has faults or
// chaos, it cuts each after a while.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if s.chance(s.config.Faults) {
		answer(w, nil, &cloud.Error{Status: 503, Message: "no stream just now"})
		return
	}
	events := s.hub.join(tenant(r))
	defer s.hub.leave(events)

	var cut <-chan time.Time
	if s.config.Faults > 0 || s.config.Chaos > 0 {
		timer := time.NewTimer(s.about(90 * time.Second))
		defer timer.Stop()
		cut = timer.C
	}
	alive := time.NewTicker(10 * time.Second)
	defer alive.Stop()

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	event, ok := cloud.Event{What: "hello"}, true
	stream := http.NewResponseController(w)
	for {
		data, err := json.Marshal(event)
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", data)
		}
		if err == nil && len(events) == 0 {
			err = stream.Flush()
		}
		for waiting := true; waiting && err == nil; {
			select {
			case event, ok = <-events:
				if !ok {
					return
				}
				waiting = false
			case <-alive.C:
				if _, err = fmt.Fprint(w, ": still here\n\n"); err == nil {
					err = stream.Flush()
				}
			case <-cut:
				return
			case <-r.Context().Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}
