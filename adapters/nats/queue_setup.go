// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file creates and checks the stream and the consumer of a [Queue].

// consumerName is the name of the one durable consumer.
const consumerName = "workers"

// A version of a server.
type version [3]int

func parseVersion(s string) (v version) {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "v"), "-")
	for i, part := range strings.SplitN(s, ".", 3) {
		v[i], _ = strconv.Atoi(part) // what is no number is old
	}
	return v
}

func (v version) atLeast(major, minor, patch int) bool {
	return cmp.Or(cmp.Compare(v[0], major), cmp.Compare(v[1], minor), cmp.Compare(v[2], patch)) >= 0
}

// Older servers check the sequence that a replicated message expects without
// those that are on their way.
var oldest = version{2, 12, 0}

// setUp creates the stream and the consumer, or checks those that are there.
func setUp(ctx context.Context, js jetstream.JetStream, cfg Config) (jetstream.Stream, version, error) {
	server := js.Conn().ConnectedServerVersion()
	v := parseVersion(server)
	if !v.atLeast(oldest[0], oldest[1], oldest[2]) {
		return nil, v, fmt.Errorf("natsadapter: the server is nats-server %s, and a queue needs %d.%d.%d or later",
			server, oldest[0], oldest[1], oldest[2])
	}
	want := streamConfig(cfg)
	// Looked for first, as a full server creates none.
	s, err := js.Stream(ctx, cfg.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, want)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // since a moment ago
		s, err = js.Stream(ctx, cfg.Name)
	}
	if err != nil {
		return nil, v, fmt.Errorf("natsadapter: stream %s: %w", cfg.Name, err)
	}
	if wrong := compareStream(s.CachedInfo().Config, want); len(wrong) > 0 {
		return nil, v, fmt.Errorf("natsadapter: stream %s is no stream of a queue like this: %s",
			cfg.Name, strings.Join(wrong, "; "))
	}
	c, err := js.Consumer(ctx, cfg.Name, consumerName)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = js.CreateConsumer(ctx, cfg.Name, consumerConfig(cfg))
	}
	if errors.Is(err, jetstream.ErrConsumerExists) {
		c, err = js.Consumer(ctx, cfg.Name, consumerName)
	}
	if err != nil {
		return nil, v, fmt.Errorf("natsadapter: consumer %s of stream %s: %w", consumerName, cfg.Name, err)
	}
	if wrong := compareConsumer(c.CachedInfo().Config, consumerConfig(cfg)); len(wrong) > 0 {
		return nil, v, fmt.Errorf("natsadapter: consumer %s of stream %s is not as this queue needs it: %s",
			consumerName, cfg.Name, strings.Join(wrong, "; "))
	}
	return s, v, nil
}

func streamConfig(cfg Config) jetstream.StreamConfig {
	maxBytes, discard := int64(-1), jetstream.DiscardOld
	if cfg.MaxBytes > 0 {
		maxBytes, discard = cfg.MaxBytes, jetstream.DiscardNew
	}
	return jetstream.StreamConfig{
		Name:              cfg.Name,
		Description:       "A queue of reconcile",
		Subjects:          []string{cfg.Name + ".>"},
		Retention:         jetstream.LimitsPolicy,
		Discard:           discard,
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxBytes:          maxBytes,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Storage:           jetstream.FileStorage,
		Replicas:          cfg.Replicas,
		AllowMsgTTL:       true,
		AllowDirect:       false, // followers would answer with what was
	}
}

func consumerConfig(cfg Config) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       consumerName,
		Description:   "Hands records to the processes that take items",
		FilterSubject: cfg.Name + ".i.>",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       cfg.Lease,
		MaxDeliver:    -1,
		MaxAckPending: -1,
		MaxWaiting:    8192,
	}
}

// differences say what is wrong about a stream or a consumer.
type differences []string

func (d *differences) say(what string, have, want any) {
	if have != want {
		*d = append(*d, fmt.Sprintf("%s is %v, want %v", what, have, want))
	}
}

func compareStream(have, want jetstream.StreamConfig) (wrong differences) {
	wrong.say("Subjects", fmt.Sprint(have.Subjects), fmt.Sprint(want.Subjects))
	wrong.say("Retention", have.Retention, want.Retention)
	wrong.say("Discard", have.Discard, want.Discard)
	wrong.say("MaxMsgsPerSubject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	wrong.say("MaxMsgs", have.MaxMsgs, want.MaxMsgs)
	wrong.say("MaxBytes", have.MaxBytes, want.MaxBytes)
	wrong.say("MaxAge", have.MaxAge, time.Duration(0))
	wrong.say("Storage", have.Storage, want.Storage)
	wrong.say("Replicas", have.Replicas, want.Replicas)
	wrong.say("NoAck", have.NoAck, false)
	wrong.say("DenyDelete", have.DenyDelete, false)
	wrong.say("Sealed", have.Sealed, false)
	wrong.say("AllowDirect", have.AllowDirect, want.AllowDirect)
	wrong.say("AllowMsgTTL (which a server before 2.11 drops)", have.AllowMsgTTL, want.AllowMsgTTL)
	return wrong
}

func compareConsumer(have, want jetstream.ConsumerConfig) (wrong differences) {
	wrong.say("FilterSubject", have.FilterSubject, want.FilterSubject)
	wrong.say("DeliverPolicy", have.DeliverPolicy, want.DeliverPolicy)
	wrong.say("AckPolicy", have.AckPolicy, want.AckPolicy)
	wrong.say("AckWait (which is Config.Lease)", have.AckWait, want.AckWait)
	wrong.say("MaxDeliver", have.MaxDeliver, want.MaxDeliver)
	wrong.say("MaxAckPending", have.MaxAckPending, want.MaxAckPending)
	return wrong
}

// newID returns a name that nobody else has. Those of earlier times sort before
// those of later ones.
func newID() string {
	return fmt.Sprintf("%09s", strconv.FormatInt(time.Now().UnixMilli(), 36)) + "-" + strings.ToLower(rand.Text()[:12])
}
