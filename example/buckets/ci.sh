#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# All tests of this module; go test ./... runs those in memory. They need PostgreSQL, which
# this installs if it is missing, and versitygw, which takes some minutes to build for the
# first time, and a moment after that.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../../.ci/need pg_ctlcluster postgresql
bash gateway/build.sh
CGO_ENABLED=1 go test -race -tags nightly ./...
