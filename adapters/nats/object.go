// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
)

// Objects returns a Feeder of the changes of an object store: first what the
// store knows of each object, then each change of an object or of what is said
// of it, and each deletion, for which Deleted is set. All of them are events, as
// for [KeyValue], and what is said there of key, of restarts and of another
// bucket holds here as well. An object that expires leaves no trace, nor does the old
// name of one that is renamed (UpdateMeta): [ObjectItems] finds both.
func Objects[T comparable](js jetstream.JetStream, bucket string, key func(*jetstream.ObjectInfo) (T, bool)) reconcile.Feeder[T] {
	return func(ctx context.Context, q reconcile.Enqueuer[T]) error {
		if err := checkBucket("Objects", js, bucket, key == nil); err != nil {
			return reconcile.Terminal(err)
		}
		return objectTail(js, bucket, func(info *jetstream.ObjectInfo, err error) {
			if err != nil {
				reconcile.Logger(ctx).Error(err.Error())
				return
			}
			if item, ok := guarded(ctx, "object store "+bucket, info.Name, func() (T, bool) { return key(info) }); ok {
				q.Enqueue(item)
			}
		}).run(ctx)
	}
}

// ObjectItems returns a function that lists an object store, for the GetItems of
// a [reconcile.Poller]. Deleted objects are not listed. A list is complete, or
// there is an error: also if the store does not exist, if key panics, or if a message
// of the store describes no object; the items of the others come with the error.
func ObjectItems[T comparable](js jetstream.JetStream, bucket string, key func(*jetstream.ObjectInfo) (T, bool)) func(ctx context.Context) ([]T, error) {
	return func(ctx context.Context) ([]T, error) {
		if err := checkBucket("ObjectItems", js, bucket, key == nil); err != nil {
			return nil, reconcile.Terminal(err)
		}
		var items []T
		var failed error
		err := objectTail(js, bucket, func(info *jetstream.ObjectInfo, err error) {
			if err == nil && !info.Deleted {
				var item T
				var ok bool
				if item, ok, err = try("object store "+bucket, info.Name, func() (T, bool) { return key(info) }); ok {
					items = append(items, item)
				}
			}
			failed = cmp.Or(failed, err)
		}).list(ctx)
		return items, cmp.Or(err, failed)
	}
}

// ObjectName returns the name of an object: the usual function for [Objects].
func ObjectName(info *jetstream.ObjectInfo) (string, bool) { return info.Name, true }

func objectTail(js jetstream.JetStream, bucket string, handle func(*jetstream.ObjectInfo, error)) *tail {
	return &tail{
		js: js, stream: "OBJ_" + bucket, what: "object store " + bucket,
		root:    "$O." + bucket + ".",
		filters: []string{"$O." + bucket + ".M.>"},
		handle: func(msg *nats.Msg, meta *nats.MsgMetadata) {
			info := new(jetstream.ObjectInfo)
			if err := json.Unmarshal(msg.Data, info); err != nil {
				handle(nil, fmt.Errorf("natsadapter: object store %s: the message of subject %.200s describes no object: %w", bucket, msg.Subject, err))
				return
			}
			info.ModTime = meta.Timestamp
			handle(info, nil)
		},
	}
}
