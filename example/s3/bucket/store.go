// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"
	"github.com/minio/minio-go/v7/pkg/tags"
)

// ErrNotFound says that there is no such bucket.
var ErrNotFound = errors.New("no such bucket")

// A Store is an S3 endpoint with credentials. It may be used from any goroutine. Each call
// blocks until the store has answered or ctx is done, and tries only once: the loop retries.
type Store struct {
	endpoint    *url.URL
	region      string
	credentials *credentials.Credentials
	client      *minio.Client
	http        *http.Client
	throttle    *throttle
}

// Open prepares a Store; it sends no request. The endpoint is a URL such as
// https://s3.eu-central-1.amazonaws.com. A nil transport means
// http.DefaultTransport.
func Open(endpoint, region string, c *credentials.Credentials, transport http.RoundTripper) (*Store, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("the endpoint is %q, want a URL as https://s3.eu-central-1.amazonaws.com", endpoint)
	}
	if transport == nil {
		transport = http.DefaultTransport
	}
	limited := &throttle{next: transport}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:      c,
		Secure:     u.Scheme == "https",
		Region:     region,
		Transport:  limited,
		MaxRetries: 1, // the loop retries
	})
	if err != nil {
		return nil, fmt.Errorf("the endpoint %s: %w", endpoint, err)
	}
	return &Store{endpoint: u, region: region, credentials: c, client: client, http: &http.Client{Transport: limited}, throttle: limited}, nil
}

// URL returns the endpoint.
func (s *Store) URL() string { return s.endpoint.Scheme + "://" + s.endpoint.Host }

// List returns the names of all buckets.
func (s *Store) List(ctx context.Context) ([]string, error) {
	all, err := s.client.ListBuckets(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the buckets: %w", err)
	}
	names := make([]string, len(all))
	for i, b := range all {
		names[i] = b.Name
	}
	return names, nil
}

// A marker is a small object.
type marker struct {
	text string
	etag string
}

// A state is the actual state of a bucket.
type state struct {
	tags       map[string]string // without the OwnerTag
	versioning bool
	policy     string
	markers    map[string]marker
}

// owner returns the value of the OwnerTag of a bucket, "" if it has none, and its other tags.
// The error is ErrNotFound if there is no such bucket.
func (s *Store) owner(ctx context.Context, bucket string) (owner string, all map[string]string, err error) {
	set, err := s.client.GetBucketTagging(ctx, bucket)
	switch code(err) {
	case "":
		if err != nil {
			return "", nil, err
		}
	case "NoSuchTagSet", "NoSuchTagSetError":
		return "", nil, nil
	case minio.NoSuchBucket:
		return "", nil, ErrNotFound
	default:
		return "", nil, fmt.Errorf("reading the tags: %w", err)
	}
	all = set.ToMap()
	owner = all[OwnerTag]
	delete(all, OwnerTag)
	return owner, all, nil
}

// read returns the state of a bucket without its tags. Of each marker it reads only as many
// bytes as a marker may have, and one more.
func (s *Store) read(ctx context.Context, bucket string) (state, error) {
	there := state{markers: map[string]marker{}}
	versioning, err := s.client.GetBucketVersioning(ctx, bucket)
	if err != nil {
		return state{}, fmt.Errorf("reading the versioning: %w", err)
	}
	there.versioning = versioning.Enabled()
	if there.policy, err = s.client.GetBucketPolicy(ctx, bucket); err != nil {
		return state{}, fmt.Errorf("reading the policy: %w", err)
	}
	// With a limit, and ending the list behind it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for object := range s.client.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Prefix: MarkerPrefix, Recursive: true}) {
		if object.Err != nil {
			return state{}, fmt.Errorf("listing the markers: %w", object.Err)
		}
		name := strings.TrimPrefix(object.Key, MarkerPrefix)
		if name == "" {
			continue // the folder itself, which some stores list
		}
		m, err := s.marker(ctx, bucket, name)
		switch {
		case code(err) == minio.NoSuchKey: // removed since the listing
		case err != nil:
			return state{}, fmt.Errorf("reading the marker %s: %w", name, err)
		default:
			there.markers[name] = m
		}
	}
	return there, nil
}

// marker reads one marker. The ETag in a listing is not enough to compare it: a change on the
// disk below the store leaves the ETag as it was.
func (s *Store) marker(ctx context.Context, bucket, name string) (marker, error) {
	object, err := s.client.GetObject(ctx, bucket, MarkerPrefix+name, minio.GetObjectOptions{})
	if err != nil {
		return marker{}, err
	}
	defer object.Close()
	text, err := io.ReadAll(io.LimitReader(object, maxMarker+1))
	if err != nil {
		return marker{}, err
	}
	info, err := object.Stat()
	if err != nil {
		return marker{}, err
	}
	return marker{text: string(text), etag: info.ETag}, nil
}

