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
	Kept    board.Status = "kept"     // not wished for any more, but something is in it
	NotOurs board.Status = "not ours" // and nobody wishes for it
	Busy    board.Status = "busy"     // the store asks us to come back later
)

// A Controller makes the buckets of a store what the wishes say. This file is
// the one to copy from: the rest of a service is its own affair.
//
// An item is the name of a bucket. The controller touches only buckets that
// bear its owner's tag, or that it creates itself. One that is wished for, bears
// no tags and is empty is taken for its own: see adopt.
type Controller struct {
	Store   *Store        // required
	Owner   string        // required: the value of OwnerTag
	Recheck time.Duration // required: how often to look at a bucket that is in sync
	Purge   bool          // also remove buckets that are not empty, with all that is in them

	// Wish says what is wished for a bucket now, and whether it is at all.
	// Required; called by many goroutines. After an error nothing is done: what
	// is not known is not taken for not wished.
	Wish func(ctx context.Context, name string) (wish Wish, wanted bool, err error)

	Did func(name, what string) // told of each step that was done; may be nil
}

// A step is one change to a bucket.
type step struct {
	text string
	do   func(context.Context) error
}

// Reconcile makes one bucket what is wished. It asks the store what is there,
// never what has happened: so it does the right thing after a lost event, an
// answer that never came, or a kill -9.
func (c *Controller) Reconcile(ctx context.Context, name string) error {
	wish, wanted, err := c.Wish(ctx, name)
	if err != nil {
		return fmt.Errorf("asking what is wished: %w", err)
	}
	steps, err := c.steps(ctx, name, wish, wanted)
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
	// it was set is tried again with back-off: another hand is at work, or the
	// store keeps something else than it was told.
	if len(steps) > 0 {
		again, err := c.steps(ctx, name, wish, wanted)
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
	wish, wanted, err := c.Wish(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("asking what is wished: %w", err)
	}
	steps, err := c.steps(ctx, name, wish, wanted)
	plan := make([]string, len(steps))
	for i, s := range steps {
		plan[i] = s.text
	}
	return plan, err
}

// steps looks at a bucket, and returns what is to be done about it. It changes
// nothing itself. The error may be a plan: there is nothing to do now, but
// perhaps later.
func (c *Controller) steps(ctx context.Context, name string, wish Wish, wanted bool) ([]step, error) {
	if c.Owner == "" {
		return nil, reconcile.Terminal(errors.New("Controller.Owner is empty; all buckets without an owner would be ours"))
	}
	if !wanted && checkName(name) != nil {
		return nil, nil // no bucket of ours has such a name, and some clients refuse to ask for it
	}
	owner, tags, err := c.Store.owner(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound) && wanted:
		return c.create(name, wish), nil
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case !wanted && (unreachable(err) || err == nil && owner != c.Owner):
		return nil, fmt.Errorf("%w: %w", NotOurs, reconcile.RecheckWithin(c.Recheck))
	case err != nil:
		return nil, err
	case owner == "" && len(tags) == 0 && wanted:
		return c.adopt(ctx, name, wish)
	case owner != c.Owner:
		return nil, c.refuse(owner)
	case !wanted:
		return c.remove(ctx, name)
	}
	there, err := c.Store.look(ctx, name)
	if err != nil {
		return nil, err
	}
	there.tags = tags
	return c.mend(name, wish, there), nil
}

// refuse says why a bucket that is wished for is not touched.
func (c *Controller) refuse(owner string) error {
	whose := "it bears no tag " + OwnerTag
	if owner != "" {
		whose = fmt.Sprintf("its tag %s is %q", OwnerTag, owner)
	}
	return reconcile.Terminal(fmt.Errorf("it exists and is not ours: %s; to hand it over, set that tag to %q", whose, c.Owner))
}

// create makes a bucket with all that belongs to it.
func (c *Controller) create(name string, wish Wish) []step {
	create := func(ctx context.Context) error {
		err := c.Store.create(ctx, name, c.Owner, wish.Tags)
		if taken := new(takenError); errors.As(err, &taken) { // another one has made it
			return c.refuse(taken.owner)
		}
		return err
	}
	steps := []step{{"create" + with(wish.Tags), create}}
	return append(steps, c.mend(name, wish, state{tags: wish.Tags})...)
}

// adopt takes over what a creation of ours has left if it was cut short, by the death
// of the store or by ours: a bucket with nothing in it, and no tags or anything else
// set. Nobody remembers that it was us: who might, may be dead. If there is anything,
// somebody else was there.
func (c *Controller) adopt(ctx context.Context, name string, wish Wish) ([]step, error) {
	there, err := c.Store.look(ctx, name)
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
		return c.Store.setTags(ctx, name, c.Owner, wish.Tags)
	}}}, c.mend(name, wish, state{tags: wish.Tags})...), nil
}

// mend makes what is there what is wished.
func (c *Controller) mend(name string, wish Wish, there state) []step {
	var steps []step
	add := func(text string, do func(context.Context) error) { steps = append(steps, step{text, do}) }

	if !maps.Equal(there.tags, wish.Tags) {
		add("set tags "+describe(wish.Tags), func(ctx context.Context) error {
			return c.Store.setTags(ctx, name, c.Owner, wish.Tags)
		})
	}
	if there.versioning != wish.Versioning {
		text := "turn versioning off"
		if wish.Versioning {
			text = "turn versioning on"
		}
		add(text, func(ctx context.Context) error { return c.Store.setVersioning(ctx, name, wish.Versioning) })
	}
	if !samePolicy(there.policy, wish.Policy) {
		text := "set the policy"
		if wish.Policy == "" {
			text = "remove the policy"
		}
		add(text, func(ctx context.Context) error { return c.Store.setPolicy(ctx, name, wish.Policy) })
	}
	for _, m := range slices.Sorted(maps.Keys(wish.Markers)) {
		var seen *marker
		if old, ok := there.markers[m]; ok {
			seen = &old
		}
		if seen == nil || seen.text != wish.Markers[m] {
			add("write marker "+m, func(ctx context.Context) error {
				return c.Store.setMarker(ctx, name, m, wish.Markers[m], seen)
			})
		}
	}
	for _, m := range slices.Sorted(maps.Keys(there.markers)) {
		if _, ok := wish.Markers[m]; !ok {
			add("remove marker "+m, func(ctx context.Context) error { return c.Store.removeMarker(ctx, name, m) })
		}
	}
	return steps
}

// remove removes a bucket of ours that nobody wishes for any more, unless
// something is in it.
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
		return fmt.Errorf("the credentials are refused: %w", err) // others may come
	case answer.Code == minio.PreconditionFailed:
		return fmt.Errorf("another hand has changed it meanwhile: %w", err)
	case final(answer):
		return reconcile.Terminal(fmt.Errorf("%w (%s)", err, answer.Code))
	}
	return err
}

// BadCredentials reports whether the store has refused who asks, rather than
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
