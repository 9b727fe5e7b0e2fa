// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/lease"
	"github.com/reconkernel/reconcile/adapters/nats/internal/names"
)

// root is what the subjects of the stream have in front of those of a wire. A server
// keeps $KV.> apart between JetStream domains, as it does the API, and maps it for a
// client of another domain: so a record goes into the stream that is read. Subjects of
// other names pass leaf nodes, and each stream that listens to them stores them, also
// one of the same name in another domain. No bucket has an "=" in its name.
const root = "$KV.queue="

// unrooted undoes root.
func unrooted(subject string) string { return strings.TrimPrefix(subject, root) }

// A jetWire is the wire to a server.
type jetWire struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	s       jetstream.Stream
	name    string // of the stream
	stream  jetstream.StreamConfig
	workers jetstream.ConsumerConfig
	inbox   string        // of what the consumer sends
	api     string        // the prefix of the API's subjects
	root    string        // what subjects of records have in front when they are published
	timeout time.Duration // of one request
}

func newWire(js jetstream.JetStream, s jetstream.Stream, cfg Config, timeout time.Duration) *jetWire {
	nc := js.Conn()
	return &jetWire{
		nc: nc, js: js, s: s, name: cfg.Name, stream: streamConfig(cfg, ""), workers: consumerConfig(cfg), inbox: nc.NewInbox(),
		api: names.API(js), root: names.Publish(js, root), timeout: timeout,
	}
}

func (w *jetWire) patient() wire {
	p := *w
	p.timeout = slowAnswer
	return &p
}

func (w *jetWire) largest() int {
	most := int(w.nc.MaxPayload())
	if n := int(w.s.CachedInfo().Config.MaxMsgSize); n > 0 {
		most = min(most, n)
	}
	return most
}

func (w *jetWire) connected() bool { return w.nc.IsConnected() }

func (w *jetWire) outages() uint64 { return w.nc.Stats().Reconnects }

func (w *jetWire) closed() error {
	if w.nc.IsClosed() {
		return fmt.Errorf("natsadapter: %w", names.Closed(w.nc))
	}
	return nil
}

func (w *jetWire) connects() (again chan nats.Status, stop func()) {
	again = w.nc.StatusChanged(nats.CONNECTED)
	return again, func() { w.nc.RemoveStatusListener(again) }
}

func (w *jetWire) publish(ctx context.Context, subject string, last uint64, data []byte) (uint64, error) {
	return w.store(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(last))
}

func (w *jetWire) publishBriefly(ctx context.Context, subject string, last uint64, data []byte) (uint64, error) {
	return w.store(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(last), jetstream.WithMsgTTL(time.Minute))
}

func (w *jetWire) publishIf(ctx context.Context, subject, other string, last uint64) error {
	_, err := w.store(ctx, subject, nil, jetstream.WithExpectLastSequenceForSubject(last, root+other))
	return err
}

func (w *jetWire) store(ctx context.Context, subject string, data []byte, opts ...jetstream.PublishOpt) (uint64, error) {
	subject = w.root + subject
	ack, err := request(ctx, w, subject, func(ctx context.Context) (*jetstream.PubAck, error) {
		return w.js.Publish(ctx, subject, data, append(opts, jetstream.WithExpectStream(w.name))...)
	})
	if err == nil {
		return ack.Sequence, nil
	}
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		switch refused.ErrorCode {
		// The second is said while another message for the subject is on its way.
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return 0, errConflict
		}
	}
	return 0, err
}

// request makes a request by publishing to a subject.
func request[R any](ctx context.Context, w *jetWire, subject string, do func(context.Context) (R, error)) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return unlessDenied(ctx, w.nc, func(denial string) bool { return strings.Contains(denial, strconv.Quote(subject)) }, do)
}

