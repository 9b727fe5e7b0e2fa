// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/reconciletest"
)

// TestExplore lets each request to a store fail, be lost, take long, or be the last
// one of a process that is killed, and then several of them. The creation of a bucket
// with tags is two steps of that store, between which it may die as well.
func TestExplore(t *testing.T) {
	reconciletest.Explore(t, reconciletest.Scenario[string, *fakeStore]{
		World: func() *fakeStore {
			return &fakeStore{buckets: map[string]*fakeBucket{
				"theirs": {Tags: map[string]string{OwnerTag: "them"}},
				"stray":  {},
			}}
		},
		Start:     startOn,
		Steps:     playOn,
		State:     (*fakeStore).String,
		Invariant: (*fakeStore).check,
		Within:    10 * time.Minute,
		Plans:     100, // all single faults, which are more
	})
}

func startOn(env *reconciletest.Env[string], s *fakeStore) {
	store, err := Open("https://s3.example.org", "us-east-1", credentials.NewStaticV4("key", "secret", ""), explore.Transport(env, api{env, s}))
	if err != nil {
		panic(err)
	}
	c := &Controller{Store: store, Owner: "us"}
	set := c.Set(env.Queue)
	set.Period, set.Resync, set.DeleteAfter = 2*time.Minute, 5*time.Minute, -1
	set.Desired = func(context.Context) (map[string]Spec, error) { return maps.Clone(s.specs), nil }
	set.Lookup = func(_ context.Context, name string, _ Spec) (Spec, bool, error) {
		spec, ok := s.specs[name]
		return spec, ok, nil
	}
	env.Start(&reconcile.Reconciler[string]{
		Reconcile: set.Reconcile,
		Workers:   2,
		Timeout:   30 * time.Second,
		Retry:     func(_ error, n int) (time.Duration, bool) { return 200 * time.Millisecond << min(n-1, 5), n <= 8 },
	})
	env.Go(set)
}

func playOn(env *reconciletest.Environment[string], s *fakeStore) {
	spec := func(all map[string]Spec) {
		was := s.specs
		s.specs = all
		for _, some := range []map[string]Spec{was, all} {
			for _, name := range slices.Sorted(maps.Keys(some)) {
				env.Event(name)
			}
		}
	}
	data := Spec{Tags: map[string]string{"team": "finance"}, Versioning: true}
	spec(map[string]Spec{"data": data, "logs": {Policy: `{"Version":"1"}`}})
	env.Advance(time.Minute)
	env.Note("another client removes the one, and changes the other, if they are there")
	delete(s.buckets, "logs")
	if b := s.buckets["data"]; b != nil {
		b.Versioning = "Suspended"
	}
	env.Advance(time.Minute)
	env.Note("other specs")
	spec(map[string]Spec{"logs": {}, "backup": data})
}

// A fakeStore is an S3 store without objects. It survives the controller.
type fakeStore struct {
	specs   map[string]Spec // changed only while all else is still
	buckets map[string]*fakeBucket
}

type fakeBucket struct {
	Tags               map[string]string
	Versioning, Policy string
}

// String leaves out a bare bucket that is not desired: a creation that is cut short
// leaves one if the bucket is no longer desired at the next run, and its owner is unknown.
func (s *fakeStore) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.buckets)) {
		there := *s.buckets[name]
		if _, wanted := s.specs[name]; !wanted && len(there.Tags) == 0 {
			continue
		}
		if there.Versioning == "Suspended" {
			there.Versioning = "" // for us the same
		}
		fmt.Fprintf(&b, "%s %v\n", name, there)
	}
	return b.String()
}

// check says what of others was touched.
func (s *fakeStore) check() error {
	theirs, stray := s.buckets["theirs"], s.buckets["stray"]
	if theirs == nil || theirs.Tags[OwnerTag] != "them" || stray == nil || len(stray.Tags) > 0 {
		return fmt.Errorf("what is not ours was touched:\n%s", s)
	}
	return nil
}

// A reply is what the store answers.
type reply struct {
	Status int
	Body   string
}

