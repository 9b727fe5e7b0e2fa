#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# All tests of this module, with real servers; go test ./... runs those in memory. If
# PostgreSQL is missing, this installs what Debian has.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../../.ci/need pg_ctlcluster postgresql
CGO_ENABLED=1 go test -race -tags nightly ./...

# The referee breaks workers, connections and the server, and counts what that does to the queue.
# It ends with an error if a guarantee is broken.
bash ../../.ci/need pgbouncer pgbouncer
bash ../../.ci/need faketime faketime
go run ./referee -for 4m
