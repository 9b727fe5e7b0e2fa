#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# All tests of this module; go test ./... runs those in memory. They need prometheus and
# promtool, which Debian has in the package prometheus; if they are missing, this installs
# it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../../.ci/need prometheus prometheus
CGO_ENABLED=1 go test -race -tags nightly ./...