// An api is the store as one process reaches it.
type api struct {
	env *reconciletest.Env[string]
	*fakeStore
}

// ServeHTTP implements http.Handler.
func (s api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.Trim(r.URL.Path, "/")
	what := ""
	for _, sub := range []string{"tagging", "versioning", "policy", "versions", "list-type"} {
		if r.URL.Query().Has(sub) {
			what = sub
		}
	}
	body, _ := io.ReadAll(r.Body)
	var got reply
	switch {
	case r.Method == http.MethodGet:
		got = s.get(name, what)
	case r.Method == http.MethodPut && what == "":
		got = s.create(name)
		if err := s.env.Do(r.Context(), r.Method+" "+r.URL.Path+" its tags", func() error {
			s.change(name, "tagging", body)
			return nil
		}); err != nil {
			got = refusal(500, "InternalError")
		}
	case r.Method == http.MethodDelete:
		got = s.change(name, what, nil)
	default:
		got = s.change(name, what, body)
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(got.Status)
	_, _ = io.WriteString(w, got.Body)
}

func refusal(status int, code string) reply {
	return reply{status, fmt.Sprintf("<Error><Code>%s</Code></Error>", code)}
}

func (s *fakeStore) get(name, what string) reply {
	if name == "" {
		var text strings.Builder
		for _, b := range slices.Sorted(maps.Keys(s.buckets)) {
			text.WriteString("<Bucket><Name>" + b + "</Name></Bucket>")
		}
		return reply{200, "<ListAllMyBucketsResult><Buckets>" + text.String() + "</Buckets></ListAllMyBucketsResult>"}
	}
	b := s.buckets[name]
	switch {
	case b == nil:
		return refusal(404, "NoSuchBucket")
	case what == "tagging" && len(b.Tags) == 0:
		return refusal(404, "NoSuchTagSet")
	case what == "tagging":
		var text strings.Builder
		for _, key := range slices.Sorted(maps.Keys(b.Tags)) {
			text.WriteString("<Tag><Key>" + key + "</Key><Value>" + b.Tags[key] + "</Value></Tag>")
		}
		return reply{200, "<Tagging><TagSet>" + text.String() + "</TagSet></Tagging>"}
	case what == "versioning":
		return reply{200, "<VersioningConfiguration><Status>" + b.Versioning + "</Status></VersioningConfiguration>"}
	case what == "policy" && b.Policy == "":
		return refusal(404, "NoSuchBucketPolicy")
	case what == "policy":
		return reply{200, b.Policy}
	case what == "versions":
		return reply{200, "<ListVersionsResult></ListVersionsResult>"}
	}
	return reply{200, "<ListBucketResult></ListBucketResult>"}
}

// create answers as in us-east-1: that the bucket was there is no error.
func (s *fakeStore) create(name string) reply {
	if s.buckets[name] == nil {
		s.buckets[name] = &fakeBucket{}
	}
	return reply{Status: 200}
}

// change sets something of a bucket, or without a body removes that or the bucket.
func (s *fakeStore) change(name, what string, body []byte) reply {
	b := s.buckets[name]
	switch {
	case b == nil:
		return refusal(404, "NoSuchBucket")
	case what == "" && body == nil:
		delete(s.buckets, name)
	case what == "policy":
		b.Policy = string(body)
	case what == "versioning":
		b.Versioning = "Suspended"
		if bytes.Contains(body, []byte("<Status>Enabled</Status>")) {
			b.Versioning = "Enabled"
		}
	case what == "tagging":
		var set struct {
			Here  []fakeTag `xml:"TagSet>Tag"`
			There []fakeTag `xml:"Tags>Tag"` // of a creation
		}
		if err := xml.Unmarshal(body, &set); err != nil {
			return refusal(400, "MalformedXML")
		}
		b.Tags = map[string]string{}
		for _, tag := range append(set.Here, set.There...) {
			b.Tags[tag.Key] = tag.Value
		}
	default:
		return refusal(501, "NotImplemented")
	}
	return reply{Status: 200}
}

type fakeTag struct{ Key, Value string }
