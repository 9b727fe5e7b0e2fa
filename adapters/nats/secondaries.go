// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/names"
	"github.com/reconkernel/reconcile/refs"
)

// Where a secondary says who owns it: in the headers of its message, or in a
// field of its value, if that is a JSON object.
const (
	kindHeader = "Reconcile-Owner-Kind"
	keyHeader  = "Reconcile-Owner-Key"
)

type ownerTag struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// SetOwner writes the kind and key of the owner of a secondary into the headers
// of its message, Reconcile-Owner-Kind and Reconcile-Owner-Key, in the place of
// those that are there. It returns a [reconcile.Terminal] error if one of them is
// empty, or has a line break or a space at an end, which headers do not keep; or if
// h is nil.
func SetOwner(h nats.Header, kind, key string) error {
	if h == nil {
		return reconcile.Terminal(errors.New("natsadapter: SetOwner needs a header, got nil"))
	}
	for _, s := range []string{kind, key} {
		if s == "" || strings.TrimSpace(s) != s || strings.ContainsAny(s, "\r\n") {
			return reconcile.Terminal(fmt.Errorf("natsadapter: the owner is %q of kind %q, want text without line breaks and without space at its ends", key, kind))
		}
	}
	h.Set(kindHeader, kind)
	h.Set(keyHeader, key)
	return nil
}

// OwnerKey returns the key of the owner of a secondary. It reads the headers that
// [SetOwner] writes. If they name no owner, it reads the value: a value that is written
// without headers may be a JSON object with the field
//
//	"reconcileOwner": {"kind": "disk", "key": "d1"}
//
// OwnerKey returns false if there is no owner, or one of another kind. An empty kind
// means any. Header and value may be nil.
func OwnerKey(kind string, header nats.Header, value []byte) (key string, ok bool) {
	owner := ownerTag{header.Get(kindHeader), header.Get(keyHeader)}
	if owner.Key == "" {
		var object struct {
			Owner ownerTag `json:"reconcileOwner"`
		}
		if json.Unmarshal(value, &object) != nil {
			return "", false
		}
		owner = object.Owner
	}
	if owner.Key == "" || kind != "" && owner.Kind != kind {
		return "", false
	}
	return owner.Key, true
}

func entryOwner(kind string, e jetstream.KeyValueEntry) (string, bool) {
	var header nats.Header
	if h, ok := e.(interface{ Headers() nats.Header }); ok {
		header = h.Headers()
	}
	return OwnerKey(kind, header, e.Value())
}

// ErrOwned says that a key is taken by something that is not this owner's.
var ErrOwned = errors.New("natsadapter: the key is not this owner's")

// Secondaries are the entries of a KeyValue bucket that primaries of one kind
// own. JS, Bucket and Kind are required, and not to be changed once a method was
// called.
//
//	mounts := &natsadapter.Secondaries{JS: js, Bucket: "mounts", Kind: "disk"}
//	group.Add("mounts", reconcile.Feed(q, mounts.Feed)) // q has the keys of disks
//
// A deleted entry says nothing of its owner, so Feed remembers the owner of each
// entry that it has seen. The methods may be called from any goroutine; they wait
// for the server, as long as ctx allows.
type Secondaries struct {
	JS     jetstream.JetStream
	Bucket string
	Kind   string // of the primaries

	mu     sync.Mutex // guards the fields below
	owners map[string]ownership
	keys   refs.Refs[string, string] // of an owner, as owners has them
	put    map[string]putting        // by key: not fed yet
	feeds  int                       // how many Feeds know all that there is
	seen   uint64                    // the last revision fed
}

// A putting is what Put wrote.
type putting struct {
	owner    string
	revision uint64
}

type ownership struct {
	owner   string
	created time.Time // of the entry that says so
}

// A handover is the item of an entry on its way to its owner, of now and of
// before, if that is another one.
type handover struct{ now, before string }

func (h handover) owners() iter.Seq[string] {
	return func(yield func(string) bool) {
		if h.before != "" && !yield(h.before) {
			return
		}
		if h.now != "" && h.now != h.before {
			yield(h.now)
		}
	}
}

// Feed is a Feeder of the keys of the owners: an item for each change of a
// secondary, as [KeyValue] has them, and two if it went from one owner to
// another. The deletion of a secondary that Feed has never seen feeds nothing;
// the owner finds it missing when it runs for another reason.
func (s *Secondaries) Feed(ctx context.Context, q reconcile.Enqueuer[string]) error {
	if err := s.check(); err != nil {
		return err
	}
	owners := reconcile.Map(q, handover.owners)
	t := keyValueTail(s.JS, s.Bucket, nil, func(e *entry) {
		if h, ok := guarded(ctx, "bucket "+s.Bucket, e.key, func() (handover, bool) { return s.handover(e) }); ok {
			owners.Enqueue(h)
		}
	})
	knows := false // all that there is
	know := func(all bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case all && !knows:
			s.feeds++
		case !all && knows:
			s.feeds--
			if s.feeds == 0 {
				s.put = nil
			}
		}
		knows = all
	}
	t.knows = know
	defer know(false)
	return t.run(ctx)
}

