// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package awssdk explores a controller that speaks to S3 by the AWS SDK, which signs,
// retries and parses as it does in production, over explore.Transport.
package awssdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/reconkernel/reconcile/explore"
)

// A store is the fake of S3: the tag of each bucket.
type store map[string]string

var value = regexp.MustCompile("<Value>(.*)</Value>")

func (s store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.Trim(r.URL.Path, "/")
	_, there := s[name]
	switch {
	case r.Method == http.MethodPut && r.URL.Query().Has("tagging"):
		body, _ := io.ReadAll(r.Body)
		s[name] = string(value.FindSubmatch(body)[1])
	case r.Method == http.MethodPut && there:
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, "<Error><Code>BucketAlreadyOwnedByYou</Code></Error>")
	case r.Method == http.MethodPut:
		s[name] = ""
	case !there:
		w.WriteHeader(http.StatusNotFound)
	}
}

// client is the one of the SDK. Its retries are left as they are, except for the chance
// in their pauses.
func client(proc *explore.Process, s store) *s3.Client {
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://s3.example.org"), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		HTTPClient:  &http.Client{Transport: explore.Transport(proc, s)},
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Second, nil })
		}),
	})
}

// keep makes a bucket with a tag. Some take a bucket that is there for one that is done.
func keep(ctx context.Context, c *s3.Client, name string, thorough bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := c.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name})
	if none := (*types.NotFound)(nil); errors.As(err, &none) {
		_, err = c.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name})
		if owned := (*types.BucketAlreadyOwnedByYou)(nil); thorough && errors.As(err, &owned) {
			err = nil
		}
	} else if err == nil && !thorough {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = c.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: &name, Tagging: &types.Tagging{
		TagSet: []types.Tag{{Key: aws.String("owner"), Value: aws.String("us")}},
	}})
	return err
}

func scenario(thorough bool) explore.Scenario[store] {
	return explore.Scenario[store]{
		World: func() store { return store{} },
		Start: func(proc *explore.Process, s store) {
			c := client(proc, s)
			proc.Go(func(ctx context.Context) error {
				for proc.Step() {
					if err := keep(ctx, c, "data", thorough); err != nil {
						proc.Note(err)
					}
					select {
					case <-time.After(10 * time.Minute):
					case <-ctx.Done():
					}
				}
				return nil
			})
		},
		Steps: func(env *explore.Environment, _ store) { env.Advance(time.Minute) },
		State: func(s store) string { return fmt.Sprint(s) },
		Plans: 300,
	}
}

// The SDK tries again by itself when an answer is lost, and then the bucket is there.
func TestBuckets(t *testing.T) {
	r, err := explore.Search(t, scenario(false))
	if err != nil {
		t.Fatal(err)
	}
	if r.Found == nil || len(r.Found.Plan) != 1 || r.Found.Plan[0] != "call PUT /data #1: answer lost" || !strings.Contains(r.Found.Failure, "+ map[data:]") {
		t.Errorf("it finds %v, want a bucket without its tag", r.Found)
	}
	t.Log(r.Found)
	explore.Run(t, scenario(true))
}
