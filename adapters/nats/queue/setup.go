// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

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

	"github.com/reconkernel/reconcile/adapters/nats/internal/names"
)

// This file creates and checks the stream and the consumer of a [Queue].

// A version of a server; what is no number is old.
type version [3]int

func parseVersion(s string) (v version) {
	fmt.Sscanf(strings.TrimPrefix(s, "v"), "%d.%d.%d", &v[0], &v[1], &v[2])
	return v
}

func (v version) atLeast(o version) bool { return slices.Compare(v[:], o[:]) >= 0 }

// Older servers check the sequence that a replicated message expects without
// those that are on their way.
var oldest = version{2, 12, 0}

// streamNotCreated is the code of a server that cannot make the files of a stream.
const streamNotCreated jetstream.ErrorCode = 10049

// What the metadata of a stream says of its queue.
const (
	protocolKey = "reconcile.protocol"
	itemKey     = "reconcile.item"

	// protocol is what processes write into the stream and read from it. It changes
	// when those before and after a change must not share a queue.
	protocol = "1"
)

// setUp creates the stream and the consumer, or checks those that are there.
func setUp(ctx context.Context, js jetstream.JetStream, cfg Config, shape string) (jetstream.Stream, error) {
	server, err := serverVersion(ctx, js.Conn())
	if err != nil {
		return nil, fmt.Errorf("natsadapter: stream %s: waiting for a server: %w", cfg.Name, err)
	}
	v := parseVersion(server)
	if !v.atLeast(oldest) {
		return nil, fmt.Errorf("natsadapter: the server is nats-server %s, and a queue needs %d.%d.%d or later",
			server, oldest[0], oldest[1], oldest[2])
	}
	want := streamConfig(cfg, shape)
	// Looked for first, as a full server creates none.
	findStream := func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, cfg.Name) }
	s, err := answer(ctx, js.Conn(), findStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = answer(ctx, js.Conn(), func(ctx context.Context) (jetstream.Stream, error) { return js.CreateStream(ctx, want) })
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // since a moment ago
		s, err = answer(ctx, js.Conn(), findStream)
	}
	if err != nil {
		return nil, fmt.Errorf("natsadapter: stream %s: %w", cfg.Name, err)
	}
	if wrong := wrongStreamSettings(s.CachedInfo(), want); len(wrong) > 0 {
		return nil, fmt.Errorf("natsadapter: stream %s is no stream of a queue like this: %s",
			cfg.Name, strings.Join(wrong, "; "))
	}
	if err := checkMetadata(s.CachedInfo().Config, want.Metadata); err != nil {
		return nil, err
	}
	findConsumer := func(ctx context.Context) (jetstream.Consumer, error) { return js.Consumer(ctx, cfg.Name, consumerName) }
	c, err := answer(ctx, js.Conn(), findConsumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = answer(ctx, js.Conn(), func(ctx context.Context) (jetstream.Consumer, error) {
			return js.CreateConsumer(ctx, cfg.Name, consumerConfig(cfg))
		})
	}
	if errors.Is(err, jetstream.ErrConsumerExists) {
		c, err = answer(ctx, js.Conn(), findConsumer)
	}
	if err != nil {
		return nil, fmt.Errorf("natsadapter: consumer %s of stream %s: %w", consumerName, cfg.Name, err)
	}
	if wrong := wrongConsumerSettings(c.CachedInfo(), consumerConfig(cfg)); len(wrong) > 0 {
		return nil, fmt.Errorf("natsadapter: consumer %s of stream %s is not as this queue needs it: %s",
			consumerName, cfg.Name, strings.Join(wrong, "; "))
	}
	return s, nil
}

// serverVersion waits for the connection and returns the version of its server, of which
// nats.go knows nothing while it is not connected.
func serverVersion(ctx context.Context, nc *nats.Conn) (string, error) {
	for {
		err := nc.FlushWithContext(ctx) // it ends when the connection is lost as well
		switch {
		case err == nil:
			if v := nc.ConnectedServerVersion(); v != "" {
				return v, nil
			}
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case nc == nil:
			return "", err
		case nc.IsClosed():
			return "", names.Closed(nc)
		}
	}
}

