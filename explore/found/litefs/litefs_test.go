// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package litefs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/superfly/litefs"
	"github.com/superfly/litefs/consul"
	"github.com/superfly/ltx"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/found/internal/foundtest"
)

// hosts replaces the default transport, which LiteFS uses: each process has a host of its
// own.
var hosts transports

type transports struct{ sync.Map }

func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	transport, ok := t.Load(r.URL.Host)
	if !ok {
		return nil, fmt.Errorf("no such host: %s", r.URL.Host)
	}
	return transport.(http.RoundTripper).RoundTrip(r)
}

// A world is a Consul server, and the disks and the network of two nodes.
type world struct {
	dir      string // of the disks
	sessions map[string]time.Time
	keys     map[string]value
	free     time.Time // when the lock may be acquired again
	created  int
	nodes    map[string]*node // by URL; without a Store until they start
	cuts     int              // of the network
}

type value struct {
	Key     string
	Value   []byte
	Session string
}

type node struct {
	*explore.Process
	*litefs.Store
}

func newWorld() *world {
	dir, err := os.MkdirTemp("", "litefs")
	if err != nil {
		panic(err)
	}
	return &world{dir: dir, sessions: map[string]time.Time{}, keys: map[string]value{}, nodes: map[string]*node{"http://a": {}, "http://b": {}}}
}

