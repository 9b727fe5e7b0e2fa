// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Config sets up a [Queue]. Name is required; the zero value of every other
// field is a good default. All processes that share a queue use the same Name,
// Replicas, MaxBytes and Lease.
type Config struct {
	// Name is the name of the queue, of its stream, and the first token of its
	// subjects: letters, digits, "_" and "-".
	Name string

	// Replicas is how many servers keep the stream; 0 means 1.
	Replicas int

	// MaxBytes is how many bytes the stream may take, of which 256 KiB are a
	// reserve; 0 means as many as the account and the server have. The server
	// sets them aside for this stream. At the limit, items that the queue does
	// not know wait, and those that it knows go on. The least is 1 MiB.
	MaxBytes int64

	// Lease is how long a process that shows no sign of life keeps its items;
	// 0 means 10 seconds, and one second is the least. The context of a
	// run that lost its lease ends a quarter of that before another process may start
	// the item.
	Lease time.Duration

	// Gone decides about an item whose process was gone in its run, by a crash or
	// because it lost its lease: a failure as any, whose error wraps ErrGone. The
	// item is held for the delay that Gone returns, or not retried. As for any
	// reconcile.RetryPolicy, a negative delay counts as five minutes, and zero as
	// one second from the second failure on. Nil means at once after the first
	// failure in a row, and from then on a delay that doubles from a second to a
	// minute. It is called in the process that finds the item, whichever that is.
	Gone reconcile.RetryPolicy

	// Owner says who this process is, for those who look at the queue; it need
	// not be unique. Empty means the name of the host and the process id.
	Owner string

	Logger *slog.Logger // nil means reconcile.Logger(ctx) of New: in a member of a Group that of the Group, and else slog.Default()
}

// ErrGone is why a run failed whose process was gone: see [Config].
var ErrGone = errors.New("natsadapter: the process died during the run")

// goneRetry is lenient at first: nearly always it is not the item's fault.
func goneRetry(err error, failures int) (time.Duration, bool) {
	if failures < 2 {
		return 0, true
	}
	return goneBackoff(err, failures-1)
}

var goneBackoff = reconcile.Backoff(time.Second, time.Minute)

// check returns the config with its defaults, or an error that names a field.
func (c Config) check(ctx context.Context) (Config, error) {
	c.Lease = cmp.Or(c.Lease, 10*time.Second)
	c.Replicas = cmp.Or(c.Replicas, 1)
	if c.Gone == nil {
		c.Gone = goneRetry
	}
	c.Logger = cmp.Or(c.Logger, reconcile.Logger(ctx))
	if c.Owner == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Owner = host + ":" + strconv.Itoa(os.Getpid())
	}
	switch {
	case c.Name == "":
		return c, errors.New("natsadapter: Config.Name is required, and empty")
	case c.Name != string(appendToken(nil, c.Name)):
		return c, fmt.Errorf("natsadapter: Config.Name is %q, want letters, digits, %q and %q", c.Name, "_", "-")
	case len(c.Name) > 100:
		return c, fmt.Errorf("natsadapter: Config.Name is %d characters long, want 100 at most", len(c.Name))
	case c.Lease < time.Second:
		return c, fmt.Errorf("natsadapter: Config.Lease is %v, want a second or more, or 0 (which means 10s)", c.Lease)
	case c.MaxBytes != 0 && c.MaxBytes < 1<<20:
		return c, fmt.Errorf("natsadapter: Config.MaxBytes is %d, want %d or more, or 0 (which means no limit)", c.MaxBytes, 1<<20)
	case c.Replicas < 1 || c.Replicas > 5:
		return c, fmt.Errorf("natsadapter: Config.Replicas is %d, want 1 to 5, or 0 (which means 1)", c.Replicas)
	}
	return c, nil
}
