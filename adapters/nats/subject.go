// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/names"
)

// Subject returns a Feeder that enqueues an item for each message of a subject,
// which may have wildcards. If group is not empty, each message reaches one of
// the processes that name the same group; otherwise it reaches all.
//
// Key makes an item of a message, or returns false if there is none to run. It
// is called from one goroutine at a time; a panic in it is logged and costs that
// message alone.
//
// Messages of plain subjects are not kept by anyone: what is sent while this
// process is not connected is lost. The Feeder listens again by itself when the
// connection is back; let [OnReconnect] trigger a [reconcile.Poller] then, or
// use [Consumer] with a stream. It returns nil when ctx is done, a
// [reconcile.Terminal] error if an argument is wrong, and an error if the connection is
// closed, or the server denies the subscription, also later: it looks each second whether
// it has.
func Subject[T comparable](nc *nats.Conn, subject, group string, key func(*nats.Msg) (T, bool)) reconcile.Feeder[T] {
	return func(ctx context.Context, q reconcile.Enqueuer[T]) error {
		if err := checkSubject(nc, subject, group, key == nil); err != nil {
			return reconcile.Terminal(err)
		}
		if err := checkNoPrime(ctx, "Subject"); err != nil {
			return err
		}
		fail := func(err error) error { return fmt.Errorf("natsadapter: subject %s: %w", subject, err) }
		before := nc.LastError()
		denied := func() error { // the server says so beside, and the connection keeps what was said last
			if err := nc.LastError(); err != before && errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), strconv.Quote(subject)) {
				return err
			}
			return nil
		}
		sub, err := nc.QueueSubscribeSync(subject, group)
		if err != nil {
			return fail(err)
		}
		defer sub.Unsubscribe()
		for {
			waiting, cancel := context.WithTimeout(ctx, time.Second)
			msg, err := sub.NextMsgWithContext(waiting)
			quiet := waiting.Err() != nil
			cancel()
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil && quiet:
				if err := denied(); err != nil {
					return fail(err)
				}
			case errors.Is(err, nats.ErrSlowConsumer):
				dropped, _ := sub.Dropped()
				reconcile.Logger(ctx).Error("natsadapter: messages arrived faster than they were enqueued; some are lost", "subject", subject, "lost", dropped)
			case err != nil:
				return fail(err)
			default:
				if item, ok := guarded(ctx, "subject "+subject, msg.Subject, func() (T, bool) { return key(msg) }); ok {
					q.Enqueue(item)
				}
			}
		}
	}
}

func checkSubject(nc *nats.Conn, subject, group string, noKey bool) error {
	switch {
	case nc == nil:
		return errors.New("natsadapter: Subject needs a connection, got nil")
	case !names.Subject(subject) || strings.ContainsAny(subject, " \t\r\n"):
		return fmt.Errorf("natsadapter: Subject: the subject is %q, want parts with a dot between, without white space, such as \"a.b\", \"a.*\" or \"a.>\"", subject)
	case strings.ContainsAny(group, " \t\r\n"):
		return fmt.Errorf("natsadapter: Subject: the group is %q, want a name without white space, or none", group)
	case noKey:
		return fmt.Errorf("natsadapter: Subject: subject %s needs a key function, got nil", subject)
	}
	return nil
}

// OnReconnect returns a Runner that calls f each time that the connection was
// lost and is back, until ctx is done: with the Trigger of a
// [reconcile.Poller] for f, nothing is missed for longer than the connection is.
// It is for what cannot go on where it was, as [Subject]; the other Feeders
// here do not need it. It returns an error if the connection is closed.
func OnReconnect(nc *nats.Conn, f func()) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		if nc == nil || f == nil {
			return reconcile.Terminal(errors.New("natsadapter: OnReconnect needs a connection and a function, got nil"))
		}
		status := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
		defer nc.RemoveStatusListener(status)
		for !nc.IsClosed() {
			select {
			case <-ctx.Done():
				return nil
			case s := <-status:
				if s == nats.CONNECTED {
					f()
				}
			}
		}
		return fmt.Errorf("natsadapter: OnReconnect: %w", names.Closed(nc))
	})
}
