#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# All tests of this module, with kube-apiserver and etcd, which this builds if they are
# not in the cache; go test ./... runs those that need no real server, in memory.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash testserver/build.sh
CGO_ENABLED=1 go test -race -tags nightly ./...
