// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fakecloud

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// join returns a channel with the events of a tenant. It is closed if the listener
// does not keep up: it has to look at everything again.
func (s *Server) join(tenant string) chan cloud.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := make(chan cloud.Event, 4096)
	s.listeners[events] = tenant
	return events
}

func (s *Server) leave(events chan cloud.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, events)
}

func (s *Server) publishLocked(tenant string, e cloud.Event) {
	for events, t := range s.listeners {
		if t != tenant {
			continue
		}
		select {
		case events <- e:
		default:
			delete(s.listeners, events)
			close(events)
		}
	}
}

// events serves a stream of server-sent events. If the cloud has faults or
// chaos, it cuts each after a while.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if s.chance(s.Config.Faults) {
		answer(w, nil, &cloud.Error{Status: 503, Message: "no stream just now"})
		return
	}
	events := s.join(tenant(r))
	defer s.leave(events)
	ctx := r.Context()
	if s.Config.Faults > 0 || s.Config.Chaos > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.about(90*time.Second))
		defer cancel()
	}
	alive := time.NewTicker(10 * time.Second)
	defer alive.Stop()

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	stream := http.NewResponseController(w)
	text := `data: {"what": "hello"}`
	for {
		_, err := fmt.Fprintf(w, "%s\n\n", text)
		if err == nil && len(events) == 0 {
			err = stream.Flush()
		}
		if err != nil {
			return
		}
		select {
		case event, ok := <-events:
			if !ok {
				return
			}
			data, _ := json.Marshal(event) // which has nothing that JSON cannot say
			text = "data: " + string(data)
		case <-alive.C:
			text = ": still here"
		case <-ctx.Done():
			return
		}
	}
}
