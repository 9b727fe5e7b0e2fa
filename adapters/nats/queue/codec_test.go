// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

type (
	nameType string
	place    struct {
		Namespace, Name string
		Zone            [2]int8
		Main            bool
		Port            uint16
	}
)

func TestCodecTokens(t *testing.T) {
	tokens := func(got string, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range []struct{ got, want string }{
		{tokens(encodeWith("plain-Name_09")), "plain-Name_09"},
		{tokens(encodeWith("")), "="},
		{tokens(encodeWith("=")), "=3D"},
		{tokens(encodeWith("a.b c*>\x00\xff\u00e9")), "a=2Eb=20c=2A=3E=00=FF=C3=A9"},
		{tokens(encodeWith(nameType("x.y"))), "x=2Ey"},
		{tokens(encodeWith(-7)), "-7"},
		{tokens(encodeWith(true)), "true"},
		{tokens(encodeWith(place{"prod", "a.b", [2]int8{1, -2}, true, 80})), "prod.a=2Eb.1.-2.true.80"},
		{tokens(encodeWith(place{})), "=.=.0.0.false.0"},
	} {
		if c.got != c.want {
			t.Errorf("tokens %q, want %q", c.got, c.want)
		}
	}
}

func encodeWith[T comparable](item T) (string, error) {
	c, err := newCodec[T]()
	if err != nil {
		return "", err
	}
	s, err := c.encode(item)
	if err != nil {
		return "", err
	}
	back, err := c.decode(s)
	if err == nil && back != item {
		err = errors.New("decoded to another item")
	}
	return s, err
}

// Whatever the bytes, a token is valid in a subject and is read back as it was.
func TestCodecOfAnyBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	seen := make(map[string]string)
	for range 20000 {
		b := make([]byte, r.IntN(6))
		for i := range b {
			b[i] = byte(r.IntN(256))
			if r.IntN(2) == 0 {
				b[i] = "=.*> h2a"[r.IntN(8)]
			}
		}
		s := string(b)
		token := string(appendToken(nil, s))
		if token == "" || strings.ContainsAny(token, ".*> \t\r\n") || shortened(token) {
			t.Fatalf("%q: token %q is not valid", s, token)
		}
		if other, ok := seen[token]; ok && other != s {
			t.Fatalf("%q and %q both have the token %q", s, other, token)
		}
		seen[token] = s
		if back, err := unescape(token); err != nil || back != s {
			t.Fatalf("%q: token %q is read as %q, %v", s, token, back, err)
		}
	}
	for _, bad := range []string{"a=", "=4", "x=G0", "==", "=4=41"} {
		if got, err := unescape(bad); err == nil {
			t.Errorf("unescape(%q) = %q, want an error", bad, got)
		}
	}
}

func TestCodecErrors(t *testing.T) {
	fails := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "NewFunc") {
			t.Errorf("error %v, want one with %q that tells of NewFunc", err, want)
		}
	}
	_, err := newCodec[float64]()
	fails(err, "it is a float64")
	_, err = newCodec[*int]()
	fails(err, "it is a ptr")
	_, err = newCodec[any]()
	fails(err, "it is a interface")
	_, err = newCodec[struct{ A, b string }]()
	fails(err, "its field b is not exported")
	_, err = newCodec[struct{ A [2]complex64 }]()
	fails(err, "an element of its field A is a complex64")
	_, err = newCodec[struct{}]()
	fails(err, "no fields")
	_, err = newCodec[[0]int]()
	fails(err, "no elements")

	c, err := newCodec[place]()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "a.b", "a.b.1.2.true", "a.b.1.2.true.80.90", "a.b.1.200.true.80", "a.b.1.2.yes.80", "a.b.1.2.true.-80"} {
		if got, err := c.decode(bad); err == nil {
			t.Errorf("decode(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestCodecFunc(t *testing.T) {
	c := funcCodec(func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) },
		func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	for _, f := range []float64{0, -1.5, 1e300} {
		s, err := c.encode(f)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.decode(s); err != nil || got != f || strings.Contains(s, ".") {
			t.Errorf("%v: %q, %v, %v", f, s, got, err)
		}
	}
	if got, err := c.decode("x=zz"); err == nil {
		t.Errorf("decode: %v, want an error", got)
	}
}

// The queue knows an item by ==. What decode makes anew is another item each time, so
// that a run in flight would be reclaimed while it lives.
func TestCodecFuncRefusesItemsThatAreNotEqualAgain(t *testing.T) {
	type machine struct{ name string }
	pointers := funcCodec(func(m *machine) string { return m.name }, func(s string) (*machine, error) { return &machine{s}, nil })
	if tokens, err := pointers.encode(&machine{"m1"}); err == nil || !strings.Contains(err.Error(), "m1") || !strings.Contains(err.Error(), "*queue.machine") {
		t.Errorf("a pointer to m1: %q, %v, want an error that names item and type", tokens, err)
	}
	q := &Queue[*machine]{cfg: Config{Name: "q"}, codec: pointers}
	if item, _, err := q.decode(stored{subject: "q.i.m1", seq: 1, data: []byte(`{"phase":"ready"}`)}); err == nil {
		t.Errorf("a record of m1: %v, want an error", item)
	}
	known := map[string]*machine{"m1": {"m1"}}
	same := funcCodec(func(m *machine) string { return m.name }, func(s string) (*machine, error) { return known[s], nil })
	if tokens, err := same.encode(known["m1"]); err != nil || tokens != "m1" {
		t.Errorf("the one pointer to m1: %q, %v", tokens, err)
	}
	lossy := funcCodec(strings.ToLower, func(s string) (string, error) { return s, nil })
	if tokens, err := lossy.encode("A"); err == nil {
		t.Errorf("an item that is encoded as another one: %q, want an error", tokens)
	}
}

func TestLongItemsAreShortened(t *testing.T) {
	long := strings.Repeat("x", maxTokens)
	if got := shorten(long); got != long {
		t.Errorf("%d characters were shortened", len(long))
	}
	a, b := shorten(long+"a"), shorten(long+"b")
	if a == b || !shortened(a) || len(a) > 100 {
		t.Errorf("shortened to %q and %q", a, b)
	}
	r := record{next: nextReady, since: 5, pending: 5}
	got, m, err := decodeRecord(stored{"q.i." + a, 1, encodeRecord(&r, long+"a", "w")})
	if err != nil || got != r || m.Item != long+"a" {
		t.Errorf("%+v, %+v, %v", got, m, err)
	}
}

func TestVersions(t *testing.T) {
	for s, want := range map[string]version{
		"2.9.10": {2, 9, 10}, "2.12.0-preview.1": {2, 12, 0}, "v2.15.2": {2, 15, 2}, "2.14": {2, 14, 0}, "": {}, "unknown": {},
	} {
		if got := parseVersion(s); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
	v := version{2, 12, 1}
	for _, o := range []version{{2, 12, 1}, {2, 9, 10}, {1, 99, 99}} {
		if !v.atLeast(o) {
			t.Errorf("%v is not at least %v", v, o)
		}
	}
	for _, o := range []version{{2, 12, 2}, {2, 13, 0}, {3, 0, 0}} {
		if v.atLeast(o) {
			t.Errorf("%v is at least %v", v, o)
		}
	}
}
