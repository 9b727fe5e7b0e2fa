// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/names"
)

// KeyValue returns a Feeder of the entries of a KeyValue bucket: first the
// latest entry of each key, then each put, delete, purge and expiry. All of them
// are events: they are enqueued, not offered, because an entry that this process
// has not seen may have changed while its item was in flight.
//
// Key makes an item of an entry, or returns false if there is none to run. A
// deleted key is an entry as well: its Operation says so, and it has no value.
// The entries have a method Headers() nats.Header besides, see [OwnerKey]. Key
// is called from one goroutine at a time. A panic in it is logged and costs that
// entry alone. Filters are keys or patterns of keys, such as "disks.*" or
// "disks.>", of which none covers another; none at all means all keys.
//
// The Feeder survives lost connections, restarts of the server, and a bucket
// that is deleted and created again, or that does not exist yet. On a link
// without delay it notices within two seconds that a watch went stale, and tries
// again at least twice a second, at once when the connection is back. It bears
// links that are slow or long: it waits for what is on its way as long as the
// connection lives. It then goes on after the last revision that it has seen; if the
// bucket is another one, or may have lost revisions, it starts from the beginning. It
// logs to [reconcile.Logger] when a watch is lost and when it is back. It returns nil
// when ctx is done, a [reconcile.Terminal] error if an argument is wrong or two filters
// overlap, and an error if the connection is closed, or the bucket is a mirror, whose
// entries have the subjects of another bucket. [Prime] tells when it has enqueued all
// that was there.
//
// What it cannot see: keys that are gone without a trace, because their delete
// markers were purged, or the whole bucket was deleted, while it was away; and
// the expiry of keys in a bucket without LimitMarkerTTL or with a History above
// 1, for which the server writes no marker. [KeyValueItems] finds those.
func KeyValue[T comparable](js jetstream.JetStream, bucket string, key func(jetstream.KeyValueEntry) (T, bool), filters ...string) reconcile.Feeder[T] {
	return func(ctx context.Context, q reconcile.Enqueuer[T]) error {
		if err := checkKeyValue("KeyValue", js, bucket, key == nil, filters); err != nil {
			return reconcile.Terminal(err)
		}
		return keyValueTail(js, bucket, filters, func(e *entry) {
			if item, ok := guarded(ctx, "bucket "+bucket, e.key, func() (T, bool) { return key(e) }); ok {
				q.Enqueue(item)
			}
		}).run(ctx)
	}
}

// KeyValueItems returns a function that lists a KeyValue bucket, for the
// GetItems of a [reconcile.Poller]: the resync of what [KeyValue] feeds. As the List of a
// tracker.Tracker it also finds keys that are gone without a trace.
//
// Key and filters are as for KeyValue, but the entries come without their values:
// Value returns nothing, Headers all there are. Deleted keys are not listed. A
// list is complete, or there is an error: also if the bucket does not exist, so
// that nothing is taken for vanished only because its bucket is, and if key panics: the
// items of the other entries come with the error. A server before 2.11.5 may itself
// leave out keys that were written more than once. The list lasts until
// all is listed, the connection changes or ctx is done.
func KeyValueItems[T comparable](js jetstream.JetStream, bucket string, key func(jetstream.KeyValueEntry) (T, bool), filters ...string) func(ctx context.Context) ([]T, error) {
	return func(ctx context.Context) ([]T, error) {
		if err := checkKeyValue("KeyValueItems", js, bucket, key == nil, filters); err != nil {
			return nil, reconcile.Terminal(err)
		}
		var items []T
		var failed error
		t := keyValueTail(js, bucket, filters, func(e *entry) {
			if e.op != jetstream.KeyValuePut {
				return
			}
			item, ok, err := try("bucket "+bucket, e.key, func() (T, bool) { return key(e) })
			if ok {
				items = append(items, item)
			}
			failed = cmp.Or(failed, err)
		})
		t.headers = true
		return items, cmp.Or(t.list(ctx), failed)
	}
}

// EntryKey returns the key of an entry: the usual function for [KeyValue].
func EntryKey(e jetstream.KeyValueEntry) (string, bool) { return e.Key(), true }

