// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package lease has what those who hold a Lease have in common: how long it is
// good for, and in whose name it is held.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
)

// A Config has the fields of elect.Config, where they are explained.
type Config struct {
	Client                     coordinationv1.LeasesGetter
	Namespace, Name, Identity  string
	Duration, Deadline, Period time.Duration
	Exit                       func(err error)
	Logger                     *slog.Logger
}

// WithDefaults checks c, whose type is called what, and fills in what is not set: as
// Identity, the name of the host, and as Logger, that of ctx. Period is less than a part
// of Deadline. A wrong field is a terminal error.
func (c Config) WithDefaults(ctx context.Context, what string, part float64) (Config, error) {
	wrong := func(format string, args ...any) (Config, error) {
		return c, reconcile.Terminal(fmt.Errorf(what+"."+format, args...))
	}
	switch {
	case c.Client == nil:
		return wrong("Client is required, and nil")
	case c.Name == "":
		return wrong("Name is required, and empty")
	case c.Duration < 0 || c.Duration%time.Second != 0:
		return wrong("Duration is %v, want whole seconds, or 0 for 15s", c.Duration)
	}
	if bad := validation.IsDNS1123Subdomain(c.Name); len(bad) > 0 {
		return wrong("Name is %q, which no Lease can have: %s", c.Name, strings.Join(bad, "; "))
	}
	c.Duration = cmp.Or(c.Duration, 15*time.Second)
	c.Deadline = cmp.Or(c.Deadline, c.Duration*2/3)
	c.Period = cmp.Or(c.Period, c.Duration*2/15)
	c.Logger = cmp.Or(c.Logger, reconcile.Logger(ctx))
	longest := time.Duration(part * float64(c.Deadline))
	switch {
	case c.Deadline < 0 || c.Deadline >= c.Duration:
		return wrong("Deadline is %v, want more than 0 and less than Duration, which is %v", c.Deadline, c.Duration)
	case c.Period < 0 || c.Period >= longest:
		return wrong("Period is %v, want more than 0 and less than %v, because Deadline is %v", c.Period, longest, c.Deadline)
	}
	var err error
	if c.Namespace, err = Namespace(c.Namespace, podFile); err != nil {
		return wrong("Namespace: %w", err)
	}
	if c.Identity == "" {
		if c.Identity, err = os.Hostname(); err != nil {
			return wrong("Identity is empty, and the host has no name: %w", err)
		}
	}
	if c.Exit == nil {
		logger := c.Logger
		c.Exit = func(err error) {
			logger.Error("the process ends, because its work did not end with its lease", "err", err)
			os.Exit(1)
		}
	}
	return c, nil
}

// Explain returns the error of a request for a Lease, with what to do about it if the
// client held the request back: its limiter is one for all that a clientset sends.
func Explain(err error) error {
	if err == nil || !strings.Contains(err.Error(), "client rate limiter") { // client-go has no other sign
		return err
	}
	return fmt.Errorf("the rate limiter of the client (QPS) held the request back; %s: %w", ownClient, err)
}

// Unanswered returns what a request says that has no answer yet: the limiter may still
// hold it.
func Unanswered(since time.Duration) error {
	return fmt.Errorf("a request waits for %v, for the API server or for the rate limiter of the client (QPS); %s", since, ownClient)
}

const ownClient = "the Lease needs a clientset that nothing else uses"

// podFile has the namespace of the pod that this process is in.
const podFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace returns the namespace that file has, if given is empty.
func Namespace(given, file string) (string, error) {
	if given != "" {
		return given, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("it is empty, and this process is in no pod that says its own: %w", err)
	}
	if given = strings.TrimSpace(string(text)); given == "" {
		return "", errors.New("it is empty, and so is " + file)
	}
	return given, nil
}