// unlessDenied makes a request, and ends it at once if the server denies what it is
// about. The server answers no such request: it says so beside, and the connection
// keeps what was said last. So the connection is asked often: once the request has timed
// out, another denial has taken the place of this one, if much is denied. The one error
// handler that a connection has is the user's.
func unlessDenied[R any](ctx context.Context, nc *nats.Conn, about func(denial string) bool, do func(context.Context) (R, error)) (R, error) {
	const often = 50 * time.Millisecond
	before := nc.LastError()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var look func()
	look = func() {
		switch err := nc.LastError(); {
		case ctx.Err() != nil:
		case err != before && errors.Is(err, nats.ErrPermissionViolation) && about(err.Error()):
			cancel(err)
		default:
			time.AfterFunc(often, look)
		}
	}
	defer time.AfterFunc(often, look).Stop()
	r, err := do(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, nats.ErrPermissionViolation) {
		err = cause
	}
	return r, err
}

func (w *jetWire) epoch(ctx context.Context) (uint64, error) {
	info, err := w.info(ctx)
	if err != nil {
		return 0, err
	}
	return lease.Epoch(info.Created), nil
}

func (w *jetWire) info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.s.Info(ctx, opts...)
}

func (w *jetWire) last(ctx context.Context, subject string) (stored, error) {
	m, err := request(ctx, w, w.api+"STREAM.MSG.GET."+w.name, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return w.s.GetLastMsgForSubject(ctx, root+subject)
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return stored{}, errNoRecord
	case err != nil:
		return stored{}, err
	}
	return stored{unrooted(m.Subject), m.Sequence, m.Data}, nil
}

func (w *jetWire) subjects(ctx context.Context, filter string) ([]string, error) {
	info, err := w.info(ctx, jetstream.WithSubjectFilter(root+filter))
	if err != nil {
		return nil, err
	}
	var subjects []string
	for subject := range info.State.Subjects {
		subjects = append(subjects, unrooted(subject))
	}
	return subjects, nil
}

func (w *jetWire) purge(ctx context.Context, subject string) error {
	_, err := request(ctx, w, w.api+"STREAM.PURGE."+w.name, func(ctx context.Context) (int, error) {
		return 0, w.s.Purge(ctx, jetstream.WithPurgeSubject(root+subject))
	})
	return err
}

func (w *jetWire) room(ctx context.Context, subject string) (free int64, there bool, err error) {
	info, err := w.info(ctx, jetstream.WithSubjectFilter(root+subject))
	if err != nil {
		return 0, false, err
	}
	if free = math.MaxInt64; info.Config.MaxBytes > 0 {
		free = info.Config.MaxBytes - int64(info.State.Bytes)
	}
	return free, len(info.State.Subjects) > 0, nil
}

// What stays ends by its TTL.
func (w *jetWire) drop(seq uint64) {
	w.nc.Publish(w.api+"STREAM.MSG.DELETE."+w.name, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq))
}

func (w *jetWire) consumer(ctx context.Context) (progress, error) {
	c, err := w.js.Consumer(ctx, w.name, consumerName)
	if err != nil {
		return progress{}, err
	}
	i := c.CachedInfo()
	return progress{int(i.NumPending), i.Delivered.Stream, i.AckFloor.Stream}, nil
}

func (w *jetWire) wrongSettings(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	s, err := w.s.Info(ctx)
	if err != nil {
		return nil, err
	}
	wrong := wrongStreamSettings(s, w.stream)
	if have := s.Config.Metadata[protocolKey]; have != protocol {
		wrong = append(wrong, fmt.Sprintf("Metadata[%q] is %q, want %q", protocolKey, have, protocol))
	}
	c, err := w.js.Consumer(ctx, w.name, consumerName)
	if err != nil {
		return wrong, err
	}
	wrong = append(wrong, wrongConsumerSettings(c.CachedInfo(), w.workers)...)
	if c.CachedInfo().Paused {
		wrong = append(wrong, "the consumer is paused")
	}
	return wrong, nil
}

func (w *jetWire) createConsumer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	_, err := w.js.CreateConsumer(ctx, w.name, w.workers)
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return nil
	}
	return err
}

func (w *jetWire) subscribe(receive func(arrival)) (unsubscribe func(), err error) {
	sub, err := w.nc.Subscribe(w.inbox+".*", func(m *nats.Msg) { receive(arrived(m)) })
	if err != nil {
		return nil, err
	}
	sub.SetPendingLimits(-1, -1) // no more comes than was asked for
	return func() { sub.Unsubscribe() }, nil
}

