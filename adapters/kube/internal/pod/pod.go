// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package pod tells what a process in a pod knows of itself.
package pod

import (
	"fmt"
	"os"
	"strings"
)

// File has the namespace of the pod that this process is in.
const File = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace returns the namespace that file has, if given is empty.
func Namespace(given, file string) (string, error) {
	if given != "" {
		return given, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("it is empty, and this process is in no pod that says its own: %w", err)
	}
	name := strings.TrimSpace(string(text))
	if name == "" {
		return "", fmt.Errorf("it is empty, and so is %s", file)
	}
	return name, nil
}
