#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of this module. They need versitygw, as those of example/s3 do,
# and the servers of adapters/kube; what is not in the cache is built. They run
# without the race detector: it would have all of client-go built a second time,
# for one file of ours.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../gateway/build.sh
bash ../../../adapters/kube/testserver/build.sh
go test ./...
