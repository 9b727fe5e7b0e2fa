// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"reflect"
	"strconv"
	"strings"
)

// magic is the first line of the file. Each of the others is a record: these fields,
// with a tab between two of them.
//
//	checksum (CRC-32C, 8 hexadecimal digits) of the rest of the line
//	verb
//	how many bytes of the file the disk had for certain when this was written
//	item
//	version, if the verb is done
//
// A string is quoted as in Go, anything else is JSON, so neither has a tab or the end
// of a line. A record with the verb synced has no item. The disk has all that is
// before it, so nothing there may be bad: without it, bad records that no fsync came
// after look like what a loss of power leaves, and are cut off.
const magic = "reconcile remember 2\n"

// The verbs.
const (
	begin  = "begin"
	done   = "done"
	forget = "forget"
	synced = "synced"
)

type record struct {
	verb, item, version string
	safe                int64 // bytes of the file that the disk had
}

func newRecord[T, V comparable](verb string, item T, version V) (r record, err error) {
	defer refuse(&err)
	r.verb = verb
	r.item, err = encode(item)
	if err == nil && verb == done {
		r.version, err = encode(version)
	}
	return r, err
}

// append appends the record as it stands in the file.
func (r record) append(b []byte) []byte {
	start := len(b)
	b = append(b, "00000000\t"+r.verb+"\t"+strconv.FormatInt(r.safe, 10)+"\t"+r.item+"\t"+r.version+"\n"...)
	copy(b[start:], fmt.Sprintf("%08x", crc32.Checksum(b[start+8:], crc32.MakeTable(crc32.Castagnoli))))
	return b
}

// parse returns the record that a line ends with, and its text, which is empty if
// there is none that is whole. Before it may be a record whose own end of the line is
// damaged.
func parse(line string) (r record, text string) {
	fields := strings.Split(line, "\t")
	if len(fields) < 5 {
		return r, ""
	}
	fields = fields[len(fields)-4:]
	safe, _ := strconv.ParseInt(fields[1], 10, 64)
	r = record{fields[0], fields[2], strings.TrimSuffix(fields[3], "\n"), safe}
	if text = string(r.append(nil)); !strings.HasSuffix(line, text) {
		text = ""
	}
	return r, text
}

// scan calls apply for each record, and returns how many bytes of the data are whole,
// and how many of these the disk had when the last of them was written.
// What the end of a process leaves is a record that is not, with nothing behind it;
// a loss of power also leaves whole ones behind it, as a disk writes in any order.
// But if one of these was written when the disk had the bad one, that was damaged.
func scan(data string, apply func(record) error) (whole, safe int64, err error) {
	if !strings.HasPrefix(data, magic) {
		return 0, 0, fmt.Errorf("this is no file of package remember: it does not begin with %q", magic)
	}
	whole, bad := int64(len(magic)), false
	for line := range strings.Lines(data[whole:]) {
		r, text := parse(line)
		bad = bad || text != line
		switch {
		case !bad:
			if err := apply(r); err != nil {
				return 0, 0, fmt.Errorf("record at byte %d: %w", whole, err)
			}
			whole += int64(len(line))
			safe = max(safe, r.safe)
		case text != "" && r.safe > whole:
			return 0, 0, fmt.Errorf("damaged at byte %d, with whole records behind it; what is before it can be kept by cutting the file off there", whole)
		}
	}
	// The disk had the first record before the file got its name; of files that
	// were made otherwise it may have had the first part.
	if rest := data[len(magic):]; whole == int64(len(magic)) && !strings.HasPrefix(string(firstRecord), rest) {
		return 0, 0, fmt.Errorf("damaged at byte %d, with no whole record at all; an empty one can be made by removing it", whole)
	}
	return whole, safe, nil
}

// firstRecord is the first record of a file that was made with no entries.
var firstRecord = record{verb: synced, safe: int64(len(magic))}.append(nil)

// encode returns v as it stands in a record. It may panic, by a method of T or a
// comparison.
func encode[T comparable](v T) (string, error) {
	if reflect.TypeFor[T]().Kind() == reflect.String { // JSON would change what is no UTF-8
		return strconv.Quote(reflect.ValueOf(v).String()), nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	back, err := decode[T](string(text))
	if err == nil && back != v {
		err = fmt.Errorf("%T %s comes back from JSON, %s, as %T %s", v, brief(v), brief(string(text)), back, brief(back))
	}
	return string(text), err
}

func decode[T comparable](text string) (v T, err error) {
	if reflect.TypeFor[T]().Kind() == reflect.String {
		text, err = strconv.Unquote(text)
		reflect.ValueOf(&v).Elem().SetString(text)
		return v, err
	}
	err = json.Unmarshal([]byte(text), &v)
	return v, err
}

// refuse makes an error of a panic. One that went on through Open would keep the lock
// of the file.
func refuse(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic: %v", v)
	}
}
