// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/tags"

	"github.com/reconkernel/reconcile"
)

// A bucket is what the service keeps of a bucket.
type bucket struct {
	Versioning bool
	Team       string
}

const (
	ownerTag = "reconcile-owner" // marks the buckets that the service may delete
	teamTag  = "team"
)

// A store is S3, for the buckets of one owner.
type store struct {
	client *minio.Client
	owner  string
}

func openStore(endpoint, region, owner string) (store, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return store{}, fmt.Errorf("the endpoint is %q, want a URL as https://s3.eu-central-1.amazonaws.com", endpoint)
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:      credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}),
		Secure:     u.Scheme == "https",
		Region:     region,
		MaxRetries: 1, // the loop retries
	})
	return store{client, owner}, err
}

// list returns the buckets that have the tag of the owner. A listing of S3 shows no tags, so
// each bucket is asked, by a loop of its own. One that cannot be read makes the listing fail.
func (s store) list(ctx context.Context) (map[string]bucket, error) {
	all, err := s.client.ListBuckets(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the buckets: %w", err)
	}
	names := make([]string, len(all))
	for i, b := range all {
		names[i] = b.Name
	}
	var mu sync.Mutex
	ours := map[string]bucket{}
	ask := reconcile.Reconciler[string]{
		Name:    "list",
		Workers: 8,
		Timeout: 10 * time.Second,
		Retry:   reconcile.Backoff(200*time.Millisecond, 5*time.Second).Limit(4),
		Reconcile: func(ctx context.Context, name string) error {
			b, tags, err := s.read(ctx, name)
			switch {
			case err == errNoBucket || code(err) == minio.AccessDenied:
				return nil // deleted since, or not ours
			case err == nil && tags[ownerTag] == s.owner:
				mu.Lock()
				defer mu.Unlock()
				ours[name] = b
			}
			return err
		},
	}
	return ours, ask.Apply(ctx, names...)
}

var errNoBucket = errors.New("there is no such bucket")

// read returns a bucket and its tags.
func (s store) read(ctx context.Context, name string) (b bucket, all map[string]string, err error) {
	set, err := s.client.GetBucketTagging(ctx, name)
	switch code(err) {
	case "":
		if err != nil {
			return b, nil, fmt.Errorf("reading the tags: %w", err)
		}
		all = set.ToMap()
	case minio.NoSuchBucket:
		return b, nil, errNoBucket
	case "NoSuchTagSet", "NoSuchTagSetError":
	default:
		return b, nil, fmt.Errorf("reading the tags: %w", err)
	}
	versioning, err := s.client.GetBucketVersioning(ctx, name)
	if err != nil {
		return b, nil, fmt.Errorf("reading the versioning: %w", err)
	}
	return bucket{Versioning: versioning.Enabled(), Team: all[teamTag]}, all, nil
}

// ensure creates or corrects a bucket. It reads what there is, and does not depend on the
// listing: so it does the right thing after an answer that never came, or a kill -9.
func (s store) ensure(ctx context.Context, name string, want bucket) error {
	log := reconcile.Logger(ctx)
	now, all, err := s.read(ctx, name)
	if err == errNoBucket {
		if err := s.client.MakeBucket(ctx, name, minio.MakeBucketOptions{}); err != nil {
			return fmt.Errorf("creating the bucket: %w", err)
		}
		log.Info("created")
		now, all, err = s.read(ctx, name)
	}
	if err != nil {
		return err
	}
	if err := s.mayTake(ctx, name, all); err != nil {
		return err
	}
	if now.Team != want.Team || all[ownerTag] != s.owner {
		if err := s.setTags(ctx, name, all, want.Team); err != nil {
			return fmt.Errorf("setting the tags: %w", err)
		}
		log.Info("tags set", "team", want.Team)
	}
	if now.Versioning != want.Versioning {
		set := s.client.SuspendVersioning
		if want.Versioning {
			set = s.client.EnableVersioning
		}
		if err := set(ctx, name); err != nil {
			return fmt.Errorf("setting the versioning: %w", err)
		}
		log.Info("versioning set", "on", want.Versioning)
	}
	// Another client may be at work, or the store may keep another value: back-off then.
	now, _, err = s.read(ctx, name)
	if err == nil && now != want {
		err = fmt.Errorf("after the corrections it is still %+v, want %+v", now, want)
	}
	return err
}

// mayTake returns nil for a bucket of the owner, and for an empty one without tags. A process
// that dies between the creation and the first tags leaves such a bucket.
func (s store) mayTake(ctx context.Context, name string, all map[string]string) error {
	switch owner := all[ownerTag]; {
	case owner == s.owner:
		return nil
	case len(all) > 0:
		return reconcile.Terminal(fmt.Errorf("the bucket exists, and its tag %s is %q, want %q: set the tag to hand it over", ownerTag, owner, s.owner))
	}
	ctx, cancel := context.WithCancel(ctx) // ends the listing
	defer cancel()
	for object := range s.client.ListObjectsIter(ctx, name, minio.ListObjectsOptions{Recursive: true, WithVersions: true, MaxKeys: 1}) {
		if object.Err != nil {
			return fmt.Errorf("listing its objects: %w", object.Err)
		}
		return reconcile.Terminal(fmt.Errorf("the bucket exists, has the object %s, and no tag %s: set the tag to %q to hand it over", object.Key, ownerTag, s.owner))
	}
	return nil
}

// setTags sets the tags of the service, and leaves others as they are.
func (s store) setTags(ctx context.Context, name string, now map[string]string, team string) error {
	next := map[string]string{}
	maps.Copy(next, now)
	next[ownerTag] = s.owner
	if next[teamTag] = team; team == "" {
		delete(next, teamTag)
	}
	set, err := tags.NewTags(next, false)
	if err != nil {
		return reconcile.Terminal(err)
	}
	return s.client.SetBucketTagging(ctx, name, set)
}

// remove deletes a bucket. It asks for the owner again, because another bucket may have the
// name by now. The store refuses to delete a bucket that is not empty.
func (s store) remove(ctx context.Context, name string) error {
	_, all, err := s.read(ctx, name)
	if err == errNoBucket || err == nil && all[ownerTag] != s.owner {
		return nil
	}
	if err == nil {
		err = s.client.RemoveBucket(ctx, name)
	}
	if err != nil && code(err) != minio.NoSuchBucket {
		return fmt.Errorf("deleting the bucket: %w", err)
	}
	reconcile.Logger(ctx).Info("deleted")
	return nil
}

// gone returns nil if the owner has no such bucket, and otherwise waits for the next listing.
func (s store) gone(ctx context.Context, name string, period time.Duration) error {
	_, all, err := s.read(ctx, name)
	if err == errNoBucket || err == nil && all[ownerTag] != s.owner {
		return nil
	}
	return errors.Join(err, reconcile.RequeueWithin(period))
}

// code returns the code of an error of the store, "" if err is no answer of the store.
func code(err error) string {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}
