// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
)

// Throttled is the error of a request that the store has refused because there
// are too many, and that says when to come back.
type Throttled struct {
	Status string
	After  time.Duration
}

func (t *Throttled) Error() string {
	return fmt.Sprintf("the store asks to come back in %v (%s)", t.After, t.Status)
}

// Pause is the Pause of a gate. After five refused reads in a row, no run may call the store
// for a while: it has too much to do, or is down. A single refused request pauses nothing.
// Refused writes do not count: they may concern a quota, or one kind of request.
func (s *Store) Pause(err error) time.Duration {
	var throttled *Throttled
	var answer minio.ErrorResponse
	switch {
	case s.throttle.refused.Load() < 5:
		return 0
	case errors.As(err, &throttled):
		return throttled.After
	case errors.As(err, &answer) && refuses(answer.StatusCode):
		return 10 * time.Second
	}
	return 0
}

func refuses(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// A throttle counts refused reads, and turns an answer with a Retry-After into a Throttled,
// because minio-go does not return that header.
type throttle struct {
	next    http.RoundTripper
	refused atomic.Int64 // reads in a row
}

func (t *throttle) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	refused := refuses(resp.StatusCode)
	switch {
	case req.Method != http.MethodGet:
	case refused:
		t.refused.Add(1)
	default:
		t.refused.Store(0)
	}
	after, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	if !refused || !ok { // back-off will do
		return resp, nil
	}
	resp.Body.Close()
	return nil, &Throttled{Status: resp.Status, After: after}
}

// maxPause is the longest time for which a bucket, or the store, is not asked. One request a
// minute does no harm, and a wrong Retry-After of a day stops nothing for a day.
const maxPause = time.Minute

// retryAfter reads the header: seconds, or a date. Zero and a date in the past ask for no
// pause at all, which a store that refuses requests does not mean.
func retryAfter(header string, now time.Time) (after time.Duration, ok bool) {
	if seconds, err := strconv.Atoi(header); err == nil {
		after = time.Duration(min(seconds, 3600)) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		after = date.Sub(now)
	}
	return min(max(after, 0), maxPause), after > 0
}
