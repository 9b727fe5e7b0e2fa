// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Poll returns a function that calls list, and shows among the members of g how
// these calls fare: when one succeeded last, and while they fail, since when, how
// often and why. It is for GetItems of a [reconcile.Poller], and for the function
// that tracker.FromMap takes:
//
//	poller.GetItems = statuspage.Poll(group, "list of buckets", poller.GetItems)
//
// A call whose context is cancelled, as when the program ends, does not count. If
// list is nil, so is the function.
func Poll[R any](g *Group, name string, list func(context.Context) (R, error)) func(context.Context) (R, error) {
	if list == nil {
		return nil
	}
	m := g.newMember(name)
	return func(ctx context.Context) (result R, err error) {
		err = errors.New(panicked) // unless list returns
		defer func() {
			if ctx.Err() != context.Canceled {
				g.polled(m, err == nil, textOf(err))
			}
		}()
		return list(ctx)
	}
}

// polled notes a poll, and why it failed if it did.
func (g *Group) polled(m *member, succeeded bool, err string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	m.Starts++
	if succeeded {
		m.State, m.Since, m.Succeeded, m.Failures = memberPolled, now, now, 0
		return
	}
	if m.State != memberFailed {
		m.State, m.Since = memberFailed, now
	}
	m.Error, m.failed = err, now
	m.Failures++
}

// Story says how often polls failed, "" if the last one did not.
func (m member) Story() string {
	switch {
	case m.Failures == 0:
		return ""
	case m.Succeeded.IsZero():
		return fmt.Sprintf("(%s in a row, none succeeded)", number(m.Failures))
	}
	return fmt.Sprintf("(%s in a row, last success %s ago)", number(m.Failures), age(time.Since(m.Succeeded)))
}
