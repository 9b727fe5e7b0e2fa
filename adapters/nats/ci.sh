#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# All tests of this module, and its referee for about a minute; go test ./... runs those
# in memory. They need an old nats-server, to see that the feeders work with it and that
# the queue refuses it: the one that Debian has in the package nats-server. If it is
# missing, this installs it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../../.ci/need nats-server nats-server
CGO_ENABLED=1 go test -race -tags nightly ./...

# The referee kills processes and cuts their connections, and counts what that does
# to the queue. It ends with an error if a guarantee is broken, or if it does not
# catch its controls.
go run ./queue/referee -short
