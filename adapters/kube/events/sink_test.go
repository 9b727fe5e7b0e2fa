// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/reconkernel/reconcile/adapters/kube/events"
)

// A sink takes the place of a server. It keeps a line for each write.
type sink struct {
	typedeventsv1.EventInterface // what is not here is not to be called
	begin                        time.Time

	mu    sync.Mutex // guards what follows
	log   []string
	names map[string]bool
	fail  func(verb string) error // may be nil
}

func (s *sink) Events(string) typedeventsv1.EventInterface { return s }

func (s *sink) note(verb, reason string, count int32) error {
	if s.fail != nil {
		if err := s.fail(verb); err != nil {
			return err
		}
	}
	s.log = append(s.log, fmt.Sprintf("%s %s x%d %v", verb, reason, count, time.Since(s.begin)))
	return nil
}

func (s *sink) Create(_ context.Context, e *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[e.Name] {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{}, e.Name)
	}
	count := int32(1)
	if e.Series != nil {
		count = e.Series.Count
	}
	err := s.note("create", e.Regarding.Name+" "+e.Reason, count)
	if err == nil || errors.Is(err, errLost) {
		s.names[e.Name] = true
	}
	return e, err
}

func (s *sink) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.names[name] {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	var patch eventsv1.Event
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	return &patch, s.note("patch", name[:1], patch.Series.Count)
}

// expire removes all events, as the server does with old ones.
func (s *sink) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.names)
}

func (s *sink) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := s.log
	s.log = nil
	return took
}

var errLost = errors.New("the answer is lost")

func newRecorder() (*events.Recorder[string], *sink) {
	s := &sink{begin: time.Now(), names: make(map[string]bool)}
	return &events.Recorder[string]{
		Client: s, Controller: "example.com/test", Logger: quiet,
		Regarding: func(item string) (corev1.ObjectReference, bool) {
			return corev1.ObjectReference{Kind: "Thing", Namespace: "default", Name: item}, item != "gone"
		},
	}, s
}

func want(t *testing.T, s *sink, lines ...string) {
	t.Helper()
	synctest.Wait()
	if got := s.took(); !slices.Equal(got, lines) {
		t.Errorf("writes: got %q, want %q", got, lines)
	}
}

// start runs a recorder until stop is called.
func start(t *testing.T, r *events.Recorder[string]) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}
