#!/usr/bin/env bash
# Copyright 2026 The reconcile Authors
# SPDX-License-Identifier: Apache-2.0
#
# The tests of this module, without the race detector: all of controller-runtime
# would be built a second time for it.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bash ../testserver/build.sh
go vet ./...
go test ./...
