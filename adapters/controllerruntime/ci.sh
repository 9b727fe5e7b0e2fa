#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# All tests of this module, with kube-apiserver and etcd, which this builds if they are
# not in the cache.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../kube/testserver/build.sh
CGO_ENABLED=1 go test -race -tags nightly ./...