// arrived reads what the consumer sends.
func arrived(m *nats.Msg) arrival {
	d := arrival{reply: m.Reply}
	if len(m.Data) == 0 {
		d.status = m.Header.Get("Status")
	}
	if d.status != "" {
		d.text = m.Header.Get("Description")
		d.id, _ = strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 10, 64)
		d.left, _ = strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		return d
	}
	meta, err := m.Metadata()
	if err != nil {
		d.err = err
		return d
	}
	d.stored = stored{unrooted(m.Subject), meta.Sequence.Stream, m.Data}
	return d
}

func (w *jetWire) pull(id uint64, n int) {
	w.nc.PublishRequest(
		w.api+"CONSUMER.MSG.NEXT."+w.name+"."+consumerName,
		w.inbox+"."+strconv.FormatUint(id, 10),
		fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, n, pullExpires, pullHeartbeat))
}

func (w *jetWire) answer(d arrival, what string) { w.nc.Publish(d.reply, []byte(what)) }

var errLost = errors.New("natsadapter: reading all records: the connection was lost, and some did not arrive")

func (w *jetWire) scan(ctx context.Context, fn func(m stored, at time.Time)) (moved bool, err error) {
	c, err := w.js.CreateConsumer(ctx, w.name, jetstream.ConsumerConfig{
		Description:       "Reads all records once",
		FilterSubject:     root + w.name + ".i.>",
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return false, err
	}
	defer w.js.DeleteConsumer(context.WithoutCancel(ctx), w.name, c.CachedInfo().Name)
	batch, came, read := uint64(32), uint64(0), uint64(0)
	for left := c.CachedInfo().NumPending; left > 0; {
		// A server that dies meanwhile forgets this consumer: then there are no
		// heartbeats, and that is an error.
		msgs, err := c.Fetch(int(min(batch, left)), jetstream.FetchMaxWait(2*time.Second), jetstream.FetchHeartbeat(500*time.Millisecond))
		if err != nil {
			return false, err
		}
		some := false
		var first time.Time // when the first message came, so that the round trip does not count
		for m := range msgs.Messages() {
			if !some {
				first = time.Now()
			}
			meta, err := m.Metadata()
			if err != nil {
				return false, err
			}
			if came++; meta.Sequence.Consumer != came {
				return false, errLost
			}
			some, left, read = true, meta.NumPending, meta.Sequence.Stream
			fn(stored{unrooted(m.Subject()), meta.Sequence.Stream, m.Data()}, meta.Timestamp)
		}
		if err := msgs.Error(); err != nil {
			return false, err
		}
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
		if !some {
			break // the rest was deleted meanwhile
		}
		// The answer to a beat waits behind the messages of a batch.
		switch took := time.Since(first); {
		case took > w.timeout/4:
			batch = max(1, batch/2)
		case took < w.timeout/16:
			batch = min(maxBatch, 2*batch)
		}
	}
	// The server counts too few messages for a consumer while some are replaced, and for as
	// long as the consumer lasts if that was so as it was created. Its stream is exact.
	for end := uint64(0); ; {
		m, err := request(ctx, w, w.api+"STREAM.MSG.GET."+w.name, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return w.s.GetMsg(ctx, read+1, jetstream.WithGetMsgSubject(root+w.name+".i.>"))
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, nil
		}
		if err == nil && end == 0 {
			var info *jetstream.StreamInfo
			if info, err = w.info(ctx); err == nil {
				end = info.State.LastSeq
			}
		}
		if err != nil || m.Sequence > end { // what is written again and again is always ahead
			return true, err
		}
		read = m.Sequence
		fn(stored{unrooted(m.Subject), m.Sequence, m.Data}, m.Time)
	}
}

// maxBatch is the largest number of messages that one request asks for. A server may have a
// limit for all consumers.
const maxBatch = 500

// consumerName is the name of the one durable consumer.
const consumerName = "workers"

func consumerConfig(cfg Config) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       consumerName,
		Description:   "Hands records to the processes that take items",
		FilterSubject: root + cfg.Name + ".i.>",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       cfg.Lease,
		MaxDeliver:    -1,
		MaxAckPending: -1,
		MaxWaiting:    8192,
	}
}
