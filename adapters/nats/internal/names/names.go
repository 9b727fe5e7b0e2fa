// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package names tells which subjects and keys a server takes, and where a client's
// messages go.
package names

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var key = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

// Key reports whether a KeyValue bucket takes s as a key: letters, digits and
// -/_=, with dots between.
func Key(s string) bool { return key.MatchString(s) && Subject(s) }

// Subject reports whether the parts of a subject between dots are all right.
func Subject(subject string) bool {
	tokens := strings.Split(subject, ".")
	for i, t := range tokens {
		switch {
		case t == "",
			t != "*" && strings.Contains(t, "*"),
			strings.Contains(t, ">") && (t != ">" || i < len(tokens)-1):
			return false
		}
	}
	return true
}

// API returns what the subjects of the JetStream API begin with for a client.
func API(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}

// Publish returns where a client publishes what is to be stored under a subject that
// begins with $KV: in the domain, or behind the prefix, that its calls of the API go to.
func Publish(js jetstream.JetStream, subject string) string {
	if api := API(js); api != jetstream.DefaultAPIPrefix {
		return api + subject
	}
	return subject
}

// Closed returns the error of a connection that is closed for good. It wraps
// [nats.ErrConnectionClosed], and says what the server said last: it may have ended the
// connection for that.
func Closed(nc *nats.Conn) error {
	if last := nc.LastError(); last != nil {
		return fmt.Errorf("%w; last error: %v", nats.ErrConnectionClosed, last)
	}
	return nats.ErrConnectionClosed
}

// longest leaves room for the rest of a line of the protocol, which has 4096 bytes.
const longest = 3800

// Length returns an error for a subject that a server would end the connection for.
func Length(subject string) error {
	if len(subject) > longest {
		return fmt.Errorf("the subject %.40q… has %d bytes, want %d at most: a server ends the connection for a longer one", subject, len(subject), longest)
	}
	return nil
}