func keyValueTail(js jetstream.JetStream, bucket string, filters []string, handle func(*entry)) *tail {
	prefix := "$KV." + bucket + "."
	t := &tail{
		js: js, stream: "KV_" + bucket, what: "bucket " + bucket, root: prefix,
		handle: func(msg *nats.Msg, meta *nats.MsgMetadata) {
			if key, ok := strings.CutPrefix(msg.Subject, prefix); ok {
				handle(newEntry(bucket, key, msg, meta))
			}
		},
	}
	for _, f := range filters {
		t.filters = append(t.filters, prefix+f)
	}
	if len(filters) == 0 {
		t.filters = []string{prefix + ">"}
	}
	return t
}

var (
	bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	keyPattern = regexp.MustCompile(`^[-/_=.a-zA-Z0-9*]*>?$`)
)

func checkKeyValue(what string, js jetstream.JetStream, bucket string, noKey bool, filters []string) error {
	if err := checkBucket(what, js, bucket, noKey); err != nil {
		return err
	}
	for _, f := range filters {
		if f == "" || !keyPattern.MatchString(f) || !names.Subject(f) {
			return fmt.Errorf("natsadapter: %s: the filter is %q, want a key or a pattern such as \"a.*\" or \"a.>\", of letters, digits and -/_=", what, f)
		}
	}
	return nil
}

func checkBucket(what string, js jetstream.JetStream, bucket string, noKey bool) error {
	switch {
	case js == nil || js.Conn() == nil:
		return fmt.Errorf("natsadapter: %s needs a JetStream with a connection, got nil", what)
	case !bucketName.MatchString(bucket):
		return fmt.Errorf("natsadapter: %s: the bucket is named %q, want letters, digits, - and _", what, bucket)
	case noKey:
		return fmt.Errorf("natsadapter: %s: bucket %s needs a key function, got nil", what, bucket)
	}
	return nil
}

// An entry is what the message of a KeyValue bucket says.
type entry struct {
	bucket, key string
	msg         *nats.Msg
	meta        *nats.MsgMetadata
	op          jetstream.KeyValueOp
}

func newEntry(bucket, key string, msg *nats.Msg, meta *nats.MsgMetadata) *entry {
	return &entry{bucket: bucket, key: key, msg: msg, meta: meta, op: operation(msg.Header)}
}

func operation(h nats.Header) jetstream.KeyValueOp {
	switch h.Get("KV-Operation") {
	case "DEL":
		return jetstream.KeyValueDelete
	case "PURGE":
		return jetstream.KeyValuePurge
	}
	switch h.Get(jetstream.MarkerReasonHeader) { // of the server's own markers
	case "MaxAge", "Purge":
		return jetstream.KeyValuePurge
	case "Remove":
		return jetstream.KeyValueDelete
	}
	return jetstream.KeyValuePut
}

func (e *entry) Bucket() string                  { return e.bucket }
func (e *entry) Key() string                     { return e.key }
func (e *entry) Value() []byte                   { return e.msg.Data }
func (e *entry) Revision() uint64                { return e.meta.Sequence.Stream }
func (e *entry) Created() time.Time              { return e.meta.Timestamp }
func (e *entry) Delta() uint64                   { return e.meta.NumPending }
func (e *entry) Operation() jetstream.KeyValueOp { return e.op }
func (e *entry) Headers() nats.Header            { return e.msg.Header }

// guarded calls a key function. After a panic, which it logs, there is no item.
func guarded[T comparable](ctx context.Context, what, name string, key func() (T, bool)) (item T, ok bool) {
	item, ok, err := try(what, name, key)
	if err != nil {
		reconcile.Logger(ctx).Error(err.Error())
	}
	return item, ok
}

// try is guarded with an error after a panic, for callers that meet it again and again.
func try[T comparable](what, name string, key func() (T, bool)) (item T, ok bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			var none T
			item, ok, err = none, false, fmt.Errorf("natsadapter: the key function panicked for %.200q of %s: %v [%s]", name, what, p, callsToPanic())
		}
	}()
	item, ok = key()
	return item, ok, nil
}

// callsToPanic returns the calls of the user's code that led to a panic, the last
// first, as "main.size disk.go:7 < main.attach disk.go:31". Only the deferred
// function of try may call it.
func callsToPanic() string {
	var calls []string
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for f, more := frames.Next(); more && !strings.Contains(f.Function, "/adapters/nats.try["); f, more = frames.Next() {
		if !strings.HasPrefix(f.Function, "runtime.") {
			calls = append(calls, fmt.Sprintf("%s %s:%d", path.Base(f.Function), path.Base(f.File), f.Line))
		}
	}
	return strings.Join(calls[:max(0, len(calls)-1)], " < ") // without that which try calls, as it is ours
}
