// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"strings"
	"testing"
	"time"
)

// FuzzRecord reads records with anything in them: none panics, and what is taken has an
// owner that can be a token of a subject, and is written as it was read.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		`{"phase":"ready"}`, `{"phase":"waiting","next":"held","due":"2026-01-02T03:04:05Z"}`,
		`{"phase":"in flight","owner":"abc","fence":3}`, `{"phase":"in flight","owner":"a.b"}`, `{"phase":"idle"}`, `{"next":"recheck"}`,
		`{"phase":"in flight","owner":"` + strings.Repeat("x", 5000) + `"}`, `null`, `[]`, `{"failures":-1}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		r, _, err := decodeRecord(stored{subject: "q.i.a", seq: 7, data: []byte(data)})
		if err != nil {
			if r != (record{}) {
				t.Errorf("%q is refused, and gives %+v", data, r)
			}
			return
		}
		if r.owner != "" && (strings.ContainsAny(r.owner, ".*> \t\r\n") || len(r.owner) > 64) {
			t.Errorf("%q has the owner %q", data, r.owner)
		}
		if r.running && r.fence == 0 {
			t.Errorf("%q is a run without a fence", data)
		}
	})
}

// FuzzItem reads the subjects of items of several types: what is taken is what would
// have been written, so that no item has two records.
func FuzzItem(f *testing.F) {
	type machine struct {
		Region string
		Number int8
		Spare  bool
	}
	texts, err := newCodec[string]()
	if err != nil {
		f.Fatal(err)
	}
	machines, err := newCodec[machine]()
	if err != nil {
		f.Fatal(err)
	}
	byHand := funcCodec(func(d time.Duration) string { return d.String() }, time.ParseDuration)
	for _, seed := range []string{"a", "=61", "=2E", "", ".", "eu.1.true", "eu.01.true", "eu.128.true", "eu.+1.TRUE", "1h", "60m", "1h0m0s", "a=", "=zz", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, tokens string) {
		oneSubject(t, texts, tokens)
		oneSubject(t, machines, tokens)
		oneSubject(t, byHand, tokens)
	})
}

// oneSubject reads a record of an item whose subject has these tokens, and another whose
// subject is as the item would be written: both are of one item only if they are one.
func oneSubject[T comparable](t *testing.T, c codec[T], tokens string) {
	t.Helper()
	q := &Queue[T]{cfg: Config{Name: "q"}, codec: c}
	ready := []byte(`{"phase":"ready"}`)
	item, _, err := q.decode(stored{subject: "q.i." + tokens, seq: 1, data: ready})
	if err != nil {
		return
	}
	own, err := c.encode(item)
	if err != nil || own != tokens {
		t.Errorf("%q is read as %v, which is written as %q, %v", tokens, item, own, err)
	}
	if again, _, err := q.decode(stored{subject: "q.i." + own, seq: 2, data: ready}); err != nil || again != item {
		t.Errorf("%q is read as %v, and then as %v, %v", tokens, item, again, err)
	}
}
