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
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
)

// A Controller keeps the buckets of a store in their desired state. The key of a bucket is
// its name. The controller changes only buckets that have the tag of its owner, or that it
// creates itself, and a desired bucket without tags that is empty: see adopt.
//
// Its fields must not be changed once it runs. Its methods may be called from any
// goroutine.
type Controller struct {
	Store *Store // required
	Owner string // required: the value of OwnerTag
	Purge bool   // also delete buckets that are not empty, with all that is in them

	kept sync.Map // the surplus buckets that are not empty: which object was logged as the reason
}

// A Set is a set of buckets. Their tags, without that of the owner, are all that a listing
// shows.
type Set = keep.Set[string, Spec, map[string]string]

// Set returns the Set of all buckets of the owner. It needs the functions for the desired
// state, and a Period. A change in a bucket, besides its tags, is found by its Resync.
func (c *Controller) Set(queue reconcile.Enqueuer[string]) *Set {
	return &Set{
		Queue:  queue,
		Actual: c.list,
		InSync: func(desired Spec, tags map[string]string) bool { return maps.Equal(desired.Tags, tags) },
		Ensure: c.ensure,
		Delete: c.delete,
	}
}

var errNoOwner = reconcile.Terminal(errors.New("Controller.Owner is empty; all buckets without an owner would be ours"))

// list lists the buckets of the owner. S3 lists all buckets of an account, so each of them is
// asked for its owner, by a loop of its own: it asks several at a time, and retries a failure,
// because one that stays makes the listing fail.
func (c *Controller) list(ctx context.Context) (map[string]map[string]string, error) {
	if c.Owner == "" {
		return nil, errNoOwner
	}
	names, err := c.Store.List(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	ours := map[string]map[string]string{}
	ask := reconcile.Reconciler[string]{
		Name:    "owners",
		Workers: 8,
		Timeout: 30 * time.Second,
		Retry:   reconcile.Backoff(200*time.Millisecond, 5*time.Second).Limit(4),
		Reconcile: func(ctx context.Context, name string) error {
			if checkName(name) != nil {
				return nil // no bucket of ours has such a name, and some clients refuse to ask for it
			}
			owner, tags, err := c.Store.owner(ctx, name)
			err = classify(err)
			switch {
			case errors.Is(err, ErrNotFound), errors.Is(err, reconcile.ErrTerminal):
				return nil // it is in another region, or we may not ask: it is not ours
			case err == nil && owner == c.Owner:
				mu.Lock()
				defer mu.Unlock()
				ours[name] = tags
			}
			return err
		},
	}
	return ours, ask.Apply(ctx, names...)
}

// A step is one change to a bucket.
type step struct {
	text string
	do   func(context.Context) error
}

// ensure creates or corrects one bucket. It reads the actual state and does not depend on
// the listing that caused the run: so it does the right thing after an answer that never
// came, or a kill -9.
func (c *Controller) ensure(ctx context.Context, name string, desired Spec) error {
	c.kept.Delete(name)
	steps, err := c.steps(ctx, name, desired)
	if err != nil {
		return classify(err)
	}
	if err := do(ctx, steps); err != nil || len(steps) == 0 {
		return err
	}
	// Only a check that finds nothing to do ends with the bucket in sync. Otherwise another
	// client is at work, or the store keeps something else than it was sent: the back-off
	// is the pause before the next try.
	again, err := c.steps(ctx, name, desired)
	switch {
	case err != nil:
		return classify(err)
	case len(again) > 0:
		return fmt.Errorf("after %s there is still to do: %s", texts(steps), texts(again))
	}
	reconcile.Logger(ctx).Info("in sync")
	return nil
}

// do makes the changes, one after the other.
func do(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return classify(fmt.Errorf("%s: %w", s.text, err))
		}
		reconcile.Logger(ctx).Info(s.text)
	}
	return nil
}

