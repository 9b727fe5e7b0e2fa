// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/supervise"
)

// Listen returns a Feeder that enqueues an item for each notification on a channel. Item makes
// an item of the payload.
//
// PostgreSQL keeps no notification for a connection that is away, so missed is called whenever
// a connection begins to listen, the first one too. It has to make sure that all items are
// looked at, as the Trigger of a [reconcile.Poller] or of a keep.Set does. Missed is also
// called for a payload of which item returns an error; the error is logged.
//
// A connection that is lost is replaced, with back-off, until ctx is done. A connection whose
// other end is gone without a word is found within 30 seconds. Connect is how to reach the
// server itself, not a pooler of transactions: there, LISTEN hears nothing.
//
// The Feeder returns a [reconcile.Terminal] error if an argument is nil, or if the channel's
// name is empty or longer than 63 bytes.
func Listen[T comparable](connect *pgx.ConnConfig, channel string, item func(payload string) (T, error), missed func()) reconcile.Feeder[T] {
	return func(ctx context.Context, q reconcile.Enqueuer[T]) error {
		var err error
		switch {
		case connect == nil:
			err = errors.New("postgres: Listen needs a *pgx.ConnConfig, got nil")
		case channel == "" || len(channel) > 63:
			err = fmt.Errorf("postgres: Listen: the channel is named %q, want 1 to 63 bytes", channel)
		case item == nil || missed == nil:
			err = fmt.Errorf("postgres: Listen on channel %s needs two functions, and one is nil", channel)
		}
		if err != nil {
			return reconcile.Terminal(err)
		}
		bad := 0 // payloads
		dial := func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, connect) }
		return supervise.Restart(retryListen, reconcile.RunFunc(func(ctx context.Context) error {
			return listen(ctx, dial, channel, missed, func(payload string) {
				i, err := item(payload)
				if err == nil {
					q.Enqueue(i)
					return
				}
				if bad++; bad&(bad-1) == 0 {
					reconcile.Logger(ctx).Error("postgres: the payload of a notification is no item", "channel", channel, "payload", payload, "err", err, "so far", bad)
				}
				missed()
			})
		})).Run(ctx)
	}
}

var retryListen = reconcile.Backoff(100*time.Millisecond, 5*time.Second)

// A connection that was silent for so long is asked whether it still is one, and has pingTime
// to answer: together less than 30 seconds.
const (
	silence  = 20 * time.Second
	pingTime = 5 * time.Second
	dialTime = 10 * time.Second
)

// listen calls connected once it listens, and heard for each notification, until ctx is done,
// and returns nil, or until the connection is lost.
func listen(ctx context.Context, dial func(context.Context) (*pgx.Conn, error), channel string, connected func(), heard func(payload string)) (err error) {
	defer func() {
		if ctx.Err() != nil {
			err = nil // a process that was stopped may have met a time-out as well
		}
	}()
	within := func(d time.Duration, f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return f(ctx)
	}
	var conn *pgx.Conn
	err = within(dialTime, func(ctx context.Context) (err error) {
		if conn, err = dial(ctx); err == nil {
			_, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize())
		}
		return err
	})
	if conn != nil {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = conn.Close(ctx)
		}()
	}
	if err != nil {
		return err
	}
	connected()
	for {
		var payload string
		err := within(silence, func(ctx context.Context) error {
			n, err := conn.WaitForNotification(ctx)
			if err == nil {
				payload = n.Payload
			}
			return err
		})
		switch {
		case err == nil:
			heard(payload)
		case ctx.Err() != nil || conn.IsClosed():
			return err
		default:
			if err := within(pingTime, conn.Ping); err != nil {
				return fmt.Errorf("the connection was silent for %v and does not answer: %w", silence, err)
			}
		}
	}
}
