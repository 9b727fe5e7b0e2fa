// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// naive works, or feeds, with nothing but a work queue of one message a subject:
// what the queue would be if the limits of a stream were enough. With "new" the
// stream refuses a second message, with "old" it replaces the first. It is there
// to be caught.
func naive(ctx context.Context, js jetstream.JetStream, j job) error {
	cfg := jetstream.StreamConfig{
		Name: j.Queue, Subjects: []string{j.Queue + ".>"}, Retention: jetstream.WorkQueuePolicy,
		MaxMsgsPerSubject: 1, Replicas: j.Replicas,
	}
	if j.Naive == "new" {
		cfg.Discard, cfg.DiscardNewPerSubject = jetstream.DiscardNew, true
	}
	if _, err := js.CreateOrUpdateStream(ctx, cfg); err != nil {
		return err
	}
	cons, err := js.CreateOrUpdateConsumer(ctx, j.Queue, jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: j.Lease, MaxAckPending: 10000,
	})
	if err != nil {
		return err
	}
	if j.Role == "feed" {
		return feed(ctx, j, func(ctx context.Context, name string) error {
			_, err := js.Publish(ctx, j.Queue+"."+subject(name), []byte(name))
			var api *jetstream.APIError
			if errors.As(err, &api) && api.ErrorCode == 10077 {
				return nil // it is in the queue already
			}
			return err
		})
	}
	var all sync.WaitGroup
	defer all.Wait()
	for slot := range j.Slots {
		c, err := dial(j, slot+1)
		if err != nil {
			return err
		}
		all.Go(func() {
			for ctx.Err() == nil {
				batch, err := cons.Fetch(1, jetstream.FetchMaxWait(time.Second))
				if err != nil {
					continue
				}
				for m := range batch.Messages() {
					name := string(m.Data())
					c.tell(call{Op: "enter", Key: name})
					time.Sleep(below(c.rand, j.RunMax+1))
					c.tell(call{Op: "leave", Key: name})
					m.DoubleAck(ctx)
				}
			}
		})
	}
	return nil
}

// subject makes a token of a name.
func subject(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c == ' ' {
			b[i] = '_'
		}
	}
	return string(b)
}
