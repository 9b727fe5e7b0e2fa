// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
)

// This file holds the format of the file: the line magic, and then records, each of
// them
//
//	4 bytes  length of what follows the checksum
//	4 bytes  checksum (CRC-32C) of the length and of what follows
//	1 byte   verb
//	varint   how many of the bytes before this record may not be on the disk
//	varint   length of the item
//	         the item
//	         the version, if the verb is did; how many records are before it, a
//	         varint, if the verb is checked
//
// A record with the verb checked has no item. It says that the disk has all that is
// before it, so nothing there may be bad: without it, bad records that no fsync came
// after look like what a loss of power leaves, and are cut off.
//
// Numbers are little-endian. No record has the length 0, so zeros are no record.

const (
	magic  = "reconcile remember 1\n"
	prefix = 8 // bytes before the verb
)

// A verb says what was noted.
type verb byte

const (
	began   verb = 'b'
	did     verb = 'd'
	forgot  verb = 'f'
	checked verb = 'c'
)

type record struct {
	verb          verb
	item, version []byte
	loose         uint64 // bytes before it that were not synced when it was written
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkpoint returns the record to write after so many others, which the disk has.
func checkpoint(records int) record {
	return record{verb: checked, version: binary.AppendUvarint(nil, uint64(records))}
}

// append appends the record as it stands in the file.
func (r record) append(b []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, prefix)...)
	b = append(b, byte(r.verb))
	b = binary.AppendUvarint(b, r.loose)
	b = binary.AppendUvarint(b, uint64(len(r.item)))
	b = append(b, r.item...)
	b = append(b, r.version...)
	text := b[start:]
	binary.LittleEndian.PutUint32(text, uint32(len(text)-prefix))
	binary.LittleEndian.PutUint32(text[4:], checksum(text))
	return b
}

func checksum(text []byte) uint32 {
	return crc32.Update(crc32.Checksum(text[:4], castagnoli), castagnoli, text[prefix:])
}

// parse returns the record at the beginning of b and its length, or 0 if there is
// none that is whole.
func parse(b []byte) (r record, n int) {
	if len(b) < prefix {
		return r, 0
	}
	length := uint64(binary.LittleEndian.Uint32(b))
	if length == 0 || length > uint64(len(b)-prefix) {
		return r, 0
	}
	text := b[:prefix+length]
	if binary.LittleEndian.Uint32(b[4:]) != checksum(text) {
		return r, 0
	}
	rest := text[prefix+1:]
	loose, used := binary.Uvarint(rest)
	if used <= 0 {
		return r, 0
	}
	rest = rest[used:]
	size, used := binary.Uvarint(rest)
	if used <= 0 || size > uint64(len(rest)-used) {
		return r, 0
	}
	rest = rest[used:]
	r = record{verb: verb(text[prefix]), item: rest[:size], version: rest[size:], loose: loose}
	switch r.verb {
	case did:
	case checked:
		if _, used := binary.Uvarint(r.version); used <= 0 || used < len(r.version) || len(r.item) > 0 {
			return r, 0
		}
	case began, forgot:
		if len(r.version) > 0 {
			return r, 0
		}
	default:
		return r, 0
	}
	return r, len(text)
}

// scan calls apply for each record, and returns how much of the data is whole.
// What the end of a process leaves is a record that is not, with nothing behind it;
// a loss of power also leaves whole ones behind it, as a disk writes in any order.
// But if one of these was written when the disk had the bad one, that was damaged.
func scan(data []byte, apply func(record) error) (whole int, err error) {
	if !strings.HasPrefix(string(data[:min(len(data), len(magic))]), magic) {
		return 0, fmt.Errorf("this is no file of package remember: it does not begin with %q", magic)
	}
	at := len(magic)
	for at < len(data) {
		r, n := parse(data[at:])
		if n == 0 {
			break
		}
		if err := apply(r); err != nil {
			return 0, fmt.Errorf("record at byte %d: %w", at, err)
		}
		at += n
	}
	for next, n := at+1, 0; next < len(data); next += max(n, 1) {
		var r record
		if r, n = parse(data[next:]); n > 0 && r.loose < uint64(next-at) {
			return 0, fmt.Errorf("damaged at byte %d, with whole records behind it; what is before it can be kept by cutting the file off there", at)
		}
	}
	return at, nil
}
