#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of this module. They need versitygw, as those of example/s3 do,
# and the servers of adapters/kube; what is not in the cache is built.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../gateway/build.sh
bash ../../../adapters/kube/testserver/build.sh
CGO_ENABLED=1 go test -race ./...
