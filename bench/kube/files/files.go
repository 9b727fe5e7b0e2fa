// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package files is the work that ours and theirs both do: a file for each
// ConfigMap.
package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Dir is the folder of the files.
type Dir string

func (d Dir) path(cm *corev1.ConfigMap) string { return filepath.Join(string(d), cm.Name) }

// Ensure writes the file of cm if it has not its text: the text, and in the next
// line the time.
func (d Dir) Ensure(_ context.Context, cm *corev1.ConfigMap) error {
	old, _ := os.ReadFile(d.path(cm))
	if text := cm.Data["text"]; len(old) < len(text) || string(old[:len(text)]) != text {
		return os.WriteFile(d.path(cm), fmt.Appendf(nil, "%s\n%d", text, time.Now().UnixNano()), 0o644)
	}
	return nil
}

// Clean removes the file of cm, if there is one.
func (d Dir) Clean(_ context.Context, cm *corev1.ConfigMap) error {
	if err := os.Remove(d.path(cm)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// The words with which a program ends, see Report.
const Words = "runs %d allocations %d"

// Report prints what the program did.
func Report(runs int64) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Printf(Words+"\n", runs, m.Mallocs)
}
