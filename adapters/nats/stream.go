// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
)

// Consumer returns a Feeder that enqueues an item for each message of a
// JetStream stream. It reads through the durable pull consumer that config
// names; if the stream has none of that name, also later, it creates it as
// config says. Processes that name the same consumer share its messages.
//
// A message is acknowledged only when the queue has taken its item. If the queue
// has a method EnqueueContext(context.Context, T) error, taken means that it
// returned nil; after an error the message comes again. For another queue it
// means that Enqueue returned: what a queue in memory holds is lost with the
// process, so that a restart needs a list of all there is, from
// [reconcile.Poller]. Map and Filter of the kernel hide EnqueueContext.
//
// Key makes an item of a message, or returns false if there is none to run; the
// message is then acknowledged and feeds nothing. Key is called from one
// goroutine at a time. After a panic in it the message is not acknowledged, and comes
// again after AckWait. The panics of its 1st, 2nd, 4th … delivery are logged. It counts
// for MaxAckPending meanwhile: with 1, nothing else comes.
//
// The Feeder survives lost connections, restarts of the server, and a stream or
// a consumer that is deleted and created again, or that does not exist yet. A
// message may come more than once. On a slow or long link it waits longer for
// heartbeats each time that they are late, up to 30 seconds. When ctx is done it hands
// back at once what it has not enqueued, and returns nil; it returns a
// [reconcile.Terminal] error if an argument is wrong, and an error if the connection is
// closed, or the consumer is of another kind or has a MaxDeliver: each hand-back, also at
// an orderly stop, counts as a delivery, so such a consumer loses messages that nothing
// was wrong with. If EnqueueContext returns [reconcile.ErrClosed] or
// [nats.ErrConnectionClosed], wrapped or not, the Feeder hands back and returns that too.
func Consumer[T comparable](js jetstream.JetStream, stream string, config jetstream.ConsumerConfig, key func(jetstream.Msg) (T, bool)) reconcile.Feeder[T] {
	return func(ctx context.Context, q reconcile.Enqueuer[T]) error {
		if err := checkConsumer(js, stream, config, key == nil); err != nil {
			return reconcile.Terminal(err)
		}
		if err := checkNoPrime(ctx, "Consumer"); err != nil {
			return err
		}
		take := func(_ context.Context, item T) error { q.Enqueue(item); return nil }
		if durable, ok := q.(interface {
			EnqueueContext(ctx context.Context, item T) error
		}); ok {
			take = durable.EnqueueContext
		}
		what := fmt.Sprintf("consumer %s of stream %s", config.Durable, stream)
		handle := func(msg jetstream.Msg) error {
			item, ok, err := try(what, msg.Subject(), func() (T, bool) { return key(msg) })
			if err != nil {
				if rarely(msg) {
					reconcile.Logger(ctx).Error(err.Error())
				}
				return nil // it comes again after AckWait
			}
			if ok {
				if err := take(ctx, item); err != nil {
					if errors.Is(err, reconcile.ErrClosed) || errors.Is(err, nats.ErrConnectionClosed) {
						msg.Nak()
						return permanent{err} // it will never take one
					}
					if ctx.Err() == nil && rarely(msg) {
						reconcile.Logger(ctx).Warn("natsadapter: the queue did not take an item", "from", what, "item", item, "err", err)
					}
					msg.NakWithDelay(lastPause)
					return nil
				}
			}
			msg.Ack() // if this is lost, the message comes again
			return nil
		}
		beat := heartbeat
		return stay(ctx, js.Conn(), what, func(ctx context.Context, r *reader) error {
			consumer, err := openConsumer(ctx, r, js, stream, config)
			if err != nil {
				return err
			}
			r.works()
			err = r.consume(ctx, consumer, beat, handle)
			if errors.Is(err, jetstream.ErrNoHeartbeat) {
				beat = min(2*beat, lastHeartbeat) // they may come late because the link is slow
			}
			return err
		})
	}
}

// rarely reports whether a failure with a message is to be logged: that of the 1st, 2nd,
// 4th … delivery.
func rarely(msg jetstream.Msg) bool {
	meta, err := msg.Metadata()
	return err != nil || meta.NumDelivered&(meta.NumDelivered-1) == 0
}

// longestName is how long a server takes the name of a stream or a consumer to be.
const longestName = 255

