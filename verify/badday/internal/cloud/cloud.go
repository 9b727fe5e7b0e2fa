// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package cloud has what example/controller.go needs of the client of its cloud, with
// whatever an [API] is behind it.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// The names are those of the example.
const (
	Bucket = "bucket"
	Key    = "key"
)

type ID struct{ Kind, Name string }

func (id ID) String() string { return id.Kind + "/" + id.Name }

type Spec struct {
	Region, Size, Key string
	Labels            map[string]string
}

type Asset struct {
	ID ID
	Spec
	State             State
	Operation, Reason string
	Version           int64
}

type State string

const (
	Creating State = "creating"
	Ready    State = "ready"
	Failed   State = "failed"
)

type Event struct {
	Asset ID
	What  string
}

var ErrNotFound = errors.New("cloud: not found")

type Error struct {
	Status     int
	RetryAfter time.Duration
	Message    string
	Blocking   []ID
}

func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Message) }

func (e *Error) Is(target error) bool { return target == ErrNotFound && e.Status == 404 }

func (e *Error) Final() bool {
	switch e.Status {
	case 400, 401, 403, 409, 422:
		return len(e.Blocking) == 0
	}
	return false
}

// A Client speaks to an API.
type Client struct{ API }

type API interface {
	Get(ctx context.Context, id ID) (Asset, error)
	List(ctx context.Context, kind string) ([]Asset, error)
	Create(ctx context.Context, id ID, spec Spec) (Asset, error)
	Update(ctx context.Context, id ID, spec Spec, version int64) error
	Delete(ctx context.Context, id ID) error
	Events(ctx context.Context) iter.Seq2[Event, error]
}
