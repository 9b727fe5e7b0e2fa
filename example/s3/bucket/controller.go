// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/internal/board"
)

// Statuses of a bucket after a run, besides those that all items may have.
const (
	Kept    board.Status = "kept"     // no longer desired, but not empty
	NotOurs board.Status = "not ours" // and not desired
	Busy    board.Status = "busy"     // the store asks us to come back later
)

// A Controller keeps the buckets of a store in their desired state. This file is
// the one to copy from: the rest of a service is its own affair.
//
// An item is the name of a bucket. The controller touches only buckets that
// bear its owner's tag, or that it creates itself. A desired bucket without
// tags that is empty becomes its own: see adopt.
type Controller struct {
	Store   *Store        // required
	Owner   string        // required: the value of OwnerTag
	Recheck time.Duration // required: how often a bucket that is in sync is checked
	Purge   bool          // also remove buckets that are not empty, with all that is in them

	// Desired returns the desired state of a bucket now, and whether it is desired.
	// It is required, and called by many goroutines. After an error nothing is done: an
	// unknown state does not count as not desired.
	Desired func(ctx context.Context, name string) (spec Spec, ok bool, err error)

	Did func(name, what string) // told of each step that was done; may be nil
}

// A step is one change to a bucket.
type step struct {
	text string
	do   func(context.Context) error
}

// Reconcile brings one bucket into its desired state. It reads the actual state,
// never what has happened: so it does the right thing after a lost event, an
// answer that never came, or a kill -9.
func (c *Controller) Reconcile(ctx context.Context, name string) error {
	spec, wanted, err := c.Desired(ctx, name)
	if err != nil {
		return fmt.Errorf("read the desired state: %w", err)
	}
	steps, err := c.steps(ctx, name, spec, wanted)
	if err != nil {
		return verdict(err)
	}
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return verdict(fmt.Errorf("%s: %w", s.text, err))
		}
		reconcile.Logger(ctx).Info(s.text)
		if c.Did != nil {
			c.Did(name, s.text)
		}
	}
	// Only a look that finds nothing to do ends with "in sync". What is not as
	// it was set is tried again with back-off: another client is at work, or the
	// store keeps something else than it was told.
	if len(steps) > 0 {
		again, err := c.steps(ctx, name, spec, wanted)
		switch {
		case err != nil:
			return verdict(err)
		case len(again) > 0:
			return fmt.Errorf("after %s there is still to do: %s", texts(steps), texts(again))
		}
	}
	if !wanted {
		return nil // gone: forget it
	}
	// Nothing is left to do. An event brings it back sooner.
	return fmt.Errorf("%w: %w", board.InSync, reconcile.RecheckWithin(c.Recheck))
}

// Plan says what Reconcile would do to one bucket, and does nothing.
func (c *Controller) Plan(ctx context.Context, name string) ([]string, error) {
	spec, wanted, err := c.Desired(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read the desired state: %w", err)
	}
	steps, err := c.steps(ctx, name, spec, wanted)
	plan := make([]string, len(steps))
	for i, s := range steps {
		plan[i] = s.text
	}
	return plan, err
}

// steps looks at a bucket, and returns what is to be done about it. It changes
// nothing itself. The error may be a plan: there is nothing to do now, but
// perhaps later.
func (c *Controller) steps(ctx context.Context, name string, spec Spec, wanted bool) ([]step, error) {
	if c.Owner == "" {
		return nil, reconcile.Terminal(errors.New("Controller.Owner is empty; all buckets without an owner would be ours"))
	}
	if !wanted && checkName(name) != nil {
		return nil, nil // no bucket of ours has such a name, and some clients refuse to ask for it
	}
	owner, tags, err := c.Store.owner(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound) && wanted:
		return c.create(name, spec), nil
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case !wanted && (unreachable(err) || err == nil && owner != c.Owner):
		return nil, fmt.Errorf("%w: %w", NotOurs, reconcile.RecheckWithin(c.Recheck))
	case err != nil:
		return nil, err
	case owner == "" && len(tags) == 0 && wanted:
		return c.adopt(ctx, name, spec)
	case owner != c.Owner:
		return nil, c.refuse(owner)
	case !wanted:
		return c.remove(ctx, name)
	}
	there, err := c.Store.read(ctx, name)
	if err != nil {
		return nil, err
	}
	there.tags = tags
	return c.correct(name, spec, there), nil
}

// refuse returns the reason why a desired bucket is not changed.
func (c *Controller) refuse(owner string) error {
	whose := "it bears no tag " + OwnerTag
	if owner != "" {
		whose = fmt.Sprintf("its tag %s is %q", OwnerTag, owner)
	}
	return reconcile.Terminal(fmt.Errorf("it exists and is not ours: %s; to hand it over, set that tag to %q", whose, c.Owner))
}

// create makes a bucket with all that belongs to it.
func (c *Controller) create(name string, spec Spec) []step {
	create := func(ctx context.Context) error {
		err := c.Store.create(ctx, name, c.Owner, spec.Tags)
		if taken := new(takenError); errors.As(err, &taken) { // another one has made it
			return c.refuse(taken.owner)
		}
		return err
	}
	steps := []step{{"create" + with(spec.Tags), create}}
	return append(steps, c.correct(name, spec, state{tags: spec.Tags})...)
}