// delete deletes a surplus bucket, unless it is not empty. It asks for the owner again,
// because a bucket has no ID: another one may have the name by now.
func (c *Controller) delete(ctx context.Context, name string, _ map[string]string) error {
	steps, err := c.removal(ctx, name)
	if kept := (*keptError)(nil); errors.As(err, &kept) {
		if logged, ok := c.kept.Swap(name, kept.object); !ok || logged != kept.object {
			reconcile.Logger(ctx).Warn(kept.Error())
		}
		return fmt.Errorf("%w: %w", kept, reconcile.RecheckWithin(time.Hour)) // each listing checks it sooner
	}
	c.kept.Delete(name)
	if err != nil {
		return classify(err)
	}
	return do(ctx, steps)
}

// Plan returns the changes that Ensure would make to a desired bucket, or Delete to another
// one; "" means none. It makes none. The error is the reason why they cannot be made.
func (c *Controller) Plan(ctx context.Context, name string, desired Spec, wanted bool) (changes string, err error) {
	plan := c.removal
	if wanted {
		plan = func(ctx context.Context, name string) ([]step, error) { return c.steps(ctx, name, desired) }
	}
	steps, err := plan(ctx, name)
	return texts(steps), err
}

// steps returns the steps from the actual to the desired state of a bucket.
func (c *Controller) steps(ctx context.Context, name string, desired Spec) ([]step, error) {
	if c.Owner == "" {
		return nil, errNoOwner
	}
	owner, tags, err := c.Store.owner(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound):
		return c.create(name, desired), nil
	case err != nil:
		return nil, err
	case owner == "" && len(tags) == 0:
		return c.adopt(ctx, name, desired)
	case owner != c.Owner:
		return nil, c.refuse(owner)
	}
	there, err := c.Store.read(ctx, name)
	if err != nil {
		return nil, err
	}
	there.tags = tags
	return c.correct(name, desired, there), nil
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

// adopt takes over a bucket without tags, objects and settings: a creation of ours leaves one
// if the store or this program dies in the middle of it. Any other bucket without our tag
// belongs to another client.
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

// A keptError is the reason why a surplus bucket is not deleted.
type keptError struct{ object string }

func (k *keptError) Error() string { return "kept: it is not empty, there is " + k.object }

// removal returns the steps that delete a bucket of ours. The error is a keptError if it is
// not empty.
func (c *Controller) removal(ctx context.Context, name string) ([]step, error) {
	if c.Owner == "" {
		return nil, errNoOwner
	}
	owner, _, err := c.Store.owner(ctx, name)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && owner != c.Owner:
		return nil, nil
	case err != nil:
		return nil, err
	case c.Purge:
		return []step{{"remove with all that is in it", func(ctx context.Context) error {
			return c.Store.remove(ctx, name, "")
		}}}, nil
	}
	key, err := c.Store.foreign(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case key != "":
		return nil, &keptError{key}
	}
	return []step{{"remove", func(ctx context.Context) error { return c.Store.remove(ctx, name, MarkerPrefix) }}}, nil
}

// classify decides what an error of the store means for the next run. An error that is not
// listed here is retried with back-off.
func classify(err error) error {
	var throttled *Throttled
	var answer minio.ErrorResponse
	switch {
	case errors.As(err, &throttled): // of this bucket: it does not stop the others
		return fmt.Errorf("%w: %w", err, reconcile.RequeueAfter(throttled.After))
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

// BadCredentials reports whether the store has rejected the credentials, and not the request.
func BadCredentials(err error) bool {
	switch code(err) {
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed", "TokenRefreshRequired",
		"XAdminUserNotFound": // versitygw, if it knows of one user alone
		return true
	}
	return false
}

// final reports whether a retry would get the same answer.
func final(answer minio.ErrorResponse) bool {
	switch answer.StatusCode {
	case http.StatusBadRequest:
		return answer.Code != "RequestTimeout" && answer.Code != "IncompleteBody"
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
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

// with returns the text for the tags that a bucket is created with.
func with(tags map[string]string) string {
	if len(tags) == 0 {
		return ""
	}
	return " with tags " + describe(tags)
}

// describe returns tags as key=value, sorted.
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
