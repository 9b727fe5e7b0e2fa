#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# All tests of this module; go test ./... runs those in memory. They need an old
# nats-server, to see that the feeders work with it: the one that Debian has in the
# package nats-server. If it is missing, this installs it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../../.ci/need nats-server nats-server
CGO_ENABLED=1 go test -race -tags nightly ./...
