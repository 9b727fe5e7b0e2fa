// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
)

// silence is how long a stream may say nothing. The cloud sends a comment more
// often than that, so a longer silence means that the connection is dead.
const silence = 30 * time.Second

var errSilence = errors.New("event stream: nothing came for " + silence.String())

// Events streams the changes of the tenant's assets as they happen. The last
// pair is the error that ended the stream; it does not reconnect.
func (c *Client) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		watchdog := time.AfterFunc(silence, func() { cancel(errSilence) })
		defer watchdog.Stop()

		resp, err := c.send(ctx, "GET", "/v1/events", http.Header{"Accept": {"text/event-stream"}}, nil)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer resp.Body.Close()

		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			watchdog.Reset(silence)
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var event Event
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				yield(Event{}, fmt.Errorf("event stream: %w", err))
				return
			}
			if !yield(event, nil) {
				return
			}
		}
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case lines.Err() != nil:
			err = fmt.Errorf("event stream: %w", lines.Err())
		default:
			err = errors.New("event stream: closed by the cloud")
		}
		yield(Event{}, err)
	}
}
