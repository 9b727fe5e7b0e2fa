// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
)

// sealed is what looks like a record from the outside.
func sealed(inside string) []byte {
	text := append(make([]byte, prefix), inside...)
	binary.LittleEndian.PutUint32(text, uint32(len(inside)))
	binary.LittleEndian.PutUint32(text[4:], checksum(text))
	return text
}

// A checksum that is right does not make a record.
func TestWhatIsSealedAndNoRecord(t *testing.T) {
	if r, n := parse(sealed("d\x00\x01a1")); n != 13 || string(r.item) != "a" || string(r.version) != "1" {
		t.Fatalf("parse of a record = %+v, %d", r, n)
	}
	for name, inside := range map[string]string{
		"verb alone":             "d",
		"loose without end":      "d\x80",
		"loose of 70 bits":       "d" + strings.Repeat("\xff", 10) + "\x00",
		"no length of the item":  "d\x00",
		"length without end":     "d\x00\x80",
		"length of 70 bits":      "d\x00" + strings.Repeat("\xff", 10) + "\x00",
		"item longer by one":     "d\x00\x03ab",
		"item much too long":     "d\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01ab",
		"verb that is not known": "x\x00\x01a",
		"version of one begun":   "b\x00\x01a1",
		"version of one gone":    "f\x00\x01a1",
		"nothing":                "",
	} {
		if r, n := parse(append(sealed(inside), "behind it"...)); n != 0 {
			t.Errorf("%s: parse = %+v, %d, want none", name, r, n)
		}
	}
}

// Only what begins behind the last whole record can be one that it is damage to miss.
func TestFileIsNotMisledByTheEndOfARecord(t *testing.T) {
	behind := record{verb: did, item: []byte("b"), version: []byte("2")}.append(nil)
	text := record{verb: did, item: []byte("a"), version: []byte("1")}.append([]byte(magic))
	text = record{verb: forgot, item: behind[:1]}.append(text) // so it ends as the other one begins
	f := reopen(t, diskWith(slices.Concat(text, behind[1:])))
	if got, want := maps.Collect(f.All()), (map[string]int{"a": 1}); !maps.Equal(got, want) {
		t.Errorf("remembered %v, want %v", got, want)
	}
}