func (w *world) primaries() (names []string) {
	for name, n := range w.nodes {
		if n.Store != nil && n.Context().Err() == nil && n.IsPrimary() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Consul ends a session at least once and at most twice its TTL after the last renewal. A
// session that ends deletes its key, which cannot be acquired again for a second.
const ttl = 2 * consul.DefaultTTL

func (w *world) end(session string) {
	delete(w.sessions, session)
	for name, v := range w.keys {
		if v.Session == session {
			delete(w.keys, name)
			w.free = time.Now().Add(consul.DefaultLockDelay)
		}
	}
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	for session, ends := range w.sessions {
		if time.Now().After(ends) {
			w.end(session)
		}
	}
	path, query := strings.TrimPrefix(r.URL.Path, "/v1/"), r.URL.Query()
	verb, name := filepath.Split(path)
	var answer any
	switch key, isKey := strings.CutPrefix(path, "kv/"); {
	case path == "catalog/register":
		answer = true
	case path == "session/create":
		w.created++
		id := fmt.Sprint("session-", w.created)
		w.sessions[id] = time.Now().Add(ttl)
		answer = map[string]string{"ID": id}
	case verb == "session/renew/" && !w.sessions[name].IsZero():
		w.sessions[name] = time.Now().Add(ttl)
		answer = []map[string]string{{"ID": name, "TTL": consul.DefaultTTL.String()}}
	case verb == "session/destroy/":
		w.end(name)
		answer = true
	case isKey && r.Method == http.MethodGet && w.keys[key].Key != "":
		answer = []value{w.keys[key]}
	case isKey && query.Has("acquire"):
		session := query.Get("acquire")
		can := !w.sessions[session].IsZero() && !time.Now().Before(w.free) && (w.keys[key].Session == "" || w.keys[key].Session == session)
		if can {
			text, _ := io.ReadAll(r.Body)
			w.keys[key] = value{Key: key, Value: text, Session: session}
		}
		answer = can
	case isKey && query.Has("release"):
		held := w.keys[key].Session == query.Get("release")
		if held {
			text, _ := io.ReadAll(r.Body)
			w.keys[key] = value{Key: key, Value: text}
		}
		answer = held
	case isKey && r.Method == http.MethodPut:
		text, _ := io.ReadAll(r.Body)
		w.keys[key] = value{Key: key, Value: text}
		answer = true
	default:
		http.NotFound(rw, r)
		return
	}
	rw.Header().Set("X-Consul-Index", "1")
	rw.Header().Set("X-Consul-LastContact", "0")
	rw.Header().Set("X-Consul-KnownLeader", "true")
	_ = json.NewEncoder(rw).Encode(answer)
}

// A network connects a replica with the primary. A stream ends when the node is no longer
// primary, or when the network is cut.
type network struct {
	litefs.Client // nil: only what follows is used
	*explore.Process
	*world
}

type stream struct {
	network
	ctx     context.Context
	primary node
	cuts    int
}

func (n network) Stream(ctx context.Context, url string, _ uint64, _ map[string]ltx.Pos, _ []string) (litefs.Stream, error) {
	s := stream{n, ctx, *n.nodes[url], n.cuts}
	if !s.open() {
		return nil, errors.New("connection refused")
	}
	return s, nil
}

func (s stream) open() bool {
	return s.primary.Store != nil && s.primary.Context().Err() == nil && s.primary.IsPrimary() && s.cuts == s.world.cuts
}

func (s stream) ClusterID() string { return s.primary.ClusterID() }
func (stream) Close() error        { return nil }

func (s stream) Read([]byte) (int, error) {
	for s.Step() && s.open() {
		select {
		case <-time.After(time.Second):
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		}
	}
	return 0, io.EOF
}

// start starts a node, whose disk survives its process.
func start(name string) func(proc *explore.Process, w *world) {
	return func(proc *explore.Process, w *world) {
		proc.Go(func(ctx context.Context) error {
			host, url := fmt.Sprintf("%p", proc), "http://"+name
			hosts.Store(host, explore.Transport(proc, w))
			defer hosts.Delete(host)
			leaser := consul.NewLeaser("http://"+host, "primary", name, url)
			for leaser.Open() != nil { // as LiteFS does
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return nil
				}
			}
			store := litefs.NewStore(filepath.Join(w.dir, name), true)
			store.Leaser, store.Client = leaser, network{Process: proc, world: w}
			store.RetentionMonitorInterval, store.HaltLockMonitorInterval = time.Hour, time.Hour // there are no databases
			if err := store.Open(); err != nil {
				return err
			}
			*w.nodes[url] = node{proc, store}
			<-ctx.Done()
			return store.Close()
		})
	}
}

func scenario(t *testing.T) explore.Scenario[*world] {
	before := http.DefaultTransport
	http.DefaultTransport = &hosts
	t.Cleanup(func() { http.DefaultTransport = before })
	return explore.Scenario[*world]{
		World:  newWorld,
		Close:  func(w *world) { os.RemoveAll(w.dir) },
		Start:  start("a"),
		Others: []func(*explore.Process, *world){start("b")},
		Steps: func(env *explore.Environment, w *world) {
			env.Advance(30 * time.Second)
			w.cuts++ // the network fails for a moment
			env.Advance(2 * time.Minute)
			for _, name := range w.primaries() {
				w.nodes[name].Demote() // the operator wants another primary
			}
			env.Advance(2 * time.Minute)
		},
		State: func(w *world) string { return fmt.Sprintf("%d primary", len(w.primaries())) },
		Invariant: func(w *world) error {
			if names := w.primaries(); len(names) > 1 {
				return fmt.Errorf("%q are primary", names)
			}
			return nil
		},
		Without: []explore.Fault{explore.Stale, explore.StaleWatch}, // one server
		Within:  10 * time.Minute,
		Plans:   600,
	}
}

// TestTwoPrimaries finds that the time of a lease is that of the response, for which LiteFS
// waits without a limit.
func TestTwoPrimaries(t *testing.T) {
	foundtest.Find(t, scenario(t), "call PUT /v1/kv/primary?acquire=session-1 #1: slow")
}

// TestClusterID finds that a node that sets the ID of the cluster in Consul and gets no
// response never stores the ID. From then on no node may become primary.
func TestClusterID(t *testing.T) {
	s := scenario(t)
	s.Without = append(s.Without, explore.Slow) // see TestTwoPrimaries
	foundtest.Find(t, s, "call PUT /v1/kv/primary/clusterid #1: answer lost")
}