// create creates a bucket with its tags in one request, so that a crash leaves no bucket
// without an owner. minio-go has no call for that. The error is a takenError if the store
// answers that it has created the bucket, and the bucket is not ours.
func (s *Store) create(ctx context.Context, bucket, owner string, set map[string]string) error {
	type tag struct{ Key, Value string }
	var body struct {
		XMLName            xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CreateBucketConfiguration"`
		LocationConstraint string   `xml:",omitempty"`
		Tags               []tag    `xml:"Tags>Tag"`
	}
	if s.region != "us-east-1" { // the default, which S3 does not accept here
		body.LocationConstraint = s.region
	}
	for key, value := range withOwner(set, owner) {
		body.Tags = append(body.Tags, tag{key, value})
	}
	text, err := xml.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL()+"/"+bucket, bytes.NewReader(text))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	keys, err := s.credentials.GetWithContext(s.client.CredContext())
	if err != nil {
		return err
	}
	resp, err := s.http.Do(signer.SignV4(*req, keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken, s.region))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		refusal := minio.ErrorResponse{Code: resp.Status, BucketName: bucket}
		_ = xml.Unmarshal(answer, &refusal) // without one, the status says it
		refusal.StatusCode = resp.StatusCode
		return refusal
	}
	// Some stores answer 200 also if the bucket existed before, and some ignore the tags of
	// a creation. So the bucket is ours if it has our tag, or no tags and no objects.
	switch got, more, err := s.owner(ctx, bucket); {
	case err != nil:
		return err
	case got == owner:
		return nil
	case got != "" || len(more) > 0:
		return &takenError{got}
	}
	switch key, err := s.foreign(ctx, bucket); {
	case err != nil:
		return err
	case key != "":
		return &takenError{}
	}
	return s.setTags(ctx, bucket, owner, set)
}

// A takenError is the error of a creation if another client has created the bucket before.
type takenError struct {
	owner string // "" if it has none
}

func (t *takenError) Error() string {
	return fmt.Sprintf("it was there already; its tag %s is %q", OwnerTag, t.owner)
}

func withOwner(set map[string]string, owner string) map[string]string {
	all := map[string]string{OwnerTag: owner}
	maps.Copy(all, set)
	return all
}

// setTags replaces all tags.
func (s *Store) setTags(ctx context.Context, bucket, owner string, set map[string]string) error {
	all, err := tags.NewTags(withOwner(set, owner), false)
	if err != nil {
		return err
	}
	return s.client.SetBucketTagging(ctx, bucket, all)
}

func (s *Store) setVersioning(ctx context.Context, bucket string, on bool) error {
	if on {
		return s.client.EnableVersioning(ctx, bucket)
	}
	return s.client.SuspendVersioning(ctx, bucket)
}

// setPolicy sets a policy, or removes it if it is "".
func (s *Store) setPolicy(ctx context.Context, bucket, policy string) error {
	return s.client.SetBucketPolicy(ctx, bucket, policy)
}

// setMarker writes a marker if it is still the one that was read; nil means that there was
// none. If another client has changed it since, the store refuses the request, and the next
// run reads it again.
func (s *Store) setMarker(ctx context.Context, bucket, name, text string, seen *marker) error {
	options := minio.PutObjectOptions{ContentType: "text/plain; charset=utf-8"}
	switch {
	case seen == nil:
		options.SetMatchETagExcept("*")
	case seen.etag != "": // a file that was put into the folder of the gateway has none
		options.SetMatchETag(seen.etag)
	}
	err := s.putMarker(ctx, bucket, name, text, options)
	if seen != nil || code(err) != minio.PreconditionFailed {
		return err
	}
	// Some stores count the delete marker of a versioned bucket as an object. If there is
	// nothing else, nothing can be lost: the old versions stay.
	if _, missing := s.marker(ctx, bucket, name); code(missing) != minio.NoSuchKey {
		return err
	}
	return s.putMarker(ctx, bucket, name, text, minio.PutObjectOptions{ContentType: options.ContentType})
}

func (s *Store) putMarker(ctx context.Context, bucket, name, text string, options minio.PutObjectOptions) error {
	_, err := s.client.PutObject(ctx, bucket, MarkerPrefix+name, strings.NewReader(text), int64(len(text)), options)
	return err
}

func (s *Store) removeMarker(ctx context.Context, bucket, name string) error {
	return s.client.RemoveObject(ctx, bucket, MarkerPrefix+name, minio.RemoveObjectOptions{})
}

// foreign returns the key of an object in a bucket that is no marker, old versions
// included; "" if there is none.
func (s *Store) foreign(ctx context.Context, bucket string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for object := range s.client.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
		if object.Err != nil {
			return "", fmt.Errorf("listing what is in it: %w", object.Err)
		}
		if !strings.HasPrefix(object.Key, MarkerPrefix) {
			return object.Key, nil
		}
	}
	return "", nil
}

// remove removes a bucket with all versions of the objects below a prefix. The store refuses
// that if it has other objects.
func (s *Store) remove(ctx context.Context, bucket, prefix string) error {
	listing, cancel := context.WithCancel(ctx)
	defer cancel()
	for object := range s.client.ListObjectsIter(listing, bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true, WithVersions: true}) {
		if object.Err != nil {
			return fmt.Errorf("listing what is in it: %w", object.Err)
		}
		if err := s.client.RemoveObject(ctx, bucket, object.Key, minio.RemoveObjectOptions{VersionID: object.VersionID}); err != nil {
			return fmt.Errorf("removing %s: %w", object.Key, err)
		}
	}
	return s.client.RemoveBucket(ctx, bucket)
}

// code returns the code of an error of the store, "" if err is no answer of the store.
func code(err error) string {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return answer.Code
	}
	return ""
}
