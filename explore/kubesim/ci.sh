#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of this module with the oldest client-go, which go.mod requires; and those
# of this module and of manager with the newest, which adapters/controllerruntime requires.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

go test ./...
cd ../../adapters/controllerruntime
go test github.com/reconkernel/reconcile/explore/kubesim/...
