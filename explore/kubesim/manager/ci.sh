#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of this module with the oldest controller-runtime, which go.mod requires.
# Without the race detector: it would take most of the time that plans have.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

go test ./...
