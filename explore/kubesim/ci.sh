#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# All tests of this module; the server that it is compared with is built if it is not in
# the cache.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../../adapters/kube/testserver/build.sh
go test -tags nightly ./...
