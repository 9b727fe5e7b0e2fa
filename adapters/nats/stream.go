// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
// The Feeder asks for no more than the consumer allows: MaxRequestBatch,
// MaxRequestExpires, MaxRequestMaxBytes and MaxWaiting. While it waits for something else
// than messages, such as the end of a pause or an acknowledgement by another process, it
// logs what for. It does not change a consumer that is there: it logs the fields that config
// sets and that differ.
//
// The Feeder survives lost connections, restarts of the server, and a stream or
// a consumer that is deleted and created again, or that does not exist yet. A
// message may come more than once. On a slow or long link it waits longer for
// heartbeats each time that they are late, up to 30 seconds. When ctx is done it hands
// back at once what it has not enqueued, and returns nil; it returns a
// [reconcile.Terminal] error if an argument is wrong, and an error if the connection is
// closed, or the consumer is of another kind, has a MaxRequestExpires below a second, or has
// a MaxDeliver: each hand-back, also at an orderly stop, counts as a delivery, so such a
// consumer loses good messages. If EnqueueContext returns [reconcile.ErrClosed] or
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
		beat, size := heartbeat, max(4<<20, 2*int(js.Conn().MaxPayload()))
		shown := ""
		return stay(ctx, js.Conn(), what, func(ctx context.Context, r *reader) error {
			consumer, err := openConsumer(ctx, r, js, stream, config)
			if err != nil {
				return err
			}
			if d := differences(consumer.CachedInfo().Config, config); d != "" && d != shown {
				shown = d
				reconcile.Logger(ctx).Warn("natsadapter: the consumer is not as config says, and is used as it is", "from", what, "differences", d)
			}
			err = r.consume(ctx, consumer, beat, size, handle)
			switch {
			case errors.Is(err, jetstream.ErrNoHeartbeat):
				beat = min(2*beat, lastHeartbeat) // they may come late because the link is slow
			case errors.Is(err, errTooLarge):
				size *= 2
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
	case len(config.PriorityGroups) > 0:
		return fmt.Errorf("natsadapter: Consumer: %w", priorityGroups(config))
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
	switch {
	case have.MaxDeliver > 0:
		return nil, permanent{fmt.Errorf("its %w", maxDeliver(have))}
	case len(have.PriorityGroups) > 0:
		return nil, permanent{fmt.Errorf("its %w", priorityGroups(have))}
	case have.MaxRequestExpires > 0 && have.MaxRequestExpires < time.Second:
		return nil, permanent{fmt.Errorf("its MaxRequestExpires is %v, want 1s or more, or 0 for no limit", have.MaxRequestExpires)}
	}
	return consumer, nil
}

func maxDeliver(config jetstream.ConsumerConfig) error {
	return fmt.Errorf("MaxDeliver is %d, want 0 or -1 for no limit: a message that is handed back at a stop counts as delivered", config.MaxDeliver)
}

func priorityGroups(config jetstream.ConsumerConfig) error {
	return fmt.Errorf("PriorityGroups are %q, want none: to read in one process at a time, use package elect", config.PriorityGroups)
}

// differences returns the fields of a consumer that want sets and that are not so. A
// negative number sets a field to no limit.
func differences(have, want jetstream.ConsumerConfig) string {
	have.FilterSubjects, have.FilterSubject = filters(have), ""
	want.FilterSubjects, want.FilterSubject = filters(want), ""
	want.Name, want.Durable, want.PauseUntil = "", "", nil
	if len(want.BackOff) > 0 {
		want.AckWait = 0 // the server takes the first of BackOff
	}
	if want.MaxWaiting < 0 {
		want.MaxWaiting = 0 // the server's default
	}
	if want.OptStartTime != nil {
		at := want.OptStartTime.UTC().Round(0)
		want.OptStartTime = &at
	}
	var all []string
	h, w := reflect.ValueOf(have), reflect.ValueOf(want)
	for i := range w.NumField() {
		is, wanted := h.Field(i), w.Field(i)
		same := reflect.DeepEqual(is.Interface(), wanted.Interface())
		switch name := w.Type().Field(i).Name; {
		case same, wanted.IsZero(), wanted.CanInt() && wanted.Int() < 0 && is.Int() <= 0:
		case name == "Metadata": // the server adds some
			for k, v := range want.Metadata {
				if have.Metadata[k] != v {
					all = append(all, fmt.Sprintf("Metadata[%q] is %q, want %q", k, have.Metadata[k], v))
				}
			}
		default:
			all = append(all, fmt.Sprintf("%s is %v, want %v", name, reflect.Indirect(is), reflect.Indirect(wanted)))
		}
	}
	return strings.Join(all, "; ")
}

func filters(config jetstream.ConsumerConfig) []string {
	all := slices.Clone(config.FilterSubjects)
	if config.FilterSubject != "" {
		all = append(all, config.FilterSubject)
	}
	slices.Sort(all)
	return all
}

// lastHeartbeat is the longest that a pull of 30s may have.
const lastHeartbeat = 15 * time.Second

var (
	errTooLarge = errors.New("messages are pending and none is delivered: the next one may be larger than what a request asks for")
	errChanged  = errors.New("the configuration of the consumer was changed")
)

// A pull is how the messages of a consumer are asked for.
type pull struct {
	consumer jetstream.Consumer
	beat     time.Duration // of the heartbeats
	options  []jetstream.PullMessagesOpt
}

// newPull asks for no more than the consumer allows, and not for more bytes than a slow link
// carries before the server sends them again.
func (r *reader) newPull(consumer jetstream.Consumer, beat time.Duration, size int) *pull {
	config := consumer.CachedInfo().Config
	batch := batchSize
	if config.MaxRequestBatch > 0 {
		batch = min(batch, config.MaxRequestBatch)
	}
	var amount jetstream.PullMessagesOpt
	if limit := config.MaxRequestMaxBytes; limit > 0 && limit < size {
		// As many as fit if all are large. For a request that names the limit, a message
		// beyond it would never come.
		batch = max(1, min(batch, limit/int(r.nc.MaxPayload())))
		amount = jetstream.PullMaxMessages(batch)
	} else {
		amount = jetstream.PullMaxMessagesWithBytesLimit(batch, size)
	}
	expires := jetstream.DefaultExpires
	if config.MaxRequestExpires > 0 {
		expires = min(expires, config.MaxRequestExpires)
	}
	threshold := (batch + 1) / 2
	if config.MaxWaiting < batchSize {
		threshold = 1 // one request at a time
	}
	beat = min(beat, expires/2)
	return &pull{consumer, beat, []jetstream.PullMessagesOpt{
		amount, jetstream.PullThresholdMessages(threshold), jetstream.PullExpiry(expires), jetstream.PullHeartbeat(beat),
	}}
}

// consume hands the messages of a consumer to handle, one by one, until handle
// returns an error, something is wrong, or ctx is done; it then returns nil.
// Messages that are on their way then are given back at once, unless there is no
// connection. Without heartbeats, which may be late, they are handled.
func (r *reader) consume(ctx context.Context, consumer jetstream.Consumer, beat time.Duration, size int, handle func(jetstream.Msg) error) error {
	p := r.newPull(consumer, beat, size)
	messages, err := consumer.Messages(p.options...)
	if err != nil {
		return err
	}
	err = r.forEach(ctx, p, messages, handle)
	if !r.nc.IsConnected() {
		messages.Stop()
		return err
	}
	messages.Drain() // of what the server sent before it heard of that
	if errors.Is(err, jetstream.ErrNoHeartbeat) {
		for late := true; late; {
			rest := r.forEach(ctx, p, messages, handle)
			if late = errors.Is(rest, jetstream.ErrNoHeartbeat); !late && !errors.Is(rest, jetstream.ErrMsgIteratorClosed) {
				err = rest
			}
		}
		if info, asked := r.info(ctx, consumer); asked == nil && info.NumWaiting >= info.Config.MaxWaiting {
			err = fmt.Errorf("its MaxWaiting of %d is reached, by requests of other processes: %w", info.Config.MaxWaiting, err)
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
// then returns nil. When none comes for a while that is longer than that in which a missing
// heartbeat is noticed, the server is asked why.
func (r *reader) forEach(ctx context.Context, p *pull, messages jetstream.MessagesContext, handle func(jetstream.Msg) error) error {
	first := 3 * p.beat
	patience, before := first, p.consumer.CachedInfo()
	for {
		waiting, cancel := context.WithTimeout(ctx, patience)
		msg, err := messages.Next(jetstream.NextContext(waiting))
		quiet := waiting.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				msg.Nak()
			}
			return nil
		case err != nil && quiet:
			info, err := r.info(ctx, p.consumer)
			if err == nil {
				err = stuck(before, info)
			}
			if err != nil {
				return err
			}
			if why := blocked(info); why != nil {
				r.waits(why)
			} else {
				r.works()
			}
			patience, before = min(2*patience, time.Minute), info
			continue
		case err != nil:
			return err
		}
		r.works()
		patience = max(first, 10*time.Second)
		if err := handle(msg); err != nil {
			return err
		}
	}
}

func (r *reader) info(ctx context.Context, consumer jetstream.Consumer) (info *jetstream.ConsumerInfo, err error) {
	err = r.ask(ctx, func(ctx context.Context) (err error) {
		info, err = consumer.Info(ctx)
		return err
	})
	return info, err
}

// stuck returns why it is of no use to go on waiting, or nil.
func stuck(before, now *jetstream.ConsumerInfo) error {
	switch {
	case differences(before.Config, now.Config) != "" || differences(now.Config, before.Config) != "":
		return errChanged
	case blocked(now) == nil && before.NumPending > 0 && now.NumPending > 0 && before.Delivered.Consumer == now.Delivered.Consumer:
		return errTooLarge
	}
	return nil
}

// blocked returns why the server delivers nothing, or nil.
func blocked(info *jetstream.ConsumerInfo) error {
	switch most := info.Config.MaxAckPending; {
	case info.Paused:
		return fmt.Errorf("it is paused for another %v: nats consumer resume %s %s ends that", info.PauseRemaining.Round(time.Second), info.Stream, info.Name)
	case most > 0 && info.NumAckPending >= most && info.NumPending > 0:
		return fmt.Errorf("its MaxAckPending of %d is reached: another process has the messages, or they come again after its AckWait of %v", most, info.Config.AckWait)
	}
	return nil
}
