// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package cloud is the client of a small cloud that holds buckets and the keys
// that encrypt them. It stands where the SDK of a real provider would.
//
// A bucket or key belongs to one tenant. Creating one goes on in the
// background: the asset tells how far it is. A key must be ready before a bucket
// can use it, and cannot be deleted while a bucket does.
package cloud

import (
	"errors"
	"fmt"
	"time"
)

// The kinds of assets.
const (
	Bucket = "bucket"
	Key    = "key"
)

// An ID names an asset, for all tenants alike. It is comparable, small and
// never changes: what a queue wants for an item.
type ID struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// String gives "bucket/invoices".
func (id ID) String() string { return id.Kind + "/" + id.Name }

// A Spec is what one can ask for.
type Spec struct {
	Region string            `json:"region"`         // cannot be changed later
	Size   string            `json:"size,omitempty"` // of a bucket: small, medium or large
	Key    string            `json:"key,omitempty"`  // of a bucket: the name of the key that encrypts it
	Labels map[string]string `json:"labels,omitempty"`
}

// An Asset is a bucket or a key as it is there.
type Asset struct {
	ID        ID `json:"id"`
	Spec      `json:"spec"`
	State     State  `json:"state"`
	Operation string `json:"operation,omitempty"` // that creates it, or tried to
	Reason    string `json:"reason,omitempty"`    // why that failed
	Version   int64  `json:"version"`             // another one after each change
}

// A State tells how far the creation of an asset came.
type State string

// The states of an asset.
const (
	Creating State = "creating"
	Ready    State = "ready"
	Failed   State = "failed" // it can only be deleted
)

// An Event tells that an asset changed. The one without an asset comes first on
// each stream: from then on no change is missed.
type Event struct {
	Asset ID     `json:"asset,omitzero"`
	What  string `json:"what"`
}

// ErrNotFound is matched by the [Error] for something that is not there.
var ErrNotFound = errors.New("cloud: not found")

// An Error is an answer of the cloud that is not the one hoped for.
type Error struct {
	Status     int           `json:"-"` // of HTTP
	RetryAfter time.Duration `json:"-"` // with status 429: not again before that time
	Message    string        `json:"message"`
	Blocking   []ID          `json:"blocking,omitempty"` // the assets that stand in the way, if any
}

func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Message) }

// Is makes status 404 match [ErrNotFound].
func (e *Error) Is(target error) bool { return target == ErrNotFound && e.Status == 404 }

// Final reports whether the same request can never succeed.
func (e *Error) Final() bool {
	switch e.Status {
	case 400, 401, 403, 409, 422:
		return len(e.Blocking) == 0
	}
	return false
}
