// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package cloud is a small cloud in memory that holds buckets and the keys that
// encrypt them. It stands where a real provider and its SDK would: calls take time and
// fail, and a creation goes on after the call. A key must be ready before a bucket can
// use it, and cannot be deleted while a bucket uses it.
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

// An ID names an asset. It is comparable, small and never changes: a good item for a
// queue.
type ID struct{ Kind, Name string }

// String gives "bucket/invoices".
func (id ID) String() string { return id.Kind + "/" + id.Name }

// A Spec is the part of an asset that a client can set.
type Spec struct {
	Region string // one of [Regions]; cannot be changed later
	Size   string // of a bucket, such as large
	Key    string // of a bucket: the name of the key that encrypts it; "" means none
	Team   string // who owns it
}

// Regions are the regions of the cloud.
var Regions = []string{"ap-south", "eu-north", "eu-west", "us-east", "us-west"}

// An Asset is the actual state of a bucket or key.
type Asset struct {
	ID ID
	Spec
	State     State
	Operation string // the creation, which may still be going on
	Reason    string // why the creation failed, if it did
	Version   int64  // another one after each change
}

// A State tells how far the creation of an asset is.
type State string

// The states of an asset.
const (
	Creating State = "creating"
	Ready    State = "ready"
	Failed   State = "failed" // it can only be deleted
)

// An Event tells that an asset has changed. The first event of a stream has no asset:
// from then on no change is missed.
type Event struct {
	Asset ID
	What  string
}

// ErrNotFound is matched by the [Error] for an asset that does not exist.
var ErrNotFound = errors.New("cloud: not found")

// An Error is an answer of the cloud other than success.
type Error struct {
	Code       int           // as of HTTP
	RetryAfter time.Duration // with code 429 or 503: do not call again before that
	Message    string
	Blocking   []ID // the assets that must change first, if any
}

func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Message) }

// Is makes code 404 match [ErrNotFound].
func (e *Error) Is(target error) bool { return target == ErrNotFound && e.Code == 404 }

// Final reports whether the same request can never succeed. A credential, a permission, a
// quota (401, 403, 409) may change without the request.
func (e *Error) Final() bool { return e.Code == 400 || e.Code == 422 }
