// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/text"
)

// This file is the reconcile function of a Recorder: it writes events.

// write brings the event of a series to what is known of it.
func (r *Recorder[T]) write(ctx context.Context, key seriesKey) error {
	r.mu.Lock()
	found := r.series[key]
	if found == nil {
		r.mu.Unlock()
		return nil
	}
	s := *found
	if s.count == s.written {
		left := quiet - time.Since(s.last)
		if left <= 0 {
			delete(r.series, key)
		}
		r.mu.Unlock()
		if left <= 0 {
			return nil
		}
		return reconcile.RequeueWithin(left)
	}
	r.mu.Unlock()
	if err := r.pace.Wait(ctx); err != nil {
		return err
	}
	namespace := cmp.Or(key.regarding.Namespace, metav1.NamespaceDefault)
	client := r.Client.Events(namespace)
	var err error
	if s.written == 0 {
		_, err = client.Create(ctx, r.event(key, &s, namespace), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // the answer to an earlier try was lost
			r.wrote(key, s.name, 1)
			return reconcile.RequeueWithin(0)
		}
	} else {
		var patch []byte
		if patch, err = json.Marshal(map[string]any{"series": s.tally()}); err != nil {
			return reconcile.Terminal(err)
		}
		_, err = client.Patch(ctx, s.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) { // the server keeps events for an hour or so
			r.mu.Lock()
			found.name, found.written = r.nameLocked(key), 0
			r.mu.Unlock()
			return reconcile.RequeueWithin(0)
		}
	}
	if err != nil {
		err = fmt.Errorf("write event %s of %s: %w", key.reason, objectName(key.regarding), err)
		if refused(err) {
			return reconcile.Terminal(err)
		}
		return err
	}
	r.wrote(key, s.name, s.count)
	return reconcile.RequeueAfter(cmp.Or(r.Interval, time.Minute))
}

// refused reports whether the server will not take the event later either.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != 408 && code != 409 && code != 429
}

func (r *Recorder[T]) wrote(key seriesKey, name string, count int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.series[key]; s != nil && s.name == name {
		s.written = count
	}
}

func (r *Recorder[T]) drop(key seriesKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.series, key)
}

func (s *series) tally() *eventsv1.EventSeries {
	if s.count < 2 {
		return nil
	}
	return &eventsv1.EventSeries{Count: s.count, LastObservedTime: metav1.NewMicroTime(s.last)}
}

func (r *Recorder[T]) event(key seriesKey, s *series, namespace string) *eventsv1.Event {
	instance := r.Instance
	if instance == "" {
		instance, _ = os.Hostname()
		instance = cmp.Or(text.Cut(instance, 128), "unknown")
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: s.name, Namespace: namespace},
		EventTime:           metav1.NewMicroTime(s.first),
		Series:              s.tally(),
		ReportingController: r.Controller,
		ReportingInstance:   instance,
		Action:              key.action,
		Reason:              key.reason,
		Regarding:           key.regarding,
		Note:                s.note,
		Type:                key.typ,
	}
}

// nameLocked returns a name for an event: that of the object, and the time.
func (r *Recorder[T]) nameLocked(key seriesKey) string {
	r.names++
	suffix := "." + strconv.FormatInt(time.Now().UnixNano()+r.names, 16)
	object := key.regarding.Name
	return strings.TrimRight(object[:min(len(object), 253-len(suffix))], ".-") + suffix
}

func objectName(ref corev1.ObjectReference) string {
	if ref.Namespace == "" {
		return ref.Name
	}
	return ref.Namespace + "/" + ref.Name
}
