// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package absent tells what the API server has not.
package absent

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object reports whether err says that an object is not there. A 404 of a path that
// the server does not serve, as of a kind whose CRD is gone or of a version that is
// switched off, says nothing of the object: it names none, or client-go has added the
// name of the request to a text that is no Status.
func Object(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Name != "" && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Explain returns err, or, if it is a 404 that says nothing of an object, an error that
// apierrors.IsNotFound does not know.
func Explain(err error) error {
	if !apierrors.IsNotFound(err) || Object(err) {
		return err
	}
	return fmt.Errorf("the API server does not serve this kind, or not in this version, so nothing is known of its objects: %v", err)
}
