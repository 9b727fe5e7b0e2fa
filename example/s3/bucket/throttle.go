// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bucket

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
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

// Pause says for how long nobody asks the store anything, because of what a run
// returned: it has too much to do, or is not there for anybody. It is for a gate.
func Pause(err error) time.Duration {
	var throttled *Throttled
	var answer minio.ErrorResponse
	switch {
	case errors.As(err, &throttled):
		return throttled.After
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable):
		return 10 * time.Second
	}
	return 0
}

// throttle turns answers with a Retry-After into errors: minio-go does not tell
// of that header.
type throttle struct{ next http.RoundTripper }

func (t throttle) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return resp, err
	}
	after, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	if !ok {
		return resp, nil // back-off will do
	}
	resp.Body.Close()
	return nil, &Throttled{Status: resp.Status, After: after}
}

// retryAfter reads the header: seconds, or a date. Zero and a date in the past ask for no
// pause at all, which a store that refuses requests does not mean.
func retryAfter(header string, now time.Time) (after time.Duration, ok bool) {
	if seconds, err := strconv.Atoi(header); err == nil {
		after = time.Duration(min(seconds, 3600)) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		after = min(date.Sub(now), time.Hour)
	}
	return max(after, 0), after > 0
}