// adopt takes over what a creation of ours has left if it was cut short, by the death
// of the store or by ours: a bucket with nothing in it, and no tags or anything else
// set. Nobody remembers that it was us: who might, may be dead. If there is anything,
// somebody else was there.
func (c *Controller) adopt(ctx context.Context, name string, spec Spec) ([]step, error) {
	there, err := c.Store.read(ctx, name)
	if err != nil {
		return nil, err
	}
	key, err := c.Store.foreign(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case key != "" || there.versioning || there.policy != "" || len(there.markers) > 0:
		return nil, c.refuse("")
	}
	return append([]step{{"mark as ours, it is empty and bears no tags", func(ctx context.Context) error {
		return c.Store.setTags(ctx, name, c.Owner, spec.Tags)
	}}}, c.correct(name, spec, state{tags: spec.Tags})...), nil
}

// correct returns the steps from the actual to the desired state.
func (c *Controller) correct(name string, spec Spec, there state) []step {
	var steps []step
	add := func(text string, do func(context.Context) error) { steps = append(steps, step{text, do}) }

	if !maps.Equal(there.tags, spec.Tags) {
		add("set tags "+describe(spec.Tags), func(ctx context.Context) error {
			return c.Store.setTags(ctx, name, c.Owner, spec.Tags)
		})
	}
	if there.versioning != spec.Versioning {
		text := "turn versioning off"
		if spec.Versioning {
			text = "turn versioning on"
		}
		add(text, func(ctx context.Context) error { return c.Store.setVersioning(ctx, name, spec.Versioning) })
	}
	if !samePolicy(there.policy, spec.Policy) {
		text := "set the policy"
		if spec.Policy == "" {
			text = "remove the policy"
		}
		add(text, func(ctx context.Context) error { return c.Store.setPolicy(ctx, name, spec.Policy) })
	}
	for _, m := range slices.Sorted(maps.Keys(spec.Markers)) {
		var seen *marker
		if old, ok := there.markers[m]; ok {
			seen = &old
		}
		if seen == nil || seen.text != spec.Markers[m] {
			add("write marker "+m, func(ctx context.Context) error {
				return c.Store.setMarker(ctx, name, m, spec.Markers[m], seen)
			})
		}
	}
	for _, m := range slices.Sorted(maps.Keys(there.markers)) {
		if _, ok := spec.Markers[m]; !ok {
			add("remove marker "+m, func(ctx context.Context) error { return c.Store.removeMarker(ctx, name, m) })
		}
	}
	return steps
}

// remove removes a bucket of ours that is no longer desired, unless it is not
// empty.
func (c *Controller) remove(ctx context.Context, name string) ([]step, error) {
	if c.Purge {
		return []step{{"remove with all that is in it", func(ctx context.Context) error {
			return c.Store.remove(ctx, name, "")
		}}}, nil
	}
	key, err := c.Store.foreign(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case key != "":
		return nil, fmt.Errorf("%w, it is not empty, there is %s: %w", Kept, key, reconcile.RecheckWithin(c.Recheck))
	}
	return []step{{"remove", func(ctx context.Context) error { return c.Store.remove(ctx, name, MarkerPrefix) }}}, nil
}

// verdict turns a bad answer of the store into what the loop is to do about it.
// What is not listed here is tried again with back-off.
func verdict(err error) error {
	var throttled *Throttled
	var answer minio.ErrorResponse
	switch {
	case errors.As(err, &throttled):
		return fmt.Errorf("%w: %w: %w", Busy, throttled, reconcile.RequeueAfter(throttled.After))
	case !errors.As(err, &answer):
		return err
	case BadCredentials(err):
		return fmt.Errorf("the credentials are rejected: %w", err) // others may come
	case answer.Code == minio.PreconditionFailed:
		return fmt.Errorf("another client has changed it meanwhile: %w", err)
	case final(answer):
		return reconcile.Terminal(fmt.Errorf("%w (%s)", err, answer.Code))
	}
	return err
}

// BadCredentials reports whether the store has rejected the credentials, rather than
// what was asked.
func BadCredentials(err error) bool {
	switch code(err) {
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed", "TokenRefreshRequired",
		"XAdminUserNotFound": // versitygw, if it knows of one user alone
		return true
	}
	return false
}

// unreachable reports whether a bucket cannot be looked at from here: it is
// somebody else's, or in another region.
func unreachable(err error) bool {
	var answer minio.ErrorResponse
	return errors.As(err, &answer) && (answer.Code == minio.AccessDenied || answer.Code == "AuthorizationHeaderMalformed" ||
		answer.StatusCode == http.StatusMovedPermanently || answer.StatusCode == http.StatusTemporaryRedirect)
}

// final reports whether an answer would be the same the next time.
func final(answer minio.ErrorResponse) bool {
	switch answer.StatusCode {
	case http.StatusBadRequest:
		return answer.Code != "RequestTimeout" && answer.Code != "IncompleteBody"
	case http.StatusMovedPermanently, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusConflict:
		return answer.Code == minio.BucketAlreadyExists
	}
	return false
}

func texts(steps []step) string {
	all := make([]string, len(steps))
	for i, s := range steps {
		all[i] = s.text
	}
	return strings.Join(all, ", ")
}

// with says which tags a bucket is created with.
func with(tags map[string]string) string {
	if len(tags) == 0 {
		return ""
	}
	return " with tags " + describe(tags)
}

// describe gives tags as key=value, sorted.
func describe(tags map[string]string) string {
	if len(tags) == 0 {
		return "none"
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		all = append(all, key+"="+tags[key])
	}
	return strings.Join(all, " ")
}
