// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// A codec makes bytes of values and values of bytes.
type codec[T comparable] struct {
	text bool // T is a string type, kept as it is: JSON would change what is no UTF-8
}

func newCodec[T comparable]() (codec[T], error) {
	t := reflect.TypeFor[T]()
	switch t.Kind() {
	case reflect.Pointer, reflect.UnsafePointer, reflect.Chan, reflect.Func, reflect.Interface:
		return codec[T]{}, fmt.Errorf("a %v cannot be remembered; want a string, a number, or a struct of those", t)
	}
	return codec[T]{text: t.Kind() == reflect.String}, nil
}

func (c codec[T]) encode(v T) (b []byte, err error) {
	if c.text {
		return []byte(reflect.ValueOf(v).String()), nil
	}
	defer refuse(&err)
	if b, err = json.Marshal(v); err != nil {
		return nil, err
	}
	if back, err := c.decode(b); err != nil {
		return nil, err
	} else if back != v {
		return nil, fmt.Errorf("it comes back from JSON, %s, as %s", brief(string(b)), brief(back))
	}
	return b, nil
}

func (c codec[T]) decode(b []byte) (v T, err error) {
	if c.text {
		reflect.ValueOf(&v).Elem().SetString(string(b))
		return v, nil
	}
	defer refuse(&err)
	if err := json.Unmarshal(b, &v); err != nil {
		return v, err
	}
	if v != v { // panics if it has something in an interface that cannot be compared
		return v, fmt.Errorf("it is not equal to itself: %v", v)
	}
	return v, nil
}

// refuse makes an error of a panic, of a method of T or of a comparison. One that went
// on through Open would keep the lock of the file.
func refuse(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic: %v", v)
	}
}
