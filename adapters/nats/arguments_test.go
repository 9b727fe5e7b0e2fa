// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/elect"
)

// No retry corrects an argument, so Restart must not repeat what has a wrong one.
func TestErrorOfAWrongArgumentIsTerminal(t *testing.T) {
	ctx, q := t.Context(), reconcile.NewQueue[string]()
	key := func(jetstream.Msg) (string, bool) { return "", false }
	second := func(_ any, err error) error { return err }
	var none natsadapter.Secondaries
	js, err := jetstream.New(new(nats.Conn)) // asked for nothing
	if err != nil {
		t.Fatal(err)
	}
	disks := natsadapter.Secondaries{JS: js, Bucket: "b", Kind: "disk"}
	for want, err := range map[string]error{
		"KeyValue needs":       natsadapter.KeyValue(nil, "b", natsadapter.EntryKey)(ctx, q),
		"KeyValueItems needs":  second(natsadapter.KeyValueItems(nil, "b", natsadapter.EntryKey)(ctx)),
		"Objects needs":        natsadapter.Objects(nil, "b", natsadapter.ObjectName)(ctx, q),
		"ObjectItems needs":    second(natsadapter.ObjectItems(nil, "b", natsadapter.ObjectName)(ctx)),
		"Consumer needs":       natsadapter.Consumer(nil, "s", jetstream.ConsumerConfig{}, key)(ctx, q),
		"Subject needs":        natsadapter.Subject[string](nil, "s", "", nil)(ctx, q),
		"OnReconnect needs":    natsadapter.OnReconnect(nil, nil).Run(ctx),
		"Secondaries.Kind is":  none.Feed(ctx, q),
		"Secondaries needs":    (&natsadapter.Secondaries{Kind: "disk"}).Feed(ctx, q),
		"the key is \"a b\"":   second(disks.Put(ctx, "a b", nil, "d1")),
		"the key is too long":  second(disks.Put(ctx, strings.Repeat("k", 5000), nil, "d1")),
		"the owner is \" d1\"": second(disks.Put(ctx, "k", nil, " d1")),
		"SetOwner needs":       natsadapter.SetOwner(nil, "disk", "d1"),
		"Elect needs":          elect.Elect(nil, "x", nil).Run(ctx),
	} {
		if !errors.Is(err, reconcile.ErrTerminal) || !strings.HasPrefix(err.Error(), "natsadapter: "+want) {
			t.Errorf("%v, want a terminal error that begins with %q", err, "natsadapter: "+want)
		}
	}
}