func checkConsumer(js jetstream.JetStream, stream string, config jetstream.ConsumerConfig, noKey bool) error {
	switch {
	case js == nil || js.Conn() == nil:
		return errors.New("natsadapter: Consumer needs a JetStream with a connection, got nil")
	case !bucketName.MatchString(stream):
		return fmt.Errorf("natsadapter: Consumer: the stream is named %q, want letters, digits, - and _", stream)
	case !bucketName.MatchString(config.Durable):
		return fmt.Errorf("natsadapter: Consumer: Durable is %q, want letters, digits, - and _", config.Durable)
	case len(stream) > longestName || len(config.Durable) > longestName:
		return fmt.Errorf("natsadapter: Consumer: the names of the stream and of Durable are %d and %d bytes long, want %d at most", len(stream), len(config.Durable), longestName)
	case config.AckPolicy != jetstream.AckExplicitPolicy:
		return fmt.Errorf("natsadapter: Consumer: AckPolicy is %v, want AckExplicitPolicy", config.AckPolicy)
	case config.AckWait < 0 || config.AckWait > 0 && config.AckWait < 100*time.Millisecond:
		return fmt.Errorf("natsadapter: Consumer: AckWait is %v, want 100ms or more, or 0 for the server's 30s", config.AckWait)
	case config.MaxDeliver > 0:
		return fmt.Errorf("natsadapter: Consumer: %w", maxDeliver(config))
	case noKey:
		return fmt.Errorf("natsadapter: Consumer: stream %s needs a key function, got nil", stream)
	}
	return nil
}

// openConsumer returns the consumer as it is, or creates it.
func openConsumer(ctx context.Context, r *reader, js jetstream.JetStream, stream string, config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	var consumer jetstream.Consumer
	err := r.ask(ctx, func(ctx context.Context) (err error) {
		consumer, err = js.Consumer(ctx, stream, config.Durable)
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		err = r.ask(ctx, func(ctx context.Context) (err error) {
			consumer, err = js.CreateConsumer(ctx, stream, config)
			return err
		})
	}
	api := (*jetstream.APIError)(nil)
	switch {
	case errors.As(err, &api) && api.ErrorCode == overlap:
		return nil, permanent{reconcile.Terminal(fmt.Errorf("of its FilterSubjects %q one covers another: %w", config.FilterSubjects, err))}
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		return nil, permanent{errors.New("it pushes, want one that is pulled from")}
	case err != nil:
		return nil, err
	}
	have := consumer.CachedInfo().Config
	if have.AckPolicy != jetstream.AckExplicitPolicy {
		return nil, permanent{fmt.Errorf("its AckPolicy is %v, want AckExplicitPolicy", have.AckPolicy)}
	}
	if have.MaxDeliver > 0 {
		return nil, permanent{fmt.Errorf("its %w", maxDeliver(have))}
	}
	return consumer, nil
}

func maxDeliver(config jetstream.ConsumerConfig) error {
	return fmt.Errorf("MaxDeliver is %d, want 0 or -1 for no limit: a message that is handed back at a stop counts as delivered", config.MaxDeliver)
}

// lastHeartbeat is the longest that a pull of 30s may have.
const lastHeartbeat = 15 * time.Second

// consume hands the messages of a consumer to handle, one by one, until handle
// returns an error, something is wrong, or ctx is done; it then returns nil.
// Messages that are on their way then are given back at once, unless there is no
// connection. Without heartbeats, which may be late, they are handled.
func (r *reader) consume(ctx context.Context, consumer jetstream.Consumer, beat time.Duration, handle func(jetstream.Msg) error) error {
	// Not more bytes than a slow link carries before the server sends them again.
	limit := max(4<<20, 2*int(r.nc.MaxPayload()))
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(batchSize, limit), jetstream.PullHeartbeat(beat))
	if err != nil {
		return err
	}
	err = forEach(ctx, messages, handle)
	if !r.nc.IsConnected() {
		messages.Stop()
		return err
	}
	messages.Drain() // of what the server sent before it heard of that
	for late := errors.Is(err, jetstream.ErrNoHeartbeat); late; {
		rest := forEach(ctx, messages, handle)
		if late = errors.Is(rest, jetstream.ErrNoHeartbeat); !late && !errors.Is(rest, jetstream.ErrMsgIteratorClosed) {
			err = rest
		}
	}
	for {
		msg, closed := messages.Next(jetstream.NextMaxWait(lastPause))
		if closed != nil {
			messages.Stop()
			return err
		}
		msg.Nak()
	}
}

// forEach hands messages to handle until there are no more or ctx is done; it
// then returns nil.
func forEach(ctx context.Context, messages jetstream.MessagesContext, handle func(jetstream.Msg) error) error {
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			if err == nil {
				msg.Nak()
			}
			return nil
		case err != nil:
			return err
		}
		if err := handle(msg); err != nil {
			return err
		}
	}
}
