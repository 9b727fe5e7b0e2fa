// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"

	"github.com/reconkernel/reconcile/internal/servers"
)

// asProgram in the environment makes the test binary the program itself.
const asProgram = "RECONCILE_BUCKETS_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Setenv(asProgram, "yes") // for the replicas
	os.Exit(m.Run())
}

const patience = 3 * time.Minute // bounds each wait

// A client is another client of the table and of the store. Its methods are for the goroutine
// of the test.
type client struct {
	t    *testing.T
	pool *pgxpool.Pool
	s3   *minio.Client
}

func newClient(t *testing.T, database, endpoint, key string) *client {
	t.Helper()
	c := &client{t: t}
	var err error
	c.pool, err = pgxpool.New(t.Context(), database)
	c.must(err)
	t.Cleanup(c.pool.Close)
	c.s3, err = minio.New(strings.TrimPrefix(endpoint, "http://"), &minio.Options{Creds: credentials.NewStaticV4("example", key, ""), Region: "us-east-1"})
	c.must(err)
	return c
}

func (c *client) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) exec(sql string, args ...any) {
	c.t.Helper()
	_, err := c.pool.Exec(c.t.Context(), sql, args...)
	c.must(err)
}

// until waits until f returns nil.
func (c *client) until(f func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	c.must(servers.Retry(ctx, f))
}

// status waits until the status of these buckets begins with a text.
func (c *client) status(want string, names ...string) {
	c.t.Helper()
	c.until(func(ctx context.Context) error {
		for _, name := range names {
			var got string
			if err := c.pool.QueryRow(ctx, "SELECT status FROM bucket WHERE name = $1", name).Scan(&got); err != nil {
				return fmt.Errorf("the status of %s: %w", name, err)
			}
			if !strings.HasPrefix(got, want) {
				return fmt.Errorf("the status of %s is %q, want %q", name, got, want)
			}
		}
		return nil
	})
}

// bucket returns a bucket as one line of its settings, "none" if it does not exist.
func (c *client) bucket(ctx context.Context, name string) (string, error) {
	set, err := c.s3.GetBucketTagging(ctx, name)
	switch code(err) {
	case minio.NoSuchBucket:
		return "none", nil
	case "NoSuchTagSet":
		set, err = tags.NewTags(nil, false)
	}
	if err != nil {
		return "", err
	}
	versioning, err := c.s3.GetBucketVersioning(ctx, name)
	var all []string
	for key, value := range set.ToMap() {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return strings.Join(append(all, versioning.Status), " "), err
}

// want checks a bucket.
func (c *client) want(name, want string) {
	c.t.Helper()
	got, err := c.bucket(c.t.Context(), name)
	if err != nil || strings.TrimSpace(got) != want {
		c.t.Errorf("bucket %s is %q, %v, want %q", name, got, err, want)
	}
}

// becomes waits for a bucket.
func (c *client) becomes(name, want string) {
	c.t.Helper()
	c.until(func(ctx context.Context) error {
		got, err := c.bucket(ctx, name)
		if err == nil && strings.TrimSpace(got) != want {
			err = fmt.Errorf("bucket %s is %q, want %q", name, got, want)
		}
		return err
	})
}

func (c *client) tag(name string, set map[string]string) {
	c.t.Helper()
	all, err := tags.NewTags(set, false)
	c.must(err)
	c.must(c.s3.SetBucketTagging(c.t.Context(), name, all))
}

func (c *client) put(name, key string) {
	c.t.Helper()
	_, err := c.s3.PutObject(c.t.Context(), name, key, strings.NewReader("data"), 4, minio.PutObjectOptions{})
	c.must(err)
}

// A world is the servers, and a client of them.
type world struct {
	*client
	*local
}

// newWorld starts the servers, which end with the test.
func newWorld(t *testing.T) *world {
	t.Helper()
	l, err := newLocal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return &world{newClient(t, l.postgres.URL(), l.endpoint, l.key), l}
}

// A replica is the program at work.
type replica struct {
	*servers.Process
	*client
	address string
}

// start starts a replica, which lists ten times a second.
func (w *world) start(args ...string) replica {
	w.t.Helper()
	p, address, err := w.replica(append([]string{"-period", "100ms"}, args...)...)
	w.must(err)
	w.t.Cleanup(p.Kill)
	p.Log = nil
	w.must(p.Start(w.t.Context()))
	return replica{p, w.client, address}
}

// logs waits until n lines of the log have all these texts.
func (r replica) logs(n int, texts ...string) {
	r.t.Helper()
	r.until(func(context.Context) error {
		found := 0
		for line := range strings.Lines(r.Output()) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				found++
			}
		}
		if found < n {
			return fmt.Errorf("%d lines of the log have %q, want %d; it is\n%s", found, texts, n, r.Output())
		}
		return nil
	})
}

// metric waits until a series of the leader has a value.
func (r replica) metric(name string, want int) {
	r.t.Helper()
	r.until(func(context.Context) error {
		_, text := get(r.t, "http://"+r.address+"/metrics")
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^%s\{.*\} %d$`, name, want)).MatchString(text) {
			return fmt.Errorf("%s is not %d:\n%s", name, want, text)
		}
		return nil
	})
}
