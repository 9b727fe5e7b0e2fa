// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// importing has an account that may use the JetStream of another one, but gets nothing
// that a consumer there delivers.
const importing = `
accounts {
  owner {
    jetstream: enabled
    users: [{user: owner, password: p}]
    exports: [{service: "$JS.API.>", response: stream}]
  }
  guest {
    users: [{user: guest, password: p}]
    imports: [{service: {account: owner, subject: "$JS.API.>"}, to: "owner.API.>"}]
  }
}
`

// TestImportThatDeliversNothing reads a bucket of another account, whose messages do not
// arrive. The reason is an error of the list, and one line of the feeder, however often
// it tries.
func TestImportThatDeliversNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.conf")
	if err := os.WriteFile(path, []byte(importing), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	options.JetStream, options.StoreDir = true, t.TempDir()
	s := natstest.Serve(t, options)
	owner := natstest.JetStream(t, natstest.Connect(t, s.ClientURL(), nats.UserInfo("owner", "p")))
	put(t, natstest.CreateKeyValue(t, owner, jetstream.KeyValueConfig{Bucket: "b"}), "k", "")
	guest, err := jetstream.NewWithAPIPrefix(natstest.Connect(t, s.ClientURL(), nats.UserInfo("guest", "p")), "owner.API")
	if err != nil {
		t.Fatal(err)
	}

	const reason = "no subscriber"
	if items, err := natsadapter.KeyValueItems(guest, "b", natsadapter.EntryKey)(t.Context()); err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("the list is %q, %v; want an error that says %q", items, err, reason)
	}
	asked, err := owner.Conn().SubscribeSync("$JS.API.CONSUMER.CREATE.KV_b.>")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := run(t, inGroup(&log, natsadapter.KeyValue(guest, "b", natsadapter.EntryKey)))
	natstest.Eventually(t, func(context.Context) error {
		if n, _, err := asked.Pending(); err != nil || n < 3 {
			return errors.Join(err, errors.New("the feeder has not tried three times"))
		}
		return nil
	})
	f.stop()
	if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 1 || !strings.Contains(lines[0], reason) {
		t.Errorf("log:\n%swant one line that says %q", log.String(), reason)
	}
	f.none()
}