func (s *Secondaries) handover(e jetstream.KeyValueEntry) (handover, bool) {
	var h handover
	if e.Operation() == jetstream.KeyValuePut {
		h.now, _ = entryOwner(s.Kind, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = e.Revision()
	h.before = s.owners[e.Key()].owner
	if h.now == "" {
		delete(s.owners, e.Key())
		s.keys.Set(e.Key())
	} else {
		if s.owners == nil {
			s.owners = make(map[string]ownership)
		}
		s.owners[e.Key()] = ownership{h.now, e.Created()}
		s.keys.Set(e.Key(), h.now)
	}
	if p, ok := s.put[e.Key()]; ok && e.Revision() >= p.revision {
		delete(s.put, e.Key())
	}
	return h, h != handover{}
}

// Owners lists the keys of the owners of all secondaries there are, each once:
// the GetItems of a [reconcile.Poller] that finds secondaries whose owner is
// gone, because the reconcile function runs for it, sees no primary and deletes
// what [Secondaries.Of] lists. Besides, it lists the owners of those that Feed
// has seen and that are gone without a trace.
func (s *Secondaries) Owners(ctx context.Context) ([]string, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	missing := maps.Clone(s.owners)
	s.mu.Unlock()

	owners := make(map[string]bool)
	err := s.list(ctx, nil, func(e *entry) {
		delete(missing, e.Key())
		if owner, ok := entryOwner(s.Kind, e); ok {
			owners[owner] = true
		}
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range missing {
		if s.owners[key] == o { // and not seen anew since the list began
			delete(s.owners, key)
			s.keys.Set(key)
			owners[o.owner] = true
		}
	}
	return slices.Collect(maps.Keys(owners)), nil
}

// Of lists the secondaries of one owner. While Feed runs and has enqueued all that was
// there, it reads those entries alone of which Feed has seen, or this Secondaries
// has Put, that they are the owner's: one that someone else writes meanwhile may
// be missing, and its event runs the owner again. Else it reads the whole bucket.
// What it returns is what the server has.
func (s *Secondaries) Of(ctx context.Context, owner string) ([]jetstream.KeyValueEntry, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	var entries []jetstream.KeyValueEntry
	add := func(e *entry) {
		if o, ok := entryOwner(s.Kind, e); ok && o == owner {
			entries = append(entries, e)
		}
	}
	keys, known := s.known(owner)
	if !known {
		return entries, s.list(ctx, nil, add)
	}
	for some := range slices.Chunk(keys, filtersAtOnce) {
		err := s.list(ctx, some, add)
		if errors.Is(err, errOneFilter) {
			entries = nil
			return entries, s.list(ctx, nil, add)
		}
		if err != nil {
			return entries, err
		}
	}
	return entries, nil
}

// filtersAtOnce keeps the filters of a list far below the longest message.
const filtersAtOnce = 256

// known returns the keys of an owner's secondaries, if Feed knows them.
func (s *Secondaries) known(owner string) (keys []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feeds == 0 {
		return nil, false // the whole bucket
	}
	keys = slices.Collect(s.keys.Of(owner))
	for key, p := range s.put {
		if p.owner == owner && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys, true
}

// list calls handle for each of these entries there are; no keys mean all.
func (s *Secondaries) list(ctx context.Context, keys []string, handle func(*entry)) error {
	t := keyValueTail(s.JS, s.Bucket, keys, func(e *entry) {
		if e.op == jetstream.KeyValuePut {
			handle(e)
		}
	})
	t.lenient = true // see Of; with no keys it has no meaning
	return t.list(ctx)
}

// tooLarge is the error for a message beyond the MaxValueSize of a bucket.
const tooLarge jetstream.ErrorCode = 10054

// Put writes a secondary with its owner in the headers, and returns its
// revision. It writes only what is new or the owner's already: if the key is
// taken by another owner, or has none, it returns an error that wraps
// [ErrOwned], for which a reconcile function may return
// [reconcile.Terminal]. For a key, a value or an owner that the bucket cannot hold, it
// returns a [reconcile.Terminal] error itself. It fails if the key changes meanwhile.
func (s *Secondaries) Put(ctx context.Context, key string, value []byte, owner string) (revision uint64, err error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	if !names.Key(key) {
		return 0, reconcile.Terminal(fmt.Errorf("natsadapter: the key is %q, want letters, digits and -/_=, with dots between", key))
	}
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("natsadapter: put %s into bucket %s: %w", key, s.Bucket, err)
	}
	subject := "$KV." + s.Bucket + "." + key
	msg := nats.NewMsg(names.Publish(s.JS, subject))
	if err := names.Length(msg.Subject); err != nil {
		return 0, reconcile.Terminal(fmt.Errorf("natsadapter: the key is too long: %w", err))
	}
	msg.Data = value
	if err := SetOwner(msg.Header, s.Kind, owner); err != nil {
		return 0, err
	}
	stream, err := s.JS.Stream(ctx, "KV_"+s.Bucket)
	if err != nil {
		return fail(err)
	}
	if err := checkSubjects(stream.CachedInfo().Config, "$KV."+s.Bucket+"."); err != nil {
		return fail(err)
	}
	last, err := stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		last = &jetstream.RawStreamMsg{}
	case err != nil:
		return fail(err)
	case operation(last.Header) == jetstream.KeyValuePut:
		if o, ok := OwnerKey(s.Kind, last.Header, last.Data); !ok || o != owner {
			return fail(fmt.Errorf("%w: %s %s", ErrOwned, s.Kind, owner))
		}
	}
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last.Sequence, 10))
	ack, err := s.JS.PublishMsg(ctx, msg)
	if api := (*jetstream.APIError)(nil); errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == tooLarge {
		err = reconcile.Terminal(err)
	}
	if err != nil {
		return fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feeds > 0 && ack.Sequence > s.seen {
		if s.put == nil {
			s.put = make(map[string]putting)
		}
		s.put[key] = putting{owner, ack.Sequence}
	}
	return ack.Sequence, nil
}

func (s *Secondaries) check() error {
	if s.Kind == "" {
		return reconcile.Terminal(errors.New("natsadapter: Secondaries.Kind is empty, want the kind of the primaries"))
	}
	return reconcile.Terminal(checkBucket("Secondaries", s.JS, s.Bucket, false))
}