// checkMetadata checks what the metadata of a stream says of its queue.
func checkMetadata(have jetstream.StreamConfig, want map[string]string) error {
	switch is := have.Metadata[protocolKey]; {
	case is == "":
		return fmt.Errorf("natsadapter: stream %s does not say in its metadata that it is one of a queue: delete it, and New creates it, or take another Config.Name", have.Name)
	case is != want[protocolKey]:
		return fmt.Errorf("natsadapter: stream %s is used by a version of this package that speaks protocol %s, and this one speaks %s",
			have.Name, is, want[protocolKey])
	}
	if is := have.Metadata[itemKey]; is != want[itemKey] {
		return fmt.Errorf("natsadapter: stream %s has items %s, and this queue has items %s: drain it, or take another Config.Name",
			have.Name, is, want[itemKey])
	}
	return nil
}

// answer makes a request until it is answered or ctx is done. Each attempt has twice
// the time of the one before. A cluster does not answer a request about a stream or
// a consumer that is being created. A server that is still deleting a stream creates
// none of that name, but may have other reasons: it is asked three times. So it is if no
// server with JetStream answers, as one that restarts does not, for some seconds. A
// permission that is missing is an error at once; also one that somebody else misses
// on the same connection meanwhile.
func answer[R any](ctx context.Context, nc *nats.Conn, request func(context.Context) (R, error)) (R, error) {
	for limit := time.Second; ; limit *= 2 {
		once, cancel := context.WithTimeout(ctx, limit)
		r, err := unlessDenied(once, nc, func(string) bool { return true }, request)
		api := new(jetstream.APIError)
		soon := errors.As(err, &api) && api.ErrorCode == streamNotCreated ||
			errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, nats.ErrNoResponders)
		if soon && limit < 4*time.Second {
			<-once.Done()
		}
		again := err != nil && once.Err() != nil && ctx.Err() == nil
		cancel()
		if !again {
			return r, err
		}
	}
}

func streamConfig(cfg Config, shape string) jetstream.StreamConfig {
	maxBytes := int64(-1)
	if cfg.MaxBytes > 0 {
		maxBytes = cfg.MaxBytes
	}
	return jetstream.StreamConfig{
		Name:              cfg.Name,
		Description:       "A queue of reconcile",
		Subjects:          []string{root + cfg.Name + ".>"},
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardNew, // also without a limit: somebody may set one later
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxBytes:          maxBytes,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Storage:           jetstream.FileStorage,
		Replicas:          cfg.Replicas,
		AllowMsgTTL:       true,
		AllowDirect:       false, // followers would answer with what was
		Metadata:          map[string]string{protocolKey: protocol, itemKey: shape},
	}
}

// wrongStreamSettings says which fields of a stream a queue cannot live with.
func wrongStreamSettings(have *jetstream.StreamInfo, want jetstream.StreamConfig) (wrong []string) {
	return compare(have.Config, want, "Subjects", "SubjectTransform", "Sources", "Retention", "Discard",
		"DiscardNewPerSubject", "MaxMsgsPerSubject", "MaxMsgs", "MaxBytes", "MaxAge", "Storage",
		"Replicas", "NoAck", "DenyDelete", "DenyPurge", "Sealed", "AllowDirect",
		"AllowMsgTTL (which a server before 2.11 drops)")
}

// wrongConsumerSettings says which fields of its consumer a queue cannot live with.
func wrongConsumerSettings(have *jetstream.ConsumerInfo, want jetstream.ConsumerConfig) (wrong []string) {
	is := have.Config
	if is.MaxRequestBatch >= maxBatch { // a server sets its own limit, if it has one
		is.MaxRequestBatch = 0
	}
	return compare(is, want, "FilterSubject", "FilterSubjects", "DeliverPolicy", "AckPolicy",
		"AckWait (which is Config.Lease)", "BackOff", "MaxDeliver", "MaxAckPending", "HeadersOnly",
		"InactiveThreshold", fmt.Sprintf("MaxRequestBatch (for which %d or more is fine too)", maxBatch),
		"MaxRequestExpires", "MaxRequestMaxBytes")
}

// compare says which fields of two configurations differ. What follows the name
// of a field says more about it.
func compare(have, want any, fields ...string) (wrong []string) {
	for _, field := range fields {
		name, _, _ := strings.Cut(field, " ")
		h := reflect.ValueOf(have).FieldByName(name).Interface()
		w := reflect.ValueOf(want).FieldByName(name).Interface()
		if !reflect.DeepEqual(h, w) {
			wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", field, h, w))
		}
	}
	return wrong
}
