// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
)

// A codec turns an item into the last tokens of its subject, and back. Equal
// items have equal tokens, and unequal ones unequal tokens.
type codec[T comparable] struct {
	shape  string                  // of the items, for those who make another queue of the same name
	encode func(T) (string, error) // into one or more tokens
	decode func(string) (T, error)
}

// maxTokens is how long the tokens of an item may be. What is longer is hashed
// in the subject, and stands in the record.
const maxTokens = 512

// newCodec returns the codec of a type that is made of strings, integers and
// booleans: a token for each of them, in the order of the fields.
func newCodec[T comparable]() (codec[T], error) {
	t := reflect.TypeFor[T]()
	if err := encodable(t, "it"); err != nil {
		return codec[T]{}, fmt.Errorf("natsadapter: queue.New[%v]: %w; "+
			"an item is a string, an integer, a boolean, or a struct or array of them with all fields exported; "+
			"queue.NewFunc takes any other with functions that encode and decode it", t, err)
	}
	return codec[T]{
		shape: shape(t),
		encode: func(item T) (string, error) {
			var b []byte
			for i, leaf := range appendLeaves(nil, reflect.ValueOf(&item).Elem()) {
				if i > 0 {
					b = append(b, '.')
				}
				switch k := leaf.Kind(); {
				case k == reflect.String:
					b = appendToken(b, leaf.String())
				case k == reflect.Bool:
					b = strconv.AppendBool(b, leaf.Bool())
				case leaf.CanInt():
					b = strconv.AppendInt(b, leaf.Int(), 10)
				default:
					b = strconv.AppendUint(b, leaf.Uint(), 10)
				}
			}
			return string(b), nil
		},
		decode: func(s string) (item T, err error) {
			tokens := strings.Split(s, ".")
			leaves := appendLeaves(nil, reflect.ValueOf(&item).Elem())
			if len(tokens) != len(leaves) {
				return item, fmt.Errorf("%d tokens, want %d", len(tokens), len(leaves))
			}
			for i, leaf := range leaves {
				if err := setToken(leaf, tokens[i]); err != nil {
					return item, err
				}
			}
			return item, nil
		},
	}, nil
}

// funcCodec returns a codec of one token by functions of the user. A panic in
// them is an error. So is an item that decode does not make anew from what encode
// returns, as a new pointer is: the maps of a Queue know an item by ==, so a run of it
// would be taken for one that this process does not have, and start twice.
func funcCodec[T comparable](encode func(T) string, decode func(string) (T, error)) codec[T] {
	encodeItem := func(item T) (s string, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("natsadapter: the function to encode items panicked for %#v: %v", item, p)
			}
		}()
		return encode(item), nil
	}
	decodeItem := func(s string) (item T, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("natsadapter: the function to decode items panicked for %q: %v", s, p)
			}
		}()
		return decode(s)
	}
	return codec[T]{
		shape: "of NewQueueFunc", // as NewFunc was called: it is in the metadata of streams
		encode: func(item T) (string, error) {
			s, err := encodeItem(item)
			if err != nil {
				return "", err
			}
			switch same, err := decodeItem(s); {
			case err != nil:
				return "", fmt.Errorf("natsadapter: item %s is encoded as %q, which cannot be decoded: %w", brief(item), brief(s), err)
			case same != item:
				return "", fmt.Errorf("natsadapter: item %s of type %T is encoded as %q, which is decoded as another item, %s; want one that is equal by ==, which a new pointer is not",
					brief(item), item, brief(s), brief(same))
			}
			return string(appendToken(nil, s)), nil
		},
		decode: func(s string) (item T, err error) {
			if s, err = unescape(s); err != nil {
				return item, err
			}
			return decodeItem(s)
		},
	}
}

// encodable returns an error that names the part of t that has no tokens.
func encodable(t reflect.Type, what string) error {
	switch t.Kind() {
	case reflect.String, reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return nil
	case reflect.Array:
		if t.Len() == 0 {
			return fmt.Errorf("%s is an array of no elements", what)
		}
		return encodable(t.Elem(), "an element of "+what)
	case reflect.Struct:
		if t.NumField() == 0 {
			return fmt.Errorf("%s is a struct of no fields", what)
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				return fmt.Errorf("its field %s is not exported", f.Name)
			}
			if err := encodable(f.Type, "its field "+f.Name); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%s is a %v", what, t.Kind())
}

// shape says what the tokens of an encodable type mean. Types of one shape can stand
// for each other.
func shape(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), shape(t.Elem()))
	case t.Kind() == reflect.Struct:
		var fields []string
		for i := range t.NumField() {
			fields = append(fields, t.Field(i).Name+" "+shape(t.Field(i).Type))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case t.Kind() == reflect.String || t.Kind() == reflect.Bool:
		return t.Kind().String()
	case reflect.Zero(t).CanInt():
		return "int"
	}
	return "uint"
}

// appendLeaves appends the strings, integers and booleans that v is made of.
func appendLeaves(leaves []reflect.Value, v reflect.Value) []reflect.Value {
	switch v.Kind() {
	case reflect.Array:
		for i := range v.Len() {
			leaves = appendLeaves(leaves, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			leaves = appendLeaves(leaves, v.Field(i))
		}
	default:
		leaves = append(leaves, v)
	}
	return leaves
}

func setToken(v reflect.Value, token string) error {
	s, err := unescape(token)
	if err != nil {
		return err
	}
	switch k := v.Kind(); {
	case k == reflect.String:
		v.SetString(s)
	case k == reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(s)
		v.SetBool(b)
	case v.CanInt():
		var n int64
		n, err = strconv.ParseInt(s, 10, v.Type().Bits())
		v.SetInt(n)
	default:
		var n uint64
		n, err = strconv.ParseUint(s, 10, v.Type().Bits())
		v.SetUint(n)
	}
	return err
}

// appendToken writes a string of any bytes as one token of a subject: letters,
// digits, "_" and "-" stand for themselves, every other byte is "=" and two hex
// digits, and "=" alone is the empty string.
func appendToken(b []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	if s == "" {
		return append(b, '=')
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
			b = append(b, c)
		default:
			b = append(b, '=', digits[c>>4], digits[c&15])
		}
	}
	return b
}

// unescape undoes appendToken.
func unescape(s string) (string, error) {
	if s == "=" {
		return "", nil
	}
	text, err := url.PathUnescape(strings.ReplaceAll(s, "=", "%"))
	if err != nil {
		return "", fmt.Errorf("token %q: %w", s, err)
	}
	return text, nil
}

// shorten returns what stands in the subject for the tokens of an item: they
// themselves, or a token that no item has otherwise.
func shorten(tokens string) string {
	if len(tokens) <= maxTokens {
		return tokens
	}
	sum := sha256.Sum256([]byte(tokens))
	return "=h" + hex.EncodeToString(sum[:])
}

// shortened reports whether tokens are what shorten makes of long ones.
func shortened(tokens string) bool { return strings.HasPrefix(tokens, "=h") }

// brief returns the beginning of an item as text, for errors.
func brief(item any) string {
	const most = 60
	s := fmt.Sprint(item)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
