// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file creates and checks the stream and the consumer of a [Queue].

// consumerName is the name of the one durable consumer.
const consumerName = "workers"

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

// setUp creates the stream and the consumer, or checks those that are there.
func setUp(ctx context.Context, js jetstream.JetStream, cfg Config) (jetstream.Stream, version, error) {
	server := js.Conn().ConnectedServerVersion()
	v := parseVersion(server)
	if !v.atLeast(oldest) {
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
	if wrong := compare(s.CachedInfo().Config, want, "Subjects", "Retention", "Discard", "MaxMsgsPerSubject", "MaxMsgs",
		"MaxBytes", "MaxAge", "Storage", "Replicas", "NoAck", "DenyDelete", "Sealed", "AllowDirect",
		"AllowMsgTTL (which a server before 2.11 drops)"); len(wrong) > 0 {
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
	if wrong := compare(c.CachedInfo().Config, consumerConfig(cfg), "FilterSubject", "DeliverPolicy", "AckPolicy",
		"AckWait (which is Config.Lease)", "MaxDeliver", "MaxAckPending"); len(wrong) > 0 {
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

// newID returns a name that nobody else has. Those of earlier times sort before
// those of later ones.
func newID() string {
	return fmt.Sprintf("%09s", strconv.FormatInt(time.Now().UnixMilli(), 36)) + "-" + strings.ToLower(rand.Text()[:12])
}
